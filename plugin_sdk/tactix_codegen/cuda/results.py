"""Where sums become results: eight neighbours of a row through the epilogue, with the widest
accesses that fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tactix.base.dims import Dim, Shape, prod
from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand
from tactix_codegen.c.text import block, contiguous_strides
from tactix_codegen.c.tile import row_offset
from tactix_codegen.cuda import scalar, text
from tactix_codegen.cuda.text import CudaArgs

_BYTES = (DType.INT8, DType.UINT8)
WIDTH = 8
"""Neighbouring sums that a kernel hands over at a time."""


def why_not(epi: Epilogue) -> str:
    """Empty if the epilogue can be written, else the reason."""
    return scalar.why_not(epi.results, epi.dtypes)


def checked(epi: Epilogue) -> Epilogue | Reject:
    """The epilogue, if it can be written."""
    reason = why_not(epi)
    return Reject(reason) if reason else epi


@dataclass(frozen=True)
class RowResults:
    """Results in rows of n elements; the rows flatten the axes ``lead``, operand strides are along
    ``(*lead, n)``.

    ``pointers``: names by given input where it is not read as it is. The kernel's C variables:
    ``row`` (int64_t), ``col`` (int) of the first of the sums ``v``. ``part``: where that is not 0,
    columns come in parts of so many, and the C variable ``end`` (int) is the column behind the last
    one of the sums' part.
    """

    args: CudaArgs
    node: Node
    epi: Epilogue
    lead: Shape
    n: Dim
    pointers: Mapping[int, str] = field(default_factory=dict)
    part: int = 0

    def width(self) -> int:
        """Neighbours that are stored by one access; operands of wider elements take several."""
        strides = contiguous_strides((*self.lead, self.n))
        stores = [(v.spec.dtype, strides) for v in self.node.outputs]
        v = min(WIDTH, text.vector_width(self.part or self.n, stores))
        reads = [o for o in self.epi.operands.values() if o.strides[-1] != 0]
        while any(
            text.vector_width(v, [(o.dtype, o.strides)]) < min(v, text.widest(o.dtype))
            for o in reads
        ):
            v //= 2
        return v

    def store(self, count: int = WIDTH, is_whole: bool = False) -> str:
        """Statements that turn ``count`` sums into results; nothing is done past the last column.

        ``is_whole``: no tile has columns past it.
        """
        width = min(self.width(), count)
        end = "end" if self.part else self.args.size("N", self.n)
        if width == count:
            body = ["const int at = col;", *self._group(width, "v[k]")]
            return block("" if is_whole else f"if (col < {end})", *body)
        head = f"for (int j = 0; j < {count}; j += {width})"
        body = ["const int at = col + j;", *self._group(width, "v[j + k]")]
        return f"#pragma unroll\n{block(head, block(f'if (col + j < {end})', *body))}"

    def _group(self, width: int, sum_: str) -> list[str]:
        """Statements that make ``width`` results; ``sum_``: the C text of the sum in lane ``k``."""
        epi, loads = self.epi, []
        leaves = dict.fromkeys(epi.accumulators, sum_)
        floats = self._floats(width)
        for v, operand in epi.operands.items():
            lines, leaves[v] = self._fetch(v, operand, width, v in floats)
            loads += lines
        dtypes = [DType.FP32 if v in floats else t for v, t in enumerate(epi.dtypes)]
        code = scalar.emit(epi.results, leaves, dtypes, "e")
        kinds = [text.number_type(t) for t in code.dtypes]
        arrays = [f"{kind} r{j}[{width}];" for j, kind in enumerate(kinds)]
        sets = [f"r{j}[k] = {r};" for j, r in enumerate(code.results)]
        stores = [self._put(j, t, width) for j, t in enumerate(code.dtypes)]
        return [*loads, *arrays, *text.lanes(width, *code.statements, *sets), *stores]

    def _floats(self, width: int) -> frozenset[int]:
        """Operands of neighbouring bytes of which nothing is read but their numbers in float32: as
        words they become four of them by a permutation and a sum each.
        """
        if width % 4:
            return frozenset()
        read = set()
        for node in expr.walk(self.epi.results):
            is_number = node.op == "cast" and node.dtype is DType.FP32
            read |= {a.index for a in node.args if a.op == "var" and not is_number}
        return frozenset(
            v
            for v, o in self.epi.operands.items()
            if o.dtype in _BYTES and o.strides[-1] == 1 and v not in read
        )

    def _fetch(
        self, v: int, operand: EpilogueOperand, width: int, as_floats: bool
    ) -> tuple[list[str], str]:
        """As ``text.fetch``."""
        place, step = self._place(operand), operand.strides[-1]
        if not as_floats:
            return text.fetch(self.args, f"o{v}", place, operand.dtype, step, width)
        load = f"tx_floats_{operand.dtype.value}<{width}>(o{v}, {place});"
        return [f"float o{v}[{width}];", load], f"o{v}[k]"

    def _place(self, operand: EpilogueOperand) -> str:
        """The pointer to an operand's element of this row, at the column."""
        column = "at" if operand.strides[-1] != 0 else "0"
        offset = row_offset("row", self.lead, operand.strides[:-1], self.args)
        return self.args.sum(self.base(operand), offset, column)

    def base(self, operand: EpilogueOperand) -> str:
        """The pointer to an operand's first element."""
        return self.pointers.get(operand.index) or self.args.input(operand.index)

    def _put(self, output: int, dtype: DType, width: int) -> str:
        place = f"{self.args.output(output)} + row * {self.args.size('N', self.n)} + at"
        return "\n".join(text.put(self.args, f"r{output}", place, dtype, 1, width))

    @property
    def count(self) -> Dim:
        """Rows."""
        return prod(self.lead)
