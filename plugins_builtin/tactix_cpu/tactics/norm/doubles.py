"""Softmax, LogSoftmax and normalisations of float64 in C, one number at a time, with a pointwise
epilogue.

A vector of doubles has half as many lanes, and the C library's exponentials are called for each, so
that the kernels of vectors would gain little; networks of float64 are rare.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue, stored_element
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import Args, loop
from tactix_codegen.operations import rows

_BANDWIDTH = 1e9
"""Bytes per second that estimates take these to move: a call of the C library for each number, or
two walks without vectors. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [RowsOfDoublesTactic()]


@dataclass(frozen=True)
class RowsOfDoubles:
    """``space``: loops over rows and along them, with strides of the input, the outputs, the
    ``parameters`` (given inputs that hold scale and bias) and the epilogue's operands.
    """

    node: Node
    anchor: BodyNode
    space: Space
    epi: Epilogue
    parameters: tuple[int, ...]


class RowsOfDoublesTactic(Tactic[RowsOfDoubles]):
    """A row per thread step, linear."""

    key = "tactix.c_rows_of_doubles@1"
    implements = (*rows.SOFTMAXES, *rows.NORMALIZATIONS)
    source = "c"
    by_signature = True
    beyond = "examples are of float32, it takes float64"

    def match(self, node: Node, device: DeviceProperties) -> RowsOfDoubles | Reject:
        if node.given[0].spec.dtype is not DType.FP64:
            return Reject("this kernel takes float64, others what is narrower")
        found, anchor = epilogue(node, vector=False), node.anchor
        if isinstance(found, Reject):
            return found
        assert anchor is not None
        parameters = tuple(i for i in anchor.inputs[1:] if i >= 0)
        if any(node.given[i].spec.dtype is not DType.FP64 for i in parameters):
            return Reject("a parameter is not of float64")
        shape = node.given[0].spec.shape
        own = c_text.contiguous_strides(shape)
        more = [rows.parameter_strides(anchor, node.given[i].spec.shape, shape) for i in parameters]
        operands = [o.strides for _, o in sorted(found.operands.items())]
        loops = rows.space(anchor, shape, [own, own, *more, *operands])
        return RowsOfDoubles(node, anchor, loops, found, parameters)

    def cost(self, work: RowsOfDoubles, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx, _BANDWIDTH)

    def compile(self, work: RowsOfDoubles, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Kernel(work)
        return c_text.kernel(writer.args, writer.body(), ctx)


class _Kernel:
    """Writes one kernel; ``i0``.. are places in all loops."""

    def __init__(self, work: RowsOfDoubles) -> None:
        self.work, self.space, self.args = work, work.space, Args(work.node)
        self.outer = [i for i, t in enumerate(self.space.tags) if t == rows.OUTER]
        self.inner = [i for i, t in enumerate(self.space.tags) if t != rows.OUTER]
        self.names = [f"i{i}" for i in range(len(self.space.sizes))]

    def body(self) -> list[str]:
        name, args = self.work.anchor.layer.name, self.args
        made = self._softmax(name) if name.endswith("Softmax") else self._norm(name)
        if not self.outer:
            return [c_text.block("if (tid == 0)", *made)]
        sizes = [args.dim(self.space.sizes[i]) for i in self.outer]
        total = args.dim(dims.prod(self.space.sizes[i] for i in self.outer))
        decoded = c_text.decode("o", [f"i{i}" for i in self.outer], sizes)
        return [c_text.split(total), loop("o", "lo", "hi", decoded, *made)]

    def _at(self, operand: int) -> str:
        return self.args.offset(self.space.strides[operand], self.names)

    def _along(self, *body: str) -> str:
        """The row, element by element."""
        text = "\n".join([f"const double x = {self.args.input(0)}[{self._at(0)}];", *body])
        for i in reversed(self.inner):
            text = loop(f"i{i}", "0", self.args.dim(self.space.sizes[i]), text)
        return text

    def _softmax(self, name: str) -> list[str]:
        """What is no number in a row makes the sum none, and with it the whole row."""
        log = name == "LogSoftmax"
        value = "x - top - log(sum)" if log else "exp(x - top) / sum"
        return [
            "double top = -__builtin_inf(), sum = 0;",
            self._along("top = x > top ? x : top;"),
            self._along("sum += exp(x - top);"),
            self._along(f"const double y = {value};", *self._finish()),
        ]

    def _norm(self, name: str) -> list[str]:
        """Mean and variance in two walks, so that nothing cancels."""
        count = self.args.dim(dims.prod(self.space.sizes[i] for i in self.inner))
        centred = name != "RMSNormalization"
        x = "(x - mean)" if centred else "x"
        mean = ["double mean = 0;", self._along("mean += x;"), f"mean /= {count};"]
        factors = [
            f"{self.args.input(i)}[{self._at(2 + k)}]" for k, i in enumerate(self.work.parameters)
        ]
        value = " + ".join([" * ".join([x, "scale", *factors[:1]]), *factors[1:]])
        epsilon = float_literal(self.work.anchor.attrs.epsilon, double=True)
        return [
            *(mean if centred else ()),
            "double squares = 0;",
            self._along(f"squares += {x} * {x};"),
            f"const double scale = 1 / sqrt(squares / {count} + {epsilon});",
            self._along(f"const double y = {value};", *self._finish()),
        ]

    def _finish(self) -> list[str]:
        """``y`` through the epilogue into the outputs."""
        epi, first = self.work.epi, 2 + len(self.work.parameters)
        position = {epi.operands[v].index: first + k for k, v in enumerate(sorted(epi.operands))}

        def where(o: EpilogueOperand) -> str:
            return self._at(position[o.index])

        return stored_element(self.args, epi, "y", where, self._at(1))
