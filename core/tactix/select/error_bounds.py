"""Running error bounds: what right kernels may make of a node's outputs, element by element.

``bounds`` runs the node's layers in float64, rounding only what every kernel must round, and hands
on with each value how far a right kernel's may be from it. ``accuracy.py`` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tactix.base.dims import Env
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts import expr, region
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode
from tactix.select.accuracy import BUDGET, LEAST

ULPS = 16
"""Units of 2^-24, halves of the last place, by which arithmetic and functions in float32 may be
off.
"""
CORNERS = 3
"""Uncertain inputs of a layer up to which all corners are computed; of more each alone."""
EXACT = frozenset({
    "neg", "abs", "floor", "ceil", "round", "trunc", "isnan", "isinf", "not", "bitnot", "min",
    "max", "lt", "le", "eq", "and", "or", "xor", "bitand", "bitor", "bitxor", "shl", "shr",
    "select", "cast", "var", "const",
})  # fmt: skip
"""Operations that give the same bits everywhere; one that is not listed may be off."""
HUGE = 1e300
"""A finite number that stands for any, where even infinities and NaN are uncertain."""
ROUNDED = EXACT | {"add", "sub", "mul", "div", "sqrt", "mod", "fmod"}
"""Those, and what hardware rounds correctly; the others are functions, which may be approximations.
"""


@dataclass(frozen=True)
class Run:
    """A value in the second run: floats in float64, others as they are. ``error``: a bound of
    |right - value|.

    ``error`` is in float64, infinite where anything may be right; None stands for 0 everywhere.
    Beside an infinity or a NaN it is 0, so that a right value is the same, or infinite, where that
    hangs on what is uncertain.
    """

    value: Any
    error: Any = None

    @property
    def is_float(self) -> bool:
        return bool(self.value.dtype.kind == "f")

    def corner(self, sign: int) -> Any:
        """The value at one end of what it may be."""
        import numpy as np

        if self.error is None:
            return self.value
        if self.value.dtype.kind == "b":
            return self.value ^ (self.error > 0) if sign < 0 else self.value
        unbounded = np.isinf(self.error)
        some = bool(unbounded.any())
        bounded = np.where(unbounded, 0.0, self.error) if some else self.error
        moved = self.value + bounded if sign > 0 else self.value - bounded
        if not self.is_float:
            return moved.astype(self.value.dtype)
        if not bounded.all():
            moved = np.where(bounded == 0, self.value, moved)  # minus zero keeps its sign
        if not some:
            return moved
        stays = np.isnan(self.value) | (
            self.value == sign * np.inf
        )  # the end is to be another number
        end = np.where(stays, sign * HUGE, sign * np.inf)
        return np.where(unbounded, end, moved)

    def off(self, more: Any) -> Run:
        """The value with a larger error."""
        if more is None:
            return self
        return Run(self.value, more if self.error is None else self.error + more)

    def computed(self, more: Any) -> Run:
        """The value with what rounding adds to its error: nothing to infinities and NaN, which do
        not round.
        """
        import numpy as np

        if more is None:
            return self
        finite = np.isfinite(self.value)
        if finite.all() and np.shape(more) == self.value.shape:
            return self.off(more)
        return self.off(np.where(finite, more, 0.0))


@dataclass(frozen=True)
class ErrorBound:
    """What (2) says of one output of ``dtype``; ``grid``: the 16-bit type whose numbers it must be,
    if there is one.
    """

    run: Run
    dtype: DType
    grid: DType | None

    def departure(self, got: Any, granted: float, rows: Any) -> float:
        """In budgets of an output with that error."""
        import numpy as np

        if self.grid is not None and not np.array_equal(
            got, got.astype(self.grid.numpy).astype(got.dtype), True
        ):
            return float("inf")
        exact = self.run.value if rows is None else self.run.value[rows]
        error = np.zeros(exact.shape) if self.run.error is None else self.run.error
        error = error if rows is None or self.run.error is None else error[rows]
        wide: Any = np.float64
        if self.dtype not in BUDGET:
            fits = np.abs(got.astype(wide) - exact.astype(wide)) <= error if got.size else np.True_
            return 0.0 if np.all(fits | (got == exact)) else float("inf")
        far = _distance(got.astype(wide), exact)
        bounded = ~np.isposinf(error)
        far, error = far[bounded], error[bounded]
        budget, size = BUDGET[self.dtype] * granted, np.abs(exact[bounded])
        base = budget * max(_largest(size[error <= budget * size]), LEAST)
        return float((far / (base + error)).max(initial=0))


def bounds(node: Node, given: Sequence[Any], env: Env) -> list[ErrorBound]:
    """Of every output of a node. Raises whatever a layer's reference raises."""
    body, specs = node.body, node.specs
    must = region.observed(body, specs)
    known = [Run(_widened(x)) for x in given]
    shown: dict[int, Run] = {}
    for k, n in enumerate(body.nodes):
        first = body.first_id(k)
        made = _passed(
            n,
            [known[i] if i >= 0 else None for i in n.inputs],
            specs[first : first + n.outputs],
            env,
        )
        for i, run in enumerate(made, first):
            known.append(_stored(run, specs[i].dtype, i in must))
            if i in body.results:
                shown[i] = _stored(_overflown(run, specs[i].dtype), specs[i].dtype, i in must)
    grids = _grids(node, specs)
    return [
        ErrorBound(shown.get(i, known[i]), specs[i].dtype, t)
        for i, t in zip(body.results, grids, strict=True)
    ]


