"""DFT and STFT in CUDA: a thread adds up each element of a result; linear format.

Sums are kept in float64, as in the reference. The turning factor of an element follows from that of
the one before, and is computed anew every so many elements, so that its error stays small.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations.fourier import FourierTransform, Signals

_LONGEST = 4096
"""Elements of a signal at most: the work grows by its square. No measurement of it is recorded."""
_ANEW = 32
"""Elements after which a turning factor is computed anew: it is off by so many roundings."""
_TERMS = 2e12
"""Products of complex float64 of a second that ``cost`` takes for granted; not measured."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaFourierTactic()]


class CudaFourierTactic(Tactic[FourierTransform]):
    """f64, f32, f16 and bf16; lengths that are known, up to 4096."""

    key = "tactix.cuda_fourier@1"
    implements = ("tactix.DFT@1", "tactix.STFT@1")
    device = "cuda"
    source = "cuda_c"
    spreads = True  # every number is in every sum, in another order

    def match(self, node: Node, device: DeviceProperties) -> FourierTransform | Reject:
        if node.is_fused:
            return Reject("transforms take no epilogue")
        if not all(v.spec.dtype.is_float and c_text.has_ctype(v.spec.dtype) for v in node.given):
            return Reject("no transform of these dtypes in CUDA")
        work = FourierTransform.of(node)
        if not isinstance(work.length, int) or not 0 < work.length <= _LONGEST:
            return Reject(f"signals of more elements than {_LONGEST}, of none or of an open number")
        return work

    def cost(self, work: FourierTransform, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        return seconds + dims.evaluate(work.count * work.bins * work.length, ctx.opt) / _TERMS

    def compile(
        self, work: FourierTransform, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args, results = CudaArgs(work.node), work.count * work.bins
        body = [] if results == 0 else _result(args, work)
        return text.kernel(args, body, ctx, text.blocks(results))


def _result(args: CudaArgs, work: FourierTransform) -> list[str]:
    """Element ``bin`` of the transform of ``signal``: the sum of ``a + i c``, turned by ``u + i v``
    each.
    """
    x, y, size = work.node.given[0].spec, work.node.outputs[0].spec, args.dim(work.size)
    kind, length = text.index_type(x.numel, y.numel), work.length
    assert isinstance(length, int)
    sign = "" if work.inverse else "-"
    angle = f"{sign}{2 / length!r}"
    given = length // 2 + 1 if work.half else length
    step, target = args.dim(work.source.step), f"{args.output(0)}[to + {{}}]"
    sums = ["re += a * u - c * v;"]
    sums += ["im += a * v + c * u;"] if work.target.parts == 2 else []
    turned = [
        f"const int64_t at = from + n * {step};",
        *_element(args, work),
        *sums,
        "const double before = u;",
        "u = u * by - v * across;",
        "v = before * across + v * by;",
    ]
    some = [
        "double u, v;",
        f"sincospi({angle} * (double)(first * bin % {length}), &v, &u);",
        f"const int last = first + {_ANEW} < given ? first + {_ANEW} : given;",
        block("for (int n = first; n < last; n++)", *turned),
    ]
    share = f" * {1 / length!r}" if work.inverse else ""
    stores = []
    for i, total in enumerate(("re", "im")[: work.target.parts]):
        number = f"({text.number_type(y.dtype)})({total}{share})"
        stores.append(f"{target.format(i)} = {text.stored(y.dtype, number)};")
    return [
        *text.flat(args, kind, work.count * work.bins),
        text.decode(kind, "t", ["signal", "line"], ["", args.dim(work.bins)]),
        "const int bin = line;",
        f"const int64_t from = {_begin(args, work.source)};",
        f"const int64_t to = {_begin(args, work.target)} + bin * {args.dim(work.target.step)};",
        f"const int given = {size} < {given} ? {size} : {given};",
        "double by, across;",
        f"sincospi({angle} * (double)bin, &across, &by);",
        "double re = 0.0, im = 0.0;",
        block(f"for (int first = 0; first < given; first += {_ANEW})", *some),
        *stores,
    ]


def _begin(args: CudaArgs, s: Signals) -> str:
    each = args.dim(s.each)
    return f"signal / {each} * {args.dim(s.outer)} + signal % {each} * {args.dim(s.inner)}"


def _element(args: CudaArgs, work: FourierTransform) -> list[str]:
    """Declare ``a`` and ``c``, element ``n`` of the signal. Of half of the frequencies each stands
    for its conjugate, too.
    """
    dtype = work.node.given[0].spec.dtype
    factors = ""
    if work.window >= 0:
        window = work.node.given[work.window].spec.dtype
        factors = f" * (double){text.element(window, f'{args.input(work.window)}[n]')}"
    a, c = (f"(double){text.element(dtype, f'{args.input(0)}[at + {i}]')}" for i in range(2))
    if work.source.parts == 1 or (work.real and not work.half):
        c = "0.0"
    if not work.half:
        return [f"const double a = {a}{factors};", f"const double c = {c}{factors};"]
    return [
        f"const bool alone = n == 0 || 2 * n == {work.length};",
        f"const double a = (alone ? 1.0 : 2.0) * {a};",
        f"const double c = alone ? 0.0 : 2.0 * {c};",
    ]
