"""FewBitsGather in C: rows of a table of 2, 4 or 8 bits are picked and unpacked in one pass, by
shifts and masks; any integer indices, linear format.

Negative indices count from the end. What an index beyond the table asks for is left out and
reported: the run fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, has_ctype, loop
from tactix_cpu.tactics.estimates import START

FLOATS = (DType.FP32, DType.FP16)
"""Of scales."""
ZEROS = (DType.UINT8, *FLOATS)
RATE = 9e9
"""Numbers per second, for estimates: 128 rows of 2048 took 28 us on one core of an AMD EPYC
(Zen 4).
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [FewBitsRowsTactic()]


@dataclass(frozen=True)
class FewBitsRows:
    """``columns`` numbers of ``bits`` in each row, ``block`` of which share a scale."""

    node: Node
    bits: int
    block: int
    columns: int

    @property
    def blocks(self) -> int:
        return -(-self.columns // self.block)


def few_bits_rows(node: Node) -> FewBitsRows | Reject:
    """What a node computes, or why the kernel cannot take it."""
    if node.is_fused:
        return Reject("rows are unpacked, and nothing is computed of them: no epilogue")
    indices, scale = node.given[1].spec, node.given[2].spec
    zero = node.given[3].spec if len(node.given) > 3 else None
    if not has_ctype(indices.dtype):
        return Reject(f"no indices of {indices.dtype.value} in C")
    if scale.dtype not in FLOATS or (zero is not None and zero.dtype not in ZEROS):
        return Reject("this kernel takes scales of float32 or float16, and zero points of u8, too")
    a = node.attrs
    if a.block_size * a.bits % 8:
        return Reject("this kernel takes blocks of whole bytes")
    return FewBitsRows(node, a.bits, a.block_size, a.columns)


class FewBitsRowsTactic(Tactic[FewBitsRows]):
    """Any number of rows, constant table or not."""

    key = "tactix.c_few_bits_rows@1"
    implements = ("tactix.FewBitsGather@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> FewBitsRows | Reject:
        return few_bits_rows(node)

    def cost(self, work: FewBitsRows, variant: Variant, ctx: CompileContext) -> float | None:
        count = work.node.outputs[0].spec.numel
        if not dims.symbols(count) <= set(ctx.opt):
            return None
        return START + dims.evaluate(count, ctx.opt) / RATE

    def compile(self, work: FewBitsRows, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _Kernel(work, ctx).artifact()


class _Kernel:
    """Writes one kernel."""

    def __init__(self, work: FewBitsRows, ctx: CompileContext) -> None:
        self.work, self.ctx, self.args = work, ctx, Args(work.node)
        self.lanes = max(4, ctx.device.lanes)
        sizes = {"COLUMNS": work.columns, "BLOCKS": work.blocks, "BLOCK": work.block}
        for name, size in sizes.items():
            self.args.size(name, size)

    def artifact(self) -> KernelArtifact:
        preludes = (*c_copy.preludes(), c_text.prelude("few_bits.h"))
        return c_text.kernel(self.args, self._rows(), self.ctx, preludes=preludes)

    def _rows(self) -> list[str]:
        """A loop over rows, and one over the blocks of each."""
        work, args = self.work, self.args
        table, indices = work.node.given[0].spec, work.node.given[1].spec
        whole, rest = divmod(work.columns, work.block)
        last = block("", f"const int64_t b = {whole};", *self._block(rest)) if rest else ""
        size, width = (args.dim(d) for d in table.shape)
        body = [
            f"const int64_t j = tx_index((int64_t){args.input(1)}[o], {size}, {args.fault()});",
            "if (j < 0) continue;",
            f"const uint8_t* w = {args.input(0)} + j * {width};",
            f"float* y = {args.output(0)} + o * COLUMNS;",
            loop("b", "0", str(whole), *self._block(work.block)) if whole else "",
            last,
        ]
        return [c_text.split(args.dim(indices.numel)), loop("o", "lo", "hi", *filter(None, body))]

    def _block(self, count: int) -> list[str]:
        """Statements that write the first ``count`` numbers of block ``b`` at ``y``: vectors of
        them, then the rest one by one.
        """
        bits, vectors = self.work.bits, count // self.lanes
        there = len(self.work.node.given) > 3
        zero = self._of_block(3) if there else f"{1 << bits - 1}.0f"
        number = f"tx_number_{bits}(tx_packed_{bits}(w + i * {bits} / 8))"
        vector = f"tx_store_f32(y + i, ({number} - tx_splat(zero)) * tx_splat(scale));"
        single = f"w[i * {bits} / 8] >> i * {bits} % 8 & {(1 << bits) - 1}"
        done = vectors * self.lanes
        return [
            f"const float scale = {self._of_block(2)}, zero = {zero};",
            loop("i", "0", str(done), vector, step=self.lanes) if vectors else "",
            loop("i", str(done), str(count), f"y[i] = ((float)({single}) - zero) * scale;")
            if done < count
            else "",
            f"w += {self.work.block * bits // 8}; y += BLOCK;",
        ]

    def _of_block(self, index: int) -> str:
        """The number of block ``b`` of row ``j``, as a float."""
        value = f"{self.args.input(index)}[j * BLOCKS + b]"
        dtype = self.work.node.given[index].spec.dtype
        return f"tx_from_f16({value})" if dtype is DType.FP16 else f"(float){value}"