def _widened(x: Any) -> Any:
    """Floats in float64."""
    import numpy as np

    return np.asarray(x, np.float64) if DType.of(x.dtype).is_float else np.asarray(x)


def _distance(a: Any, b: Any) -> Any:
    """Elementwise, 0 between equal infinities and between NaNs; infinite beside one that is not in
    both.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        if np.isfinite(apart).all():
            return apart
        same = (a == b) | ((a != a) & (b != b))
        return np.where(same, 0.0, np.nan_to_num(apart, nan=np.inf, posinf=np.inf))


def _passed(
    n: BodyNode, inputs: Sequence[Run | None], specs: Sequence[TensorSpec], env: Env
) -> list[Run]:
    """The results of one layer, before they are stored, from its inputs."""
    attrs = attribute.resolve_fields(n.attrs, env)

    def reference(values: Sequence[Any]) -> list[Any]:
        return [_widened(y) for y in n.layer.reference(attrs, *values)]

    made = reference([None if r is None else r.value for r in inputs])
    if n.layer.is_pointwise:
        scalar = n.layer.scalar(n.attrs, len(n.inputs))
        ops = {s.op for s in expr.walk([scalar])}
        moved = (
            inputs if ops <= EXACT else [None if r is None else _backward(r, specs) for r in inputs]
        )
        errors = _handed_on(reference, moved, made, _pivots(scalar))
        own = [
            None if ops <= EXACT else _of_function(y, s.dtype, ops)
            for y, s in zip(made, specs, strict=True)
        ]
    else:
        errors = _through_anchor(reference, inputs, made)
        own = [_of_anchor(y, s.dtype) for y, s in zip(made, specs, strict=True)]
    return [Run(y).off(e).computed(o) for y, e, o in zip(made, errors, own, strict=True)]


def _unit(specs: Sequence[TensorSpec]) -> float:
    """The relative error of arithmetic: 16-bit floats are computed in float32."""
    return ULPS * 2.0 ** (-53 if any(s.dtype is DType.FP64 for s in specs) else -24)


def _backward(r: Run, specs: Sequence[TensorSpec]) -> Run:
    """An input as arithmetic may see it."""
    import numpy as np

    return r.computed(_unit(specs) * np.abs(r.value)) if r.is_float else r


def _of_function(y: Any, dtype: DType, ops: set[str]) -> Any:
    """What a pointwise layer that is not exact may add to its result."""
    import numpy as np

    if y.dtype.kind != "f":
        return None
    smallest = float(np.finfo(np.float32).tiny) if dtype is not DType.FP64 else 0.0
    own = (ULPS * 2.0 ** (-53 if dtype is DType.FP64 else -24)) * np.abs(y) + smallest
    if dtype.bits < 32 and not ops <= ROUNDED:
        own = own + _half_gap(dtype) * np.abs(y) + BUDGET[DType.FP32] * _largest(y)
    return own


def _of_anchor(y: Any, dtype: DType) -> Any:
    """What the layer of a node that is not pointwise may add to a result."""
    import numpy as np

    if y.dtype.kind != "f":
        return None
    wide = max(BUDGET[DType.FP64], BUDGET[DType.FP32] * (dtype is not DType.FP64))
    share = wide + (2 * _half_gap(dtype) if dtype.bits < 32 else 0.0)
    return np.full(y.shape, share * _largest(y))


def _largest(y: Any) -> float:
    """The largest magnitude of a finite element."""
    import numpy as np

    return float(np.abs(y[np.isfinite(y)]).max(initial=0))


Reference = Callable[[Sequence[Any]], list[Any]]


def _pivots(scalar: expr.Scalar) -> Sequence[float] | None:
    """Numbers that an input may be tested to be equal to, others than the other inputs; None if
    none is so tested.
    """
    nodes = expr.walk([scalar])
    if not any(n.op == "eq" or (n.op == "cast" and n.dtype is DType.BOOL) for n in nodes):
        return None
    return sorted({0.0, *(float(n.number) for n in nodes if n.op == "const")})


def _equal_places(
    inputs: Sequence[Run | None], uncertain: Sequence[int], pivots: Sequence[float] | None
) -> Iterator[list[Any]]:
    """Inputs where an uncertain one is as near as it may be to what it is tested to be equal to."""
    import numpy as np

    for i in uncertain if pivots is not None else ():
        own = inputs[i]
        assert own is not None
        others = [r.value for j, r in enumerate(inputs) if j != i and r is not None]
        for pivot in (*(pivots or ()), *others):
            place = [None if r is None else r.value for r in inputs]
            place[i] = (
                np.clip(pivot, own.corner(-1), own.corner(1)).astype(own.value.dtype)
                if own.is_float
                else own.corner(-1)
            )
            yield place


def _handed_on(
    reference: Reference,
    inputs: Sequence[Run | None],
    made: Sequence[Any],
    pivots: Sequence[float] | None,
) -> list[Any]:
    """What the inputs' errors do to the results of a pointwise layer."""
    import numpy as np

    uncertain = [i for i, r in enumerate(inputs) if r is not None and r.error is not None]
    if not uncertain:
        return [None] * len(made)
    jointly = len(uncertain) <= CORNERS
    errors: list[Any] = [np.zeros(y.shape) for y in made]
    ends = _signs(uncertain, jointly)
    corners = [
        [None if r is None else r.corner(s.get(i, 0)) for i, r in enumerate(inputs)] for s in ends
    ]
    for place in (*corners, *_equal_places(inputs, uncertain, pivots)):
        moved = reference(place)
        apart = [
            _distance(m.astype(np.float64), y.astype(np.float64))
            for m, y in zip(moved, made, strict=True)
        ]
        errors = [
            np.maximum(e, d) if jointly else e + d for e, d in zip(errors, apart, strict=True)
        ]
    return [e if e.any() else None for e in errors]


