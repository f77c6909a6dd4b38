"""Pointwise groups that are functions of one byte, as tables of 256 entries: an activation between
DequantizeLinear and QuantizeLinear, or whatever stands behind what rounds to 8 bits.

The byte is read, or computed in vectors a block at a time from what is read. Tables are made by the
references of the expressions, so that results equal theirs to the bit. With AVX-512 VBMI 64 bytes
are looked up by two permutations, and floats byte by byte; elsewhere bytes by shuffles of sixteen
entries, and floats one after the other. Where constants vary along one axis, as the scales of a
normalisation do, there is a table for each place on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tactix.base import dims
from tactix.base.arrays import Array
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.expr import Scalar, cast, rebuilt, var, variables, walk
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.select.error_bounds import ROUNDED
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, loop
from tactix_codegen.numerics import evaluate
from tactix_codegen.operations import pointwise
from tactix_cpu.tactics.dot_tile import rounds_sums, without_fma
from tactix_cpu.tactics.estimates import CLOCK
from tactix_cpu.tactics.pointwise.nest import LoopOperand, Nest
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic, PointwiseWork, loop_operands

BLOCK = 1024
"""Bytes that are computed before they are looked up: they stay in the first cache."""
SHORTEST = 256
"""Elements of a row from which on tables, which are loaded for each, are worth it."""
BYTES = (DType.UINT8, DType.INT8)
FUNCTION, OPERATION = 16, 1
"""Cycles that a vector takes of a function as exp, and of what hardware does at once. Round."""
BYTE_STEPS, FLOAT_STEPS = 1, 6
"""Cycles for as many elements as a vector of 16 floats has, with VBMI: of their instructions."""
SHUFFLED = 12
"""The same without VBMI, of 16 shuffles and 15 choices for a vector of bytes, and what they wait
for."""
ALONE = 1.5
"""Cycles for an element that is looked up by itself."""
LARGEST = 1 << 18
"""Bytes of all tables of a node: they share the second cache with what is computed."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteTableTactic()]


@dataclass(frozen=True)
class KnownConstants:
    """Variables of a group that are constants: ``single`` have one element, ``varying`` have
    ``count`` along one axis, which is the same of all.
    """

    single: frozenset[int]
    varying: frozenset[int] = frozenset()
    count: int = 1

    def tables(self, result: Scalar) -> int:
        """How many tables the result has."""
        return self.count if variables([result]) & self.varying else 1


@dataclass(frozen=True)
class ByteFunction:
    """``byte``: what makes the byte, of the group's variables. ``results``: of the byte, which is
    the variable behind the group's own, and of ``constants``.
    """

    work: PointwiseWork
    byte: Scalar
    results: tuple[Scalar, ...]
    constants: KnownConstants

    @property
    def node(self) -> Node:
        return self.work.node

    @property
    def dtype(self) -> DType:
        """Of the byte."""
        own = self.byte
        return self.work.group.dtypes[own.index] if own.op == "var" else own.dtype


