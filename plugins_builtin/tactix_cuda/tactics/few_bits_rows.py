"""FewBitsGather in CUDA: rows of a table of 2, 4 or 8 bits are picked and unpacked in one kernel;
any integer indices, linear format.

Negative indices count from the end. An index beyond the table reads the nearest row: kernels cannot
raise.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs

EACH = 8
"""Numbers that a thread makes: whole bytes of any width, and two stores of 16 bytes."""
START = 1e-6
"""Seconds to start the kernel that estimates assume, as ``tactix_codegen.c.text.traffic`` does."""
SCALES = (DType.FP32, DType.FP16, DType.BF16)
ZEROS = (DType.UINT8, *SCALES)


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaFewBitsRowsTactic()]


@dataclass(frozen=True)
class CudaFewBitsRows:
    """``columns`` numbers of ``bits`` in each row, ``block`` of which share a scale."""

    node: Node
    bits: int
    block: int
    columns: int

    @property
    def parts(self) -> int:
        """Threads of a row."""
        return -(-self.columns // EACH)


class CudaFewBitsRowsTactic(Tactic[CudaFewBitsRows]):
    """Any number of rows, constant table or not."""

    key = "tactix.cuda_few_bits_rows@1"
    implements = ("tactix.FewBitsGather@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CudaFewBitsRows | Reject:
        if node.is_fused:
            return Reject("rows are unpacked, and nothing is computed of them: no epilogue")
        indices, scale = node.given[1].spec, node.given[2].spec
        if not c_text.has_ctype(indices.dtype):
            return Reject(f"no indices of {indices.dtype.value} in CUDA")
        if scale.dtype not in SCALES or any(v.spec.dtype not in ZEROS for v in node.given[3:]):
            return Reject("this kernel takes floats of up to 32 bits, and zero points of u8, too")
        return CudaFewBitsRows(node, node.attrs.bits, node.attrs.block_size, node.attrs.columns)

    def cost(self, work: CudaFewBitsRows, variant: Variant, ctx: CompileContext) -> float | None:
        count = work.node.outputs[0].spec.numel
        return START + text.known(count, ctx) * 4 / text.BANDWIDTH

    def compile(
        self, work: CudaFewBitsRows, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args = CudaArgs(work.node)
        threads = work.node.given[1].spec.numel * work.parts
        return text.kernel(args, _body(args, work), ctx, text.blocks(threads))


def _body(args: CudaArgs, work: CudaFewBitsRows) -> list[str]:
    table, indices = (v.spec for v in work.node.given[:2])
    rows, width = table.shape
    for name, size in {"COLUMNS": work.columns, "BLOCK": work.block, "BITS": work.bits}.items():
        args.size(name, size)
    args.size("PARTS", work.parts)
    args.size("BLOCKS", -(-work.columns // work.block))
    x, ids, y = args.input(0), args.input(1), args.output(0)
    scale = element(work.node.given[2].spec.dtype, f"{args.input(2)}[b]")
    zero = f"{1 << work.bits - 1}.0f"
    if len(work.node.given) > 3:
        dtype = work.node.given[3].spec.dtype
        zero = f"(float){element(dtype, f'{args.input(3)}[b]')}"
    aligned = text.divides(work.bits, width)
    load = (
        f"tx_load_u8<{work.bits}>(bytes, from);"
        if aligned
        else f"for (int i = 0; i < BITS; i++) bytes[i] = part * BITS + i < {width} ? from[i] : 0;"
    )
    number = [
        f"const int col = part * {EACH} + k;",
        "const int64_t b = row * BLOCKS + (col < COLUMNS ? col : 0) / BLOCK;",
        f"const int q = bytes[k * BITS / 8] >> k * BITS % 8 & {(1 << work.bits) - 1};",
        f"v[k] = ((float)q - {zero}) * {scale};",
    ]
    return [
        *text.flat(args, "int64_t", indices.numel * work.parts),
        "const int64_t o = t / PARTS;",
        "const int part = (int)(t % PARTS);",
        f"const int64_t row = tx_index((int64_t){ids}[o], {args.dim(rows)});",
        f"const uint8_t* from = {x} + row * {args.dim(width)} + part * BITS;",
        "uint8_t bytes[BITS];",
        load,
        f"float v[{EACH}];",
        *text.lanes(EACH, *number),
        f"float* to = {y} + o * COLUMNS + part * {EACH};",
        *_stores(work.columns),
    ]


def _stores(columns: int) -> list[str]:
    if columns % EACH == 0:
        return ["tx_store_f32<4>(to, v);", "tx_store_f32<4>(to + 4, v + 4);"]
    return text.lanes(EACH, f"if (part * {EACH} + k < COLUMNS) to[k] = v[k];")
