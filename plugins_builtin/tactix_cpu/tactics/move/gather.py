"""Gather, GatherElements and GatherND in C: any movable dtype, any integer indices, linear format.

Negative indices count from the end. What an index beyond the axis asks for is left out and
reported: the run fails.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, loop
from tactix_codegen.operations import gather
from tactix_codegen.operations.gather import GatherWork, work_of
from tactix_cpu.tactics.estimates import START

BANDWIDTH = 4e9
"""Bytes per second of results, for estimates: half of what other kernels that move data are taken
to do (c_text.traffic), as slices lie where indices say. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GatherTactic()]


class GatherTactic(Tactic[GatherWork]):
    """Rows of bytes where whole slices are taken, single elements otherwise."""

    key = "tactix.c_gather@1"
    implements = gather.KINDS
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> GatherWork | Reject:
        return work_of(node, "C")

    def cost(self, work: GatherWork, variant: Variant, ctx: CompileContext) -> float | None:
        out = work.node.outputs[0].spec.nbytes()
        return (
            2 * START + dims.evaluate(out, ctx.opt) / BANDWIDTH
            if dims.symbols(out) <= set(ctx.opt)
            else None
        )

    def compile(self, work: GatherWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(work.node)
        write = {"Gather": _gather, "GatherElements": _elements, "GatherND": _nd}[work.layer]
        return c_text.kernel(args, write(args, work), ctx, preludes=c_copy.preludes())


def _take(args: Args, source: str, row: str, work: GatherWork) -> str:
    """Copy the slice at element ``source`` of the data to slice ``row`` of the output."""
    y, x, n, width = args.bytes_out(0), args.bytes_in(0), args.dim(work.inner), work.width
    if work.inner == 1:
        t = f"uint{8 * width}_t"
        return f"(({t}*){y})[{row}] = ((const {t}*){x})[{source}];"
    return f"tx_copy({y} + {row} * {n} * {width}, {x} + ({source}) * {width}, {n} * {width});"


def _gather(args: Args, work: GatherWork) -> list[str]:
    size, count = args.dim(work.sizes[0]), args.dim(work.each)
    body = [
        f"const int64_t k = o % {count}, b = o / {count};",
        f"const int64_t j = tx_index((int64_t){args.input(1)}[k], {size}, {args.fault()});",
        "if (j < 0) continue;",
        _take(args, f"(b * {size} + j) * {args.dim(work.inner)}", "o", work),
    ]
    return [c_text.split(args.dim(work.slices)), loop("o", "lo", "hi", *body)]


def _nd(args: Args, work: GatherWork) -> list[str]:
    strides = c_text.contiguous_strides(work.data.shape)[work.axis :]
    each = args.dim(work.each)
    terms = (
        [f"o / {each} * {args.dim(dims.prod(work.data.shape[work.axis :]))}"] if work.axis else []
    )
    places = []
    for d, n in enumerate(work.sizes):
        place, size = f"(int64_t){args.input(1)}[o * {work.depth} + {d}]", args.dim(n)
        places.append(f"const int64_t j{d} = tx_index({place}, {size}, {args.fault()});")
        terms.append(f"j{d} * {args.dim(strides[d])}")
    body = [
        *places,
        f"if (({' | '.join(f'j{d}' for d in range(work.depth))}) < 0) continue;",
        f"const int64_t from = {' + '.join(terms)};",
        _take(args, "from", "o", work),
    ]
    return [c_text.split(args.dim(work.slices)), loop("o", "lo", "hi", *body)]


def _elements(args: Args, work: GatherWork) -> list[str]:
    data, indices, axis, rank = work.data, work.indices, work.axis, work.data.rank
    strides = c_text.contiguous_strides(data.shape)
    names = [f"i{i}" for i in range(rank)]
    size, last = args.dim(work.sizes[0]), args.dim(indices.shape[-1])
    elsewhere = [i for i in range(rank - 1) if i != axis]
    base = args.offset([strides[i] for i in elsewhere], [names[i] for i in elsewhere])
    j = f"tx_index((int64_t){args.input(1)}[o * {last} + i], {size}, {args.fault()})"
    source = f"base + j * {args.dim(strides[axis])}" + (" + i" if axis != rank - 1 else "")
    take = _take(args, source, f"o * {last} + i", work)
    body = [
        c_text.decode("o", names[:-1], [args.dim(d) for d in indices.shape[:-1]]),
        f"const int64_t base = {base};",
        loop("i", "0", last, f"const int64_t j = {j};", "if (j < 0) continue;", take),
    ]
    return [c_text.split(args.dim(dims.prod(indices.shape[:-1]))), loop("o", "lo", "hi", *body)]