def _signs(uncertain: Sequence[int], jointly: bool) -> Iterator[Mapping[int, int]]:
    """The corners: the end at which each uncertain input is; all of them, or those of one input
    after the other.
    """
    if jointly:
        yield from (
            dict(zip(uncertain, ends, strict=True))
            for ends in product((1, -1), repeat=len(uncertain))
        )
    else:
        yield from ({i: end} for i in uncertain for end in (1, -1))


def _through_anchor(
    reference: Reference, inputs: Sequence[Run | None], made: Sequence[Any]
) -> list[Any]:
    """What errors before an anchor do to its results: those of random signs, twice the largest
    change anywhere.

    An infinity or NaN that neither end changes is certain.
    """
    import numpy as np

    if all(r is None or r.error is None for r in inputs):
        return [None] * len(made)
    rng = np.random.default_rng(0)
    flips = [np.zeros(()) if r is None else rng.integers(0, 2, r.value.shape) for r in inputs]
    apart = [np.zeros(y.shape) for y in made]
    for end in (1, -1):
        pairs = zip(inputs, flips, strict=True)
        moved = reference(
            [None if r is None else np.where(f, r.corner(end), r.corner(-end)) for r, f in pairs]
        )
        steps = [
            _distance(m.astype(np.float64), y.astype(np.float64))
            for m, y in zip(moved, made, strict=True)
        ]
        apart = [np.maximum(a, d) for a, d in zip(apart, steps, strict=True)]
    worst = [2 * float(a.max(initial=0)) for a in apart]
    certain = [~np.isfinite(y) & (a == 0) for y, a in zip(made, apart, strict=True)]
    return [np.where(c, 0.0, w) if w else None for c, w in zip(certain, worst, strict=True)]


