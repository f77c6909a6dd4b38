"""The loop nest of a pointwise kernel: outer loops shared between threads, the last loop in
vectors.

The last loop's strides are 0 or 1. Where it is short and its length known, its vectors are unrolled
and the operands that the next loop does not move are loaded before that loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.rounding import rounded_part
from tactix_codegen.c.text import Args, block, loop

_UNROLLED = 4
"""Vectors of the last loop that are unrolled at most: rows of up to 64 float32 with AVX-512, as
heads and blocks of channels have. It bounds the text. No measurement of it is on record.
"""
_STEPS_EACH = 4
"""Outer steps for each thread from which on these are shared out: with fewer, one step more or less
would make threads wait for a quarter of their work or more. No measurement of it is on record.
"""
_GRAIN = 64
"""Elements of the last loop that a thread has a multiple of: 256 bytes of float32, so that threads
do not write the same line of the cache.
"""


@dataclass(frozen=True)
class LoopOperand:
    """``base``: C pointer; ``strides`` along every loop."""

    base: str
    dtype: DType
    strides: tuple[Dim, ...]

    @property
    def splat(self) -> bool:
        """Whether the last loop does not move it."""
        return self.strides[-1] == 0


@dataclass
class Nest:
    """``valid``: None, or the number of channels where loop 1 counts blocks whose last one has
    unused lanes.
    """

    args: Args
    sizes: tuple[Dim, ...]
    operands: Sequence[LoopOperand]
    results: Sequence[LoopOperand]
    expressions: tuple[Scalar, ...]
    vector: bool
    valid: Dim | None = None

    def text(self, ctx: CompileContext) -> list[str]:
        """Statements of the kernel's body."""
        lanes = ctx.device.lanes
        if len(self.sizes) == 1:
            return [
                c_text.split(self.args.dim(self.sizes[0]), _GRAIN),
                *self._splats([]),
                self._last("lo", "hi"),
            ]
        if self.valid is None and self._outer_steps(ctx) < _STEPS_EACH * ctx.threads:
            return self._split_last()
        return self._split_outer(lanes)

    def _outer_steps(self, ctx: CompileContext) -> int:
        outer = dims.prod(self.sizes[:-1])
        return dims.evaluate(outer, ctx.opt) if dims.symbols(outer) <= set(ctx.opt) else 1 << 30

    def _split_last(self) -> list[str]:
        """Few outer steps: every thread walks them all over its part of the last loop."""
        names = [f"i{k}" for k in range(len(self.sizes) - 1)]
        inner = "\n".join([*self._pointers(names), *self._splats([]), self._last("lo", "hi")])
        for name, size in zip(names[::-1], self.sizes[-2::-1], strict=True):
            inner = loop(name, "0", self.args.dim(size), inner)
        return [c_text.split(self.args.dim(self.sizes[-1]), _GRAIN), inner]

    def _split_outer(self, lanes: int) -> list[str]:
        """A thread has a run of outer steps; positions are worked out once per run of the last but
        one loop.
        """
        names = [f"i{k}" for k in range(len(self.sizes) - 1)]
        sizes = [self.args.dim(s) for s in self.sizes[:-1]]
        rows, row = sizes[-1], names[-1]
        body = [
            c_text.decode("o", names, sizes),
            f"const int64_t run = {rows} - {row} < hi - o ? {rows} - {row} : hi - o;",
            *self._count(),
            *self._pointers(names),
            *self._rows(lanes),
            "o += run;",
        ]
        return [
            c_text.split(self.args.dim(dims.prod(self.sizes[:-1]))),
            block("for (int64_t o = lo; o < hi;)", *body),
        ]

    def _count(self) -> list[str]:
        if self.valid is None:
            return []
        return [f"const int64_t count = {self.args.dim(self.valid)} - i1 * TX_LANES;"]

    def _pointers(self, names: Sequence[str]) -> list[str]:
        """Declare ``p0``.. and ``q0``.. at the current outer position."""
        out = []
        for mark, group in (("p", self.operands), ("q", self.results)):
            for k, o in enumerate(group):
                const = "const " if mark == "p" else ""
                offset = self.args.offset(o.strides[:-1], names)
                out.append(f"{const}{c_text.ctype(o.dtype)}* {mark}{k} = {o.base} + {offset};")
        return out

    def _rows(self, lanes: int) -> list[str]:
        """The last two loops from the pointers on, ``run`` steps of the outer one."""
        moved = [o.strides[-2] != 0 for o in self.operands]
        length = self.sizes[-1]
        step = [
            self._advance(mark, group)
            for mark, group in (("p", self.operands), ("q", self.results))
        ]
        if self.vector and isinstance(length, int) and 0 < length <= _UNROLLED * lanes:
            before, inside = self._unrolled(length, lanes, moved)
            return [*before, loop("r", "0", "run", *inside, *step)]
        before = self._splats([not m for m in moved])
        return [
            *before,
            loop(
                "r", "0", "run", *self._splats(moved), self._last("0", self.args.dim(length)), *step
            ),
        ]

    def _advance(self, mark: str, group: Sequence[LoopOperand]) -> str:
        moves = [(k, o.strides[-2]) for k, o in enumerate(group) if o.strides[-2] != 0]
        return " ".join(f"{mark}{k} += {self.args.dim(s)};" for k, s in moves)

    def _unrolled(
        self, length: int, lanes: int, moved: Sequence[bool]
    ) -> tuple[list[str], list[str]]:
        before: list[str] = []
        inside: list[str] = []
        for v in range(-(-length // lanes)):
            left = length - v * lanes
            count = "count" if self.valid is not None else "" if left >= lanes else str(left)
            leaves = []
            for k, o in enumerate(self.operands):
                (inside if moved[k] else before).append(
                    self._load(k, o, f"v{v}_{k}", str(v * lanes), count)
                )
                leaves.append(f"v{v}_{k}")
            inside += self._compute(leaves, str(v * lanes), count, f"t{v}_")
        return before, inside

    def _load(self, k: int, o: LoopOperand, name: str, index: str, count: str) -> str:
        pointer = self._pointer("p", k)
        value = (
            c_text.splat(o.dtype, pointer)
            if o.splat
            else c_text.load(o.dtype, f"{pointer} + {index}", count)
        )
        return f"const {c_text.vector_type(o.dtype)} {name} = {value};"

    def _pointer(self, mark: str, k: int) -> str:
        return (
            f"{mark}{k}"
            if len(self.sizes) > 1
            else (self.operands if mark == "p" else self.results)[k].base
        )

    def _splats(self, which: Sequence[bool]) -> list[str]:
        """Declare ``s0``..: operands that the last loop does not move, those marked in ``which``
        (all if empty).
        """
        out = []
        for k, o in enumerate(self.operands):
            if o.splat and (not which or which[k]):
                if self.vector:
                    out.append(self._load(k, o, f"s{k}", "0", ""))
                else:
                    place = c_scalar.element(o.dtype, f"*{self._pointer('p', k)}")
                    out.append(f"const {_element_type(o.dtype)} s{k} = {place};")
        return out

    def _last(self, begin: str, end: str) -> str:
        """The last loop."""
        if not self.vector:
            return loop("i", begin, end, *self._elements())
        full, part = self._vectors(""), self._vectors(f"{end} - i")
        return "\n".join(
            [
                f"int64_t i = {begin};",
                block(f"for (; i + TX_LANES <= {end}; i += TX_LANES)", *full),
                *(
                    []
                    if end.isdigit() and int(end) % 64 == 0
                    else [block(f"if (i < {end})", *part)]
                ),
            ]
        )

    def _vectors(self, count: str) -> list[str]:
        loads = [
            self._load(k, o, f"v{k}", "i", count)
            for k, o in enumerate(self.operands)
            if not o.splat
        ]
        leaves = [f"s{k}" if o.splat else f"v{k}" for k, o in enumerate(self.operands)]
        return [*loads, *self._compute(leaves, "i", count, "t")]

    def _compute(self, leaves: Sequence[str], index: str, count: str, tag: str) -> list[str]:
        """Compute and store; lanes past ``count`` of a block are stored as zero."""
        out, values = self._values(leaves, tag)
        for k, (t, name) in enumerate(values):
            place = f"{self._pointer('q', k)} + {index}"
            if self.valid is not None:
                out.append(c_text.store(t, place, c_text.keep(t, name, "count")))
            else:
                out.append(c_text.store(t, place, name, count))
        return out

    def _values(self, leaves: Sequence[str], tag: str) -> tuple[list[str], list[tuple[DType, str]]]:
        """Statements that compute the expressions of vectors, and dtype and text of each."""
        bytes_ = [rounded_part(e) for e in self.expressions]
        floats = [b.x if b else e for b, e in zip(bytes_, self.expressions, strict=True)]
        code = c_scalar.emit_vector(floats, leaves, [o.dtype for o in self.operands], tag)
        made = zip(bytes_, code.results, code.dtypes, strict=True)
        values = [(b.dtype, b.text(name)) if b else (t, name) for b, name, t in made]
        return list(code.statements), values

    def _elements(self) -> list[str]:
        """The last loop's body for single elements."""
        leaves = []
        for k, o in enumerate(self.operands):
            leaves.append(
                f"s{k}" if o.splat else c_scalar.element(o.dtype, f"{self._pointer('p', k)}[i]")
            )
        code = c_scalar.emit_scalar(self.expressions, leaves, [o.dtype for o in self.operands])
        stores = [
            f"{self._pointer('q', k)}[i] = {c_scalar.stored(t, name)};"
            for k, (name, t) in enumerate(zip(code.results, code.dtypes, strict=True))
        ]
        return [*code.statements, *stores]


def _element_type(dtype: DType) -> str:
    return c_text.ctype(c_scalar.WIDE.get(dtype, dtype))
