"""One thread per result, or per run of channels in nhwc: where it stands, and what it does with the
anchor's result.

Names of the coordinates: ``n``, ``c``, and ``o0``.. along the spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC
from tactix.contracts.tactic import Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import strides_in
from tactix_codegen.cuda import scalar, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.text import CudaArgs


class OutputSite:
    """``columns``: neighbouring results along the last spatial axis that a thread makes; those from
    ``o<last>`` on.

    ``also``: dtypes that a thread reads runs of channels of, besides the first input's. Raises
    ShapeError where an operand cannot be walked in the format.
    """

    def __init__(
        self,
        args: CudaArgs,
        around: Around,
        variant: Variant,
        columns: int = 1,
        also: tuple[DType, ...] = (),
    ) -> None:
        self.args, self.around, self.columns = args, around, columns
        fmt = variant.output_format(0)
        self.sizes = fmt.storage_shape(around.shape)
        rank = len(around.shape) - 2
        spatial = [f"o{i}" for i in range(rank)]
        self.names = ["n", *spatial, "c"] if fmt == NHWC else ["n", "c", *spatial]
        self.column = rank if fmt == NHWC else rank + 1
        self.target = c_text.contiguous_strides(self.sizes)
        self.strides = {
            v: strides_in(
                args.node.given[o.index].spec, variant.input_format(o.index), around.shape, fmt
            )
            for v, o in around.after.items()
        }
        self.width = self._width(also) if fmt == NHWC else 1
        self.groups: list[Dim] = list(self.sizes)
        self.groups[-1] = dims.floordiv(self.sizes[-1], self.width)
        self.groups[self.column] = dims.ceildiv(self.groups[self.column], columns)
        self.threads: Dim = dims.prod(self.groups)
        given = [v.spec.numel for v in args.node.given]
        self.kind = text.index_type(*given, *(v.spec.numel for v in args.node.outputs))

    def _width(self, also: tuple[DType, ...]) -> int:
        types = (self.around.spec.dtype, *also, *(v.spec.dtype for v in self.args.node.outputs))
        moves: list[tuple[DType, Sequence[Dim]]] = [(t, (1,)) for t in types]
        moves += [(self.around.after[v].dtype, s) for v, s in self.strides.items()]
        return text.vector_width(self.sizes[-1], moves)

    def head(self) -> list[str]:
        """Declare this thread's number ``t`` and its coordinates, or leave."""
        return [*text.flat(self.args, self.kind, self.threads), *self.place()]

    def place(self) -> list[str]:
        """Declare the coordinates of number ``t``."""
        sizes = [self.args.dim(s) for s in self.groups]
        names = list(self.names)
        more = []
        for i, step in ((len(names) - 1, self.width), (self.column, self.columns)):
            if step != 1:
                more.append(f"const {self.kind} {names[i]} = g{i} * {step};")
                names[i] = f"g{i}"
        return [text.decode(self.kind, "t", names, sizes), *more]

    def finish(self, value: str) -> list[str]:
        """What follows the anchor, whose result in lane ``k`` is ``value``, and the stores at the
        coordinates.
        """
        around, v = self.around, self.width
        loads: list[str] = []
        leaves = dict.fromkeys(around.made, "y_")
        for var, o in around.after.items():
            place = (
                f"{self.args.input(o.index)} + ({self.args.offset(self.strides[var], self.names)})"
            )
            more, leaves[var] = text.fetch(
                self.args, f"b{var}", place, o.dtype, self.strides[var][-1], v
            )
            loads += more
        code = scalar.emit(around.results, leaves, around.dtypes, "t")
        arrays = [f"{text.number_type(t)} r{j}[{v}];" for j, t in enumerate(code.dtypes)]
        sets = [f"r{j}[k] = {name};" for j, name in enumerate(code.results)]
        kind = text.number_type(next((around.dtypes[i] for i in around.made), around.spec.dtype))
        out = [
            *loads,
            *arrays,
            *text.lanes(v, f"const {kind} y_ = {value};", *code.statements, *sets),
        ]
        place = self.args.offset(self.target, self.names)
        for j, t in enumerate(code.dtypes):
            out += text.put(self.args, f"r{j}", f"{self.args.output(j)} + ({place})", t, 1, v)
        return out
