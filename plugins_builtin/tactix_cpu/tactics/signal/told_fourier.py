"""DFT and STFT in C whose lengths, steps and axes are the content of tensors: the first launch
tells the sizes; both read these numbers and declare by their names what transforms go by.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block
from tactix_codegen.operations.fourier import Signals, parts_of
from tactix_cpu.tactics.move.told_shapes import size_list, told
from tactix_cpu.tactics.signal.fourier import (
    COMPUTED,
    INNER,
    SECONDS_A_TERM,
    SIDE_BY_SIDE,
    SOME_TERMS,
    TABLES,
    TOGETHER,
    FourierWork,
    most_together,
    transforms,
)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ToldFourierTactic()]


class ToldFourierTactic(Tactic[Node]):
    """f64, f32, f16 and bf16, linear; numbers in any integers."""

    key = "tactix.c_told_fourier@1"
    implements = ("tactix.DynamicDFT@1", "tactix.DynamicSTFT@1")
    source = "c"
    spreads = True  # as that of known sizes
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, place = node.given[0].spec, _window(node)
        if not x.dtype.is_float or not c_text.has_ctype(x.dtype):
            return Reject(f"no transform of {x.dtype.value} in C")
        if x.shape[-1] not in (1, 2) or x.rank < 2:
            return Reject("the last axis holds no real and imaginary parts")
        for i, v in enumerate(node.given[1:], 1):
            fits = v.spec.dtype.is_float if i == place else v.spec.dtype.is_int
            if not fits or not c_text.has_ctype(v.spec.dtype):
                return Reject(f"no numbers of {v.spec.dtype.value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.given[0].spec.numel, SOME_TERMS * SECONDS_A_TERM))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(node), max(1, ctx.threads)
        frames = node.layer.name == "DynamicSTFT"
        sizes, shape, places = (_of_frames if frames else _of_axis)(args, node)
        body = [
            *sizes,
            told(args, [f"out[{i}] = {size};" for i, size in enumerate(shape)]),
            *places,
            f"const int64_t LONGEST = {INNER} * LENGTH;",
            f"const int64_t SIDE = {SIDE_BY_SIDE} * LONGEST, MOST = {TOGETHER} + LONGEST;",
            "const int64_t ROOM = SIDE < MOST ? SIDE : MOST;",
            *transforms(args, _work(node), threads),
        ]
        longest = _longest(node)
        room = (4 * most_together(longest) + TABLES * longest) * COMPUTED.itemsize * threads
        preludes = (*c_copy.preludes(), c_text.prelude("fourier.h"))
        return c_text.kernel(
            args, body, ctx, preludes=preludes, workspace=room, phases=2, telling=1
        )


def _longest(node: Node) -> Dim:
    """No length is more: half of it may be left, along any axis."""
    found: Dim = 2
    for d in node.outputs[0].spec.shape[:-1]:
        found = found + 2 * d
    return found


def _work(node: Node) -> FourierWork:
    """All sizes are declared by the body."""
    x, y, a = node.given[0].spec, node.outputs[0].spec, node.attrs
    source, target = (Signals(0, 0, 0, 0, parts_of(s.shape[-1])) for s in (x, y))
    length = dims.sym("length")
    half, inverse = a.onesided and a.inverse, a.inverse
    if node.layer.name == "DynamicSTFT":
        half = inverse = False
    ends = (source, target, inverse, half, a.onesided, _window(node), True)
    return FourierWork(node, 0, length, length, length, *ends)


def _window(node: Node) -> int:
    return node.place(2) if node.layer.name == "DynamicSTFT" else -1


def _number(args: Args, node: Node, index: int, otherwise: str) -> str:
    """The integer in an input."""
    place = node.place(index)
    return otherwise if place < 0 else f"(int64_t){args.input(place)}[0]"


def _refused(args: Args, condition: str, text: str, first: str, second: str) -> str:
    """The first launch reports it; the others do nothing."""
    report = f"if ({args.phase()} == 0 && !tid) {args.refuse(text, first, second)}"
    return block(f"if ({condition})", report, "return;")


Sizes = tuple[Sequence[str], Sequence[str], Sequence[str]]
"""Statements that declare the length and the sizes of the result, its shape, and statements that
declare where signals lie.
"""


def _of_axis(args: Args, node: Node) -> Sizes:
    """DFT: along an axis."""
    x, y, a = node.given[0].spec, node.outputs[0].spec, node.attrs
    parts, made, axes = parts_of(x.shape[-1]), parts_of(y.shape[-1]), x.rank - 1
    default = "2 * (SIZE - 1)" if a.onesided and a.inverse else "SIZE"
    bins = "LENGTH / 2 + 1" if a.onesided and not a.inverse else "LENGTH"
    sizes = [
        size_list("size", [args.dim(d) for d in x.shape]),
        f"const int64_t named = {_number(args, node, 2, '-2')};",
        f"const int64_t axis = named < 0 ? named + {x.rank} : named;",
        _refused(
            args,
            f"axis < 0 || axis >= {axes}",
            "axis {0} of {1} axes, the last of which holds real and imaginary parts",
            "named",
            str(x.rank),
        ),
        "const int64_t SIZE = size[axis];",
        f"const int64_t wanted = {_number(args, node, 1, '0')};",
        f"const int64_t LENGTH = wanted ? wanted : {default};",
        _refused(args, "LENGTH < 1", "a transform of length {0} of {1} elements", "LENGTH", "SIZE"),
        f"const int64_t BINS = {bins};",
    ]
    shape = [*(f"axis == {i} ? BINS : size[{i}]" for i in range(axes)), str(made)]
    places = ["int64_t outer = 1, inner = 1;"]
    places += [
        f"for (int i = 0; i < {axes}; i++)",
        "    *(i < axis ? &outer : &inner) *= i == axis ? 1 : size[i];",
        "const int64_t SIGNALS = outer * inner, EACH_IN = inner, EACH_OUT = inner;",
        f"const int64_t OUTER_IN = SIZE * inner * {parts}, OUTER_OUT = BINS * inner * {made};",
        f"const int64_t INNER_IN = {parts}, INNER_OUT = {made};",
        f"const int64_t STEP_IN = inner * {parts}, STEP_OUT = inner * {made};",
    ]
    return sizes, shape, places


def _of_frames(args: Args, node: Node) -> Sizes:
    """STFT: of frames, which begin a step apart."""
    x, parts = node.given[0].spec, parts_of(node.given[0].spec.shape[-1])
    batch, elements = args.dim(x.shape[0]), args.dim(x.shape[1])
    place = _window(node)
    factors = elements if place < 0 else args.dim(node.given[place].spec.numel)
    unfit = "LENGTH < 1 || LENGTH > ELEMENTS || step < 1"
    sizes = [
        f"const int64_t ELEMENTS = {elements}, factors = {factors};",
        f"const int64_t step = {_number(args, node, 1, '1')};",
        f"const int64_t LENGTH = {_number(args, node, 3, 'factors')};",
        _refused(args, unfit, "frames of {0} elements, {1} apart", "LENGTH", "step"),
        "const int64_t SIZE = LENGTH;",
        f"const int64_t BINS = {'LENGTH / 2 + 1' if node.attrs.onesided else 'LENGTH'};",
        "const int64_t frames = (ELEMENTS - LENGTH) / step + 1;",
    ]
    if place >= 0:
        text = "a window of {0} elements for frames of {1}"
        sizes.insert(3, _refused(args, "factors != LENGTH", text, "factors", "LENGTH"))
    places = [
        f"const int64_t SIGNALS = {batch} * frames, EACH_IN = frames, EACH_OUT = frames;",
        f"const int64_t OUTER_IN = ELEMENTS * {parts}, OUTER_OUT = frames * BINS * 2;",
        f"const int64_t INNER_IN = step * {parts}, INNER_OUT = BINS * 2;",
        f"const int64_t STEP_IN = {parts}, STEP_OUT = 2;",
    ]
    return sizes, [batch, "frames", "BINS", "2"], places