# -- 16 bits -------------------------------------------------------------------------------------


def _half_gap(dtype: DType) -> float:
    """Half the gap above 1: the largest relative error of a rounding."""
    return float(_finfo(dtype).eps) / 2


def _finfo(dtype: DType) -> Any:
    """numpy's facts of a float dtype."""
    import ml_dtypes

    find: Any = ml_dtypes.finfo
    return find(dtype.numpy)


def _stored(run: Run, dtype: DType, must: bool) -> Run:
    """A result of that dtype: floats of fewer bits than 32 are rounded if they must be, else they
    may be.

    So are those of 32 where they would overflow.
    """
    import numpy as np

    if not dtype.is_float or dtype is DType.FP64:
        return run
    if must and dtype.bits < 32:
        kept = _rounded(run.value, dtype)
        ends = (
            [_distance(_rounded(run.corner(end), dtype), kept) for end in (1, -1)]
            if run.error is not None
            else []
        )
        error = np.maximum(*ends) if ends else None
        return Run(kept, error if error is not None and error.any() else None)
    size = _size(run)
    if _fits(size, dtype):
        return run.computed(_rounding(size, dtype)) if dtype.bits < 32 else run
    overflows = ~np.isfinite(_rounded(size, dtype))
    if dtype.bits < 32:
        return run.computed(np.where(overflows, np.inf, _rounding(size, dtype)))
    return run.computed(np.where(overflows, np.inf, 0.0)) if overflows.any() else run


def _size(run: Run) -> Any:
    """The largest magnitude that each element may have."""
    import numpy as np

    return np.abs(run.value) + (0.0 if run.error is None else run.error)


def _fits(size: Any, dtype: DType) -> bool:
    """Whether numbers of up to these sizes surely stay finite in a dtype: the usual case, which is
    told in one look.
    """
    return bool(size.max(initial=0.0) <= float(_finfo(dtype).max))


def _rounding(size: Any, dtype: DType) -> Any:
    """What rounding to a dtype of fewer bits than 32 may change of values up to that size."""
    kinds = _finfo(dtype)
    return _half_gap(dtype) * size + float(
        kinds.tiny if dtype is DType.BF16 else kinds.smallest_subnormal
    )


def _overflown(run: Run, dtype: DType) -> Run:
    """An output of that dtype: infinite where all that it may be is too large for it."""
    import numpy as np

    if not dtype.is_float or dtype is DType.FP64 or _fits(_size(run), dtype):
        return run
    low, high = (_rounded(run.corner(end), dtype) for end in (-1, 1))
    over = np.isinf(low) & (low == high)
    error = None if run.error is None else np.where(over, 0.0, run.error)
    return Run(np.where(over, low, run.value), error)


def _rounded(x: Any, dtype: DType) -> Any:
    import numpy as np

    return x.astype(np.float32).astype(dtype.numpy).astype(np.float64)


def _grids(node: Node, specs: Sequence[TensorSpec]) -> list[DType | None]:
    """For every output that is wider than the values it shows, their 16-bit type."""
    p = region.program(node.body, specs)
    stored = [specs[i].dtype if i < node.body.arity else DType.FP32 for i in p.leaves]
    narrow = sorted(
        {s.dtype for s in specs if s.dtype.is_float and s.dtype.bits == 16}, key=lambda t: t.value
    )
    out: list[DType | None] = []
    for i, r in zip(node.body.results, p.results, strict=True):
        wider = specs[i].dtype in (DType.FP32, DType.FP64)
        out.append(next((t for t in narrow if wider and expr.on_grid(r, t, stored)), None))
    return out
