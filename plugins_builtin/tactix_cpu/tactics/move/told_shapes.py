"""Tensors whose shape is the content of another, in C: reshapes, fills, ranges, one-hot vectors.

The first launch reads the numbers and tells the output's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.c.text import Args, block, comment, loop

BANDWIDTH = 8e9
"""Bytes/s of copies and fills."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [
        ToldReshapeTactic(),
        ToldFillTactic(),
        ToldRangeTactic(),
        ToldOneHotTactic(),
        CategoriesTactic(),
    ]


def _no_numbers(node: Node, index: int) -> Reject | None:
    """Why an input is no list of as many integers as are known, if it is none."""
    spec = node.given[index].spec
    if not spec.dtype.is_int or not c_text.has_ctype(spec.dtype):
        return Reject(f"no numbers of {spec.dtype.value} in C")
    return (
        None if isinstance(spec.numel, int) else Reject("how many numbers there are is not known")
    )


def told(args: Args, numbers: Sequence[str]) -> str:
    """The first launch: ``numbers`` fill ``out``, by axis of the output."""
    shape = args.node.outputs[0].spec.shape
    fresh = c_text.fresh_symbols(args.node)
    named = {n: f"out[{i}]" for i, d in enumerate(shape) if (n := dims.symbol_name(d)) in fresh}
    return block(
        f"if ({args.phase()} == 0)",
        "if (tid) return;",
        f"int64_t out[{max(1, len(shape))}];",
        *numbers,
        *args.tell(named),
        "return;",
    )


def size_list(name: str, values: Sequence[str]) -> str:
    return f"const int64_t {name}[] = {{{', '.join(values) or '0'}}};"


class ToldReshapeTactic(Tactic[Node]):
    """The same bytes under another shape."""

    key = "tactix.c_told_reshape@1"
    implements = (
        "tactix.DynamicReshape@1", "tactix.DynamicSqueeze@1", "tactix.DynamicUnsqueeze@1",
    )  # fmt: skip
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if not c_copy.movable(node.given[0].spec.dtype):
            return Reject(f"no elements of {node.given[0].spec.dtype.value} in C")
        return _no_numbers(node, 1) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.given[0].spec.nbytes(), 2 / BANDWIDTH))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.given[0].spec
        numbers = {
            "DynamicReshape": _reshaped,
            "DynamicSqueeze": _squeezed,
            "DynamicUnsqueeze": _unsqueezed,
        }[node.layer.name](args)
        body = [
            told(args, [size_list("size", [args.dim(d) for d in spec.shape]), *numbers]),
            c_text.split(args.size("BYTES", spec.nbytes()), 64),
            f"memcpy({args.bytes_out(0)} + lo, {args.bytes_in(0)} + lo, hi - lo);",
        ]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, telling=1)


def _reshaped(args: Args) -> list[str]:
    """0 stands for the input's dim, -1 for what follows from the others."""
    node = args.node
    spec, rank = node.given[0].spec, len(node.outputs[0].spec.shape)
    count = args.dim(spec.numel)
    unfit = partial(_unfit, args, count)
    kept = args.refuse("a 0 in the shape stands for axis {0}, of {1}", "k", str(spec.rank))
    zero = [] if node.attrs.allowzero else [
        block(f"if (d == 0 && k >= {spec.rank})", kept, "return;"),
        "if (d == 0) d = size[k];",
    ]  # fmt: skip
    return [
        "int64_t known = 1, open = -1;",
        loop(
            "k",
            "0",
            str(rank),
            f"int64_t d = (int64_t){args.input(1)}[k];",
            *zero,
            block("if (d < -1)", unfit("it has a dim of {1}", "d"), "return;"),
            block("if (d == -1 && open >= 0)", unfit("axis {1} is -1 too", "k"), "return;"),
            "out[k] = d;",
            "if (d == -1) open = k;",
            "else known *= d;",
        ),
        f"const int fits = open < 0 ? known == {count} : known > 0 && {count} % known == 0;",
        block("if (!fits)", unfit("its dims make {1}", "known"), "return;"),
        f"if (open >= 0) out[open] = {count} / known;",
    ]


def _unfit(args: Args, count: str, why: str, number: str) -> str:
    text = f"{{0}} elements do not go into the shape: {why}"
    cure = "Give dims of as many elements, or one of them as -1"
    return args.refuse(text, count, number, do=cure)


