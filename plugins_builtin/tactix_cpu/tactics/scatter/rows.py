"""TensorScatter and ReverseSequence in C: rows that lie elsewhere, by a number for each sample."""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, loop


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [TensorScatterTactic(), ReverseSequenceTactic()]


def _why_not(node: Node) -> Reject | None:
    """Why rows of the first input cannot be moved by the integers of the last, if they cannot."""
    if node.is_fused:
        return Reject("elements are moved, not computed: no epilogue")
    if not c_copy.movable(node.given[0].spec.dtype):
        return Reject(f"no elements of {node.given[0].spec.dtype.value} in C")
    numbers = [v.spec.dtype for v in node.given[1:] if v.spec.dtype.is_int]
    if not c_text.has_ctype(*numbers):
        return Reject(f"no integers of {', '.join(t.value for t in numbers)} in C")
    return None


class TensorScatterTactic(Tactic[Node]):
    """A copy of the cache, then the update of each sample from its place on."""

    key = "tactix.c_tensor_scatter@1"
    implements = ("tactix.TensorScatter@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if (why := _why_not(node)) is not None:
            return why
        if node.attrs.axis % node.given[0].spec.rank == 0:
            return Reject("samples have places along axes behind the first alone")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        body = [block(f"if ({args.phase()} == 0)", *_copied(args), "return;"), *_updates(args)]
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes(), phases=2, in_place=True)


def _copied(args: Args) -> list[str]:
    cache = args.node.given[0].spec
    size = args.size("BYTES", cache.nbytes())
    copy = f"memcpy({args.bytes_out(0)} + lo, {args.bytes_in(0)} + lo, hi - lo);"
    return [c_text.split(size, 64), f"if ({args.bytes_out(0)} != {args.bytes_in(0)}) {copy}"]


def _updates(args: Args) -> list[str]:
    """Threads share the rows before the axis, each of which lies in one sample."""
    node = args.node
    cache, update = (v.spec for v in node.given[:2])
    axis, width = node.attrs.axis % cache.rank, cache.dtype.itemsize
    lines = args.size("LINES", dims.prod(cache.shape[:axis]))
    each = args.size("LINES_OF_A_SAMPLE", dims.prod(cache.shape[1:axis]))
    size = args.size("SIZE", cache.shape[axis])
    count = args.size("COUNT", update.shape[axis])
    row = args.size("ROW_BYTES", dims.prod(cache.shape[axis + 1 :]) * width)
    place = (
        args.dim(node.attrs.begin)
        if len(node.given) < 3
        else f"(int64_t){args.input(2)}[line / {each}]"
    )
    if node.attrs.mode == "circular":
        at = [f"int64_t at = (place + i) % {size};", f"at += at < 0 ? {size} : 0;"]
    else:
        found = f"tx_index(place + i, {size}, {args.fault()})"
        at = [f"const int64_t at = {found};", "if (at < 0) continue;"]
    y = f"{args.bytes_out(0)} + (line * {size} + at) * {row}"
    x = f"{args.bytes_in(1)} + (line * {count} + i) * {row}"
    copies = loop("i", "0", count, *at, f"tx_copy({y}, {x}, {row});")
    return [
        c_text.split(lines),
        loop("line", "lo", "hi", f"const int64_t place = {place};", copies),
    ]


class ReverseSequenceTactic(Tactic[Node]):
    """Each row is copied from where it stands, or from the other end of its sequence."""

    key = "tactix.c_reverse_sequence@1"
    implements = ("tactix.ReverseSequence@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if (why := _why_not(node)) is not None:
            return why
        a, rank = node.attrs, node.given[0].spec.rank
        if a.batch_axis % rank == a.time_axis % rank:
            return Reject("the batch axis is the time axis")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx, bandwidth=2e9)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        return c_text.kernel(args, _reversed(args), ctx, preludes=c_copy.preludes())


def _reversed(args: Args) -> list[str]:
    """Rows behind the later of both axes; ``i`` counts along the earlier, ``j`` along the later."""
    node = args.node
    shape, width = node.given[0].spec.shape, node.given[0].spec.dtype.itemsize
    batch, time = (a % len(shape) for a in (node.attrs.batch_axis, node.attrs.time_axis))
    first, second = sorted((batch, time))
    earlier = args.size("EARLIER", shape[first])
    later = args.size("LATER", shape[second])
    between = args.size("BETWEEN", dims.prod(shape[first + 1 : second]))
    row = args.size("ROW", dims.prod(shape[second + 1 :]))
    units = dims.prod(shape[:second])
    sample, step = ("i", "j") if batch < time else ("j", "i")
    size = args.dim(shape[time])
    moved = f"length - 1 - {step}"
    source = (
        f"((outer * {earlier} + {moved}) * {between} + middle) * {later} + j"
        if time < batch
        else f"unit * {later} + {moved}"
    )
    text = f"a length of {{0}} along axis {time}, which has {{1}} elements"
    cure = "Give lengths from 0 to the size of the axis"
    refusal = args.refuse(text, "length", size, do=cure)
    copy = f"tx_copy({args.bytes_out(0)} + to * bytes, {args.bytes_in(0)} + from * bytes, bytes);"
    if row == "ROW" and shape[second + 1 :] == ():
        kind = f"uint{8 * width}_t"
        copy = f"(({kind}*){args.bytes_out(0)})[to] = ((const {kind}*){args.bytes_in(0)})[from];"
    body = [
        f"const int64_t length = (int64_t){args.input(1)}[{sample}];",
        block(f"if ((uint64_t)length > (uint64_t){size})", refusal, "continue;"),
        f"const int64_t to = unit * {later} + j;",
        f"const int64_t from = {step} < length ? {source} : to;",
        copy,
    ]
    return [
        f"const int64_t bytes = {row} * {width};",
        c_text.split(args.size("UNITS", units)),
        loop(
            "unit",
            "lo",
            "hi",
            f"const int64_t middle = unit % {between}, i = unit / {between} % {earlier};",
            f"const int64_t outer = unit / {between} / {earlier};",
            loop("j", "0", later, *body),
        ),
    ]