class ByteTableTactic(Tactic[ByteFunction]):
    """The variants of c_pointwise, for functions of one byte over rows that are not short."""

    key = "tactix.c_byte_table@1"
    implements = ("pointwise",)
    source = "c"
    by_signature = True
    beyond = "it takes groups that fusing makes"

    def match(self, node: Node, device: DeviceProperties) -> ByteFunction | Reject:
        work = CpuPointwiseTactic().match(node, device)
        if isinstance(work, Reject):
            return work
        if not work.vector or any(v.spec.dtype not in (*BYTES, DType.FP32) for v in node.outputs):
            return Reject("tables hold bytes and float32")
        return _function(work) or Reject("it is no function of one byte")

    def variants(self, work: ByteFunction, device: DeviceProperties) -> Sequence[Variant] | Reject:
        plain = CpuPointwiseTactic().variants(work.work, device)
        if isinstance(plain, Reject):
            return plain
        fitting = [v for v in plain if _has_rows(work, v)]
        return fitting or Reject("its rows are short, or have unused lanes")

    def cost(self, work: ByteFunction, variant: Variant, ctx: CompileContext) -> float | None:
        """What c_pointwise is estimated to take, less the work that tables save."""
        plain = CpuPointwiseTactic().cost(work.work, variant, ctx)
        elements = work.node.outputs[0].spec.numel
        if plain is None or not dims.symbols(elements) <= set(ctx.opt):
            return None
        lanes = max(4, ctx.device.lanes)
        saved = _cycles(work.results) - sum(
            _looking_up(v.spec.dtype, ctx.device) for v in work.node.outputs
        )
        seconds = plain - dims.evaluate(elements, ctx.opt) / lanes * saved / CLOCK
        return max(c_text.START, seconds)

    def compile(self, work: ByteFunction, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, node, group = Args(work.node), work.node, work.work.group
        loops = pointwise.loops(node, group, variant)
        operands, results = loop_operands(args, group, loops.space.strides)
        packed = [_packed(work, j, ctx.device) for j in range(len(results))]
        tables = [
            LoopOperand(
                args.constant(f"table{j}", p, DType.UINT8), DType.UINT8, _steps(work, j, operands)
            )
            for j, p in enumerate(packed)
        ]
        operands, first = [*operands, *tables], len(operands)
        sizes = loops.space.sizes
        nest = TableNest(args, sizes, operands, results, (work.byte,), True, tables=first)
        preludes = (*c_text.vector_preludes(), *map(c_text.prelude, ("int8.h", "table.h")))
        made = c_text.kernel(args, nest.text(ctx), ctx, preludes=preludes)
        return without_fma(made) if rounds_sums([work.byte]) else made


@dataclass
class TableNest(Nest):
    """Rows whose byte, the nest's expression, is looked up in tables: the operands from ``tables``
    on, one for each result.
    """

    tables: int = 0

    def _last(self, begin: str, end: str) -> str:
        (byte,) = self.expressions
        if byte.op == "var":
            source = f"{self._pointer('p', byte.index)} + {begin}"
            return "\n".join(self._look_up(begin, source, f"{end} - {begin}"))
        return loop(
            "b",
            begin,
            end,
            f"const int64_t n = {end} - b < {BLOCK} ? {end} - b : {BLOCK};",
            f"{c_text.ctype(byte.dtype)} bytes[{BLOCK}];",
            "int64_t j = 0;",
            block("for (; j + TX_LANES <= n; j += TX_LANES)", *self._bytes("")),
            block("if (j < n)", *self._bytes("n - j")),
            *self._look_up("b", "bytes", "n"),
            step=BLOCK,
        )

    def _bytes(self, count: str) -> list[str]:
        """Store a vector of bytes; the block has room for those past ``count``."""
        used = variables(self.expressions)
        loads = [
            self._load(k, o, f"v{k}", "i", count)
            for k, o in enumerate(self.operands)
            if k in used and not o.splat
        ]
        leaves = [f"s{k}" if o.splat else f"v{k}" for k, o in enumerate(self.operands)]
        statements, [(dtype, name)] = self._values(leaves, "t")
        stored = c_text.store(dtype, "bytes + j", name)
        return ["const int64_t i = b + j;", *loads, *statements, stored]

    def _look_up(self, start: str, source: str, count: str) -> list[str]:
        out = []
        for k, o in enumerate(self.results):
            kind = "bytes" if o.dtype in BYTES else "floats"
            place = f"{self._pointer('q', k)} + {start}"
            table = self._pointer("p", self.tables + k)
            out.append(f"tx_{kind}_by_table({place}, {source}, {count}, {table});")
        return out


def _function(work: PointwiseWork) -> ByteFunction | None:
    """The group as a function of the first byte on its way that all results hang on alone."""
    group, node = work.group, work.node
    given = [node.given[i].spec for i in group.program.leaves]
    constants = _constants(given, group.shape)
    known = constants.single | constants.varying
    byte_var = var(len(given))
    for s in walk(group.program.results):
        byte = _byte(s, group.dtypes, known)
        if byte is None or (byte.op == "var" and given[byte.index].shape != group.shape):
            continue
        inner = byte_var if s.op in ("var", "cast") else cast(byte_var, DType.FP32)
        results = _instead(group.program.results, s, inner)
        if variables(results) <= known | {len(given)} and _small(results, constants):
            return ByteFunction(work, byte, results, constants)
    return None


def _constants(given: Sequence[TensorSpec], shape: Shape) -> KnownConstants:
    """Float32 constants among a group's tensors; of axes along which some vary the first counts."""
    fixed = {k: s for k, s in enumerate(given) if s.is_const and s.dtype is DType.FP32}
    single = frozenset(k for k, s in fixed.items() if s.numel == 1)
    axes = {k: _axis(s.shape, len(shape)) for k, s in fixed.items() if k not in single}
    axis = next((a for a in axes.values() if a is not None), None)
    count = None if axis is None else shape[axis]
    if not isinstance(count, int):
        return KnownConstants(single)
    return KnownConstants(single, frozenset(k for k, a in axes.items() if a == axis), count)


def _axis(shape: Shape, rank: int) -> int | None:
    """The one axis, of so many, that has more than one place."""
    found = [rank - len(shape) + i for i, d in enumerate(shape) if d != 1]
    return found[0] if len(found) == 1 else None


def _small(results: Sequence[Scalar], constants: KnownConstants) -> bool:
    return 256 * 4 * sum(constants.tables(r) for r in results) <= LARGEST


def _steps(work: ByteFunction, index: int, operands: Sequence[LoopOperand]) -> tuple[Dim, ...]:
    """Bytes from one table of a result to the next, along every loop."""
    none = (0,) * len(operands[0].strides)
    moved = sorted(variables([work.results[index]]) & work.constants.varying)
    strides = operands[moved[0]].strides if moved else none
    row = 256 * work.node.outputs[index].spec.dtype.itemsize
    return tuple(d * row for d in strides)


def _instead(results: Sequence[Scalar], part: Scalar, other: Scalar) -> tuple[Scalar, ...]:
    """The results with ``other`` in the place of a part."""
    return rebuilt(results, lambda s: other if s is part else None)


def _byte(s: Scalar, dtypes: Sequence[DType], known: frozenset[int]) -> Scalar | None:
    """The expression as a byte, if it has no more than whole numbers that a byte holds."""
    if s.op == "var":
        return s if dtypes[s.index] in BYTES and s.index not in known else None
    inner = s.args[0] if s.op == "cast" else s
    ends = _range(inner)
    if ends is None:
        return None
    dtype = next((t for t in BYTES if _holds(t, *ends)), None)
    if s.op == "cast":
        return s if s.dtype is dtype else None
    return None if dtype is None else cast(s, dtype)


def _range(s: Scalar) -> tuple[float, float] | None:
    """Between which numbers a whole one is kept, if it is one: ``max(min(whole, high), low)``."""
    if s.op != "max" or s.args[0].op != "min" or s.args[1].op != "const":
        return None
    inner, high = s.args[0].args
    if (
        inner.op == "add"
        and inner.args[1].op == "const"
        and float(inner.args[1].number).is_integer()
    ):
        inner = inner.args[0]
    if inner.op != "round" or high.op != "const":
        return None
    return float(s.args[1].number), float(high.number)


def _holds(dtype: DType, low: float, high: float) -> bool:
    least, most = c_scalar.int_range(dtype)
    return least <= low <= high <= most and low.is_integer() and high.is_integer()


def _has_rows(work: ByteFunction, variant: Variant) -> bool:
    """Whether loops of c_pointwise end in rows of no few elements, without unused lanes, along
    which the byte is not one for all."""
    loops = pointwise.loops(work.node, work.work.group, variant)
    row, used = loops.space.sizes[-1], variables(work.results) & work.constants.varying
    if any(loops.space.strides[k][-1] != 0 for k in used):
        return False
    return loops.channels is None and not (isinstance(row, int) and row < SHORTEST)


def _cycles(results: Sequence[Scalar]) -> float:
    """Of a vector of float32, roughly."""
    own = [n for n in walk(results) if n.args]
    return float(sum(OPERATION if n.op in ROUNDED else FUNCTION for n in own))


def _looking_up(dtype: DType, device: DeviceProperties) -> float:
    """Cycles for as many elements as a vector of float32 has."""
    lanes = max(4, device.lanes)
    if _by_planes(device):
        return BYTE_STEPS if dtype in BYTES else FLOAT_STEPS
    return SHUFFLED if dtype in BYTES and device.features else ALONE * lanes


def _by_planes(device: DeviceProperties) -> bool:
    """Whether ``table.h`` takes floats as four tables of bytes."""
    return device.lanes == 16 and device.has("avx512vbmi")


def _packed(work: ByteFunction, index: int, device: DeviceProperties) -> Packed:
    """The table of a result, by the values of the node's constants."""
    result, leaves, dtype = work.results[index], work.work.group.program.leaves, work.dtype
    planes, constants = _by_planes(device), work.constants

    def table(given: Sequence[Array]) -> Array:
        byte = np.arange(256, dtype=np.uint8).view(dtype.numpy)
        inputs: list[Array] = [np.zeros((), t.numpy) for t in work.work.group.dtypes]
        for k, i in enumerate(leaves):
            if k in constants.single:
                inputs[k] = given[i].reshape(())
            elif k in constants.varying:
                inputs[k] = given[i].reshape(-1, 1)
        shape = (constants.tables(result), 256)
        made = np.broadcast_to(evaluate(result, [*inputs, byte]), shape).copy()
        raw = made.view(np.uint8)
        if planes and made.dtype.itemsize == 4:
            raw = raw.reshape(-1, 256, 4).transpose(0, 2, 1).copy()
        return raw.reshape(-1)

    return Packed(-1, array=table)