def named_axes(args: Args, rank: int, text: str) -> list[str]:
    """Bit ``axis`` of ``seen`` for each axis that the second input names."""
    count = args.node.given[1].spec.numel
    return [
        "uint64_t seen = 0;",
        loop(
            "k",
            "0",
            str(count),
            f"const int64_t named = (int64_t){args.input(1)}[k];",
            f"const int64_t axis = named < 0 ? named + {rank} : named;",
            block(
                f"if ((uint64_t)axis >= {rank} || seen >> axis & 1)",
                args.refuse(text, "named", str(rank)),
                "return;",
            ),
            "seen |= (uint64_t)1 << axis;",
        ),
    ]


def _squeezed(args: Args) -> list[str]:
    rank = args.node.given[0].spec.rank
    long = args.refuse("axis {0} has {1} elements, not one", "i", "size[i]")
    return [
        *named_axes(args, rank, "axis {0} of a tensor with {1} axes, or twice"),
        "int64_t n = 0;",
        loop(
            "i",
            "0",
            str(rank),
            block("if ((seen >> i & 1) && size[i] != 1)", long, "return;"),
            "if (!(seen >> i & 1)) out[n++] = size[i];",
        ),
    ]


def _unsqueezed(args: Args) -> list[str]:
    rank = len(args.node.outputs[0].spec.shape)
    return [
        *named_axes(args, rank, "axis {0} of a result with {1} axes, or twice"),
        "int64_t n = 0;",
        loop("i", "0", str(rank), "out[i] = seen >> i & 1 ? 1 : size[n++];"),
    ]


class ToldFillTactic(Tactic[Node]):
    """One number everywhere."""

    key = "tactix.c_told_fill@1"
    implements = ("tactix.DynamicFill@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if not c_copy.movable(node.attrs.dtype):
            return Reject(f"no elements of {node.attrs.dtype.value} in C")
        return _no_numbers(node, 0) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.START

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.outputs[0].spec
        width = spec.dtype.itemsize
        text = "negative dimensions are not allowed: dim {0} is {1}"
        negative = args.refuse(text, "k", "d", do="Give dims of 0 or more")
        each = [
            f"const int64_t d = (int64_t){args.input(0)}[k];",
            block("if (d < 0)", negative, "return;"),
            "out[k] = d;",
        ]
        kind = f"uint{8 * width}_t"
        value = f"({kind})0x{c_copy.bits(node.attrs.value, spec.dtype):x}ULL"
        body = [
            told(args, [loop("k", "0", str(spec.rank), *each)]),
            c_text.split(args.size("COUNT", spec.numel), 64),
            f"tx_fill_{8 * width}(({kind}*){args.bytes_out(0)} + lo, {value}, hi - lo);",
        ]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, telling=1)


class ToldRangeTactic(Tactic[Node]):
    """Numbers from one to another: of how many only running tells."""

    key = "tactix.c_told_range@1"
    implements = ("tactix.Range@1",)
    source = "c"
    tells = True
    beyond = "random numbers are no limits of a range"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.outputs[0].spec.dtype
        if node.is_fused or not c_text.has_ctype(dtype) or dtype is DType.BOOL:
            return Reject(f"no ranges of {dtype.value} in C")
        if not c_text.fresh_symbols(node):
            return Reject("the number of elements is known before running")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.START

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, dtype = Args(node), node.outputs[0].spec.dtype
        wide = "double" if dtype.is_float else c_text.ctype(dtype)
        kind = c_text.ctype(dtype)
        numbers = (
            f"const {wide} {name} = {element(dtype, f'{args.input(i)}[0]')};"
            for i, name in enumerate(("start", "limit", "step"))
        )
        count = _floats_counted(args) if dtype.is_float else _integers_counted(args)
        value = stored(dtype, f"({wide})(start + ({wide})i * step)")
        body = [
            *numbers,
            told(args, count),
            c_text.split(args.size("COUNT", node.outputs[0].spec.numel), 64),
            loop("i", "lo", "hi", f"{args.output(0)}[i] = ({kind}){value};"),
        ]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, telling=1)


def _floats_counted(args: Args) -> list[str]:
    endless = args.refuse("there is no number of elements from the start to the limit", "0")
    return [
        *_no_step(args),
        "const double count = ceil((limit - start) / step);",
        comment("NaN and infinity, and what no memory holds."),
        block("if (!(count < 0x1p62))", endless, "return;"),
        "out[0] = count > 0 ? (int64_t)count : 0;",
    ]


def _integers_counted(args: Args) -> list[str]:
    """Distances are unsigned: they may be larger than the numbers between which they lie."""
    endless = args.refuse("a range of {0} elements", "(int64_t)count")
    return [
        *_no_step(args),
        "const int up = step > 0, any = up ? start < limit : limit < start;",
        "const uint64_t a = (uint64_t)start, b = (uint64_t)limit, by = (uint64_t)step;",
        "const uint64_t away = up ? b - a : a - b, each = up ? by : 0 - by;",
        "const uint64_t count = any ? (away - 1) / each + 1 : 0;",
        block("if (count >> 62)", endless, "return;"),
        "out[0] = (int64_t)count;",
    ]


def _no_step(args: Args) -> list[str]:
    refusal = args.refuse("the step is 0", "0", do="Give a step that is less or more than 0")
    return [block("if (step == 0)", refusal, "return;")]


class ToldOneHotTactic(Tactic[Node]):
    """Whole vectors of ``off``, then ``on`` where an index says so; one beyond the depth says
    nothing.
    """

    key = "tactix.c_told_one_hot@1"
    implements = ("tactix.DynamicOneHot@1",)
    source = "c"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        indices, depth, values = (v.spec.dtype for v in node.given)
        numbers = all(c_text.has_ctype(t) and t is not DType.BOOL for t in (indices, depth))
        if not c_copy.movable(values) or not numbers:
            told = f"{indices.value} and a depth of {depth.value}"
            return Reject(f"no vectors of {values.value} by {told} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.given[0].spec.nbytes(), 1 / BANDWIDTH))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = Args(node), node.outputs[0].spec
        axis = node.attrs.axis % spec.rank
        bits = 8 * spec.dtype.itemsize
        kind = f"uint{bits}_t"
        depth = args.size("DEPTH", spec.shape[axis])
        inner = args.size("INNER", dims.prod(spec.shape[axis + 1 :]))
        read = _whole(args, 1, "0")
        negative = args.refuse("the depth is {0}", f"out[{axis}]", do="Give 0 or more")
        first = [f"out[{axis}] = {read};", block(f"if (out[{axis}] < 0)", negative, "return;")]
        value = f"((const {kind}*){args.bytes_in(2)})"
        body = [
            told(args, first),
            c_text.split(args.size("OUTER", dims.prod(spec.shape[:axis]))),
            loop(
                "o",
                "lo",
                "hi",
                f"{kind}* const y = ({kind}*){args.bytes_out(0)} + o * {depth} * {inner};",
                f"tx_fill_{bits}(y, {value}[0], {depth} * {inner});",
                loop(
                    "i",
                    "0",
                    inner,
                    f"const int64_t index = {_whole(args, 0, f'o * {inner} + i')};",
                    f"const int64_t at = index < 0 ? index + {depth} : index;",
                    f"if ((uint64_t)at < (uint64_t){depth}) y[at * {inner} + i] = {value}[1];",
                ),
            ),
        ]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, telling=1)


def _whole(args: Args, index: int, at: str) -> str:
    """An element of an input as an integer; of a float what stands before the point."""
    dtype = args.node.given[index].spec.dtype
    value = element(dtype, f"{args.input(index)}[{at}]")
    return f"tx_i64_of({value})" if dtype.is_float else f"(int64_t){value}"


class CategoriesTactic(Tactic[Node]):
    """OneHotCategories of numbers, of which an element may be in no category."""

    key = "tactix.c_categories@1"
    implements = ("tactix.OneHotCategories@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.given[0].spec.dtype
        if node.is_fused or not c_text.has_ctype(dtype) or dtype is DType.BOOL:
            return Reject(f"no categories of {dtype.value} in C")
        if not node.attrs.zeros:
            return Reject("an element in no category is named by the reference alone")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, (x, categories) = Args(node), (v.spec for v in node.given)
        count = args.size("CATEGORIES", categories.numel)
        one = element(x.dtype, f"{args.input(0)}[i]")
        other = element(x.dtype, f"{args.input(1)}[k]")
        kind = "float" if x.dtype.is_float and x.dtype.bits < 32 else c_text.ctype(x.dtype)
        body = [
            c_text.split(args.size("COUNT", x.numel), 16),
            loop(
                "i",
                "lo",
                "hi",
                f"const {kind} own = {one};",
                loop("k", "0", count, f"{args.output(0)}[i * {count} + k] = own == {other};"),
            ),
        ]
        return c_text.kernel(args, body, ctx)
