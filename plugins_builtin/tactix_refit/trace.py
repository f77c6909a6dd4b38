"""Arrays that write down how they were made of named weights.

A ``Traced`` stands in a network where a weight's array would stand. What rules and tactics do with
it is done on the content at once, and noted as a ``Term``. Whatever lets the content out, as a
number, a truth value or a plain array, is a *look*: what is decided by it holds for this content
alone. The tracer keeps account of looks.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix_refit import ops

Array = Any
NOTHING: frozenset[str] = frozenset()
OWN = __name__.rpartition(".")[0]


class Term:
    """One operation over other terms; equal ones are one object. ``weights``: names of what it is
    made of.

    ``like``: an array of its dtype and shape, which are kept.
    """

    __slots__ = ("args", "digest", "dtype", "op", "params", "shape", "weights")

    def __init__(self, op: str, args: tuple[Term, ...], params: tuple[Any, ...], like: Any) -> None:
        self.op, self.args, self.params = op, args, params
        self.digest: str
        self.dtype, self.shape = DType.of(like.dtype), tuple(like.shape)
        own = frozenset(params) if op == "weight" else NOTHING
        self.weights: frozenset[str] = own.union(*(a.weights for a in args))
        text = repr((op, [a.digest for a in args], params))
        self.digest = hashlib.sha256(text.encode()).hexdigest()


class Tracer:
    """The terms of one build, and who looked at which weights.

    ``looks``: of the scope that is open. ``fixed``: weights that are built in, with the reason.
    ``literals``: arrays that follow from no weight, by digest.
    """

    def __init__(self) -> None:
        self.fixed: dict[str, str] = {}
        self.literals: dict[str, Array] = {}
        self.looks: set[str] | None = None
        self.paused = False
        self._terms: dict[str, Term] = {}
        self._lock = threading.Lock()

    def weight(self, name: str, array: Array) -> Traced:
        """The array of a weight from now on."""
        return Traced(array, self._kept(Term("weight", (), (name,), array)), self)

    def literal(self, array: Array) -> Term:
        """The term of an array that is no weight."""
        array = np.asarray(array)
        content = np.ascontiguousarray(array).tobytes()
        digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode() + content).hexdigest()
        self.literals[digest] = array
        return self._kept(Term("literal", (), (digest,), array))

    def _kept(self, made: Term) -> Term:
        with self._lock:
            return self._terms.setdefault(made.digest, made)

    def apply(self, op: str, args: Sequence[Any], params: Sequence[Any] = ()) -> Any:
        """The operation's result; a Traced, unless tracing is paused."""
        result = ops.run(op, [content(a) for a in args], params)
        if self.paused:
            return result
        dtype = next(a.dtype for a in args if isinstance(a, Traced))
        weak = [
            np.asarray(a, dtype) if type(a) in (int, float) else a for a in args
        ]  # numbers take an array's dtype
        terms = tuple(a.term if isinstance(a, Traced) else self.literal(a) for a in weak)
        return Traced(
            result, self._kept(Term(op, terms, tuple(map(_hashable, params)), result)), self
        )

    def look(self, weights: frozenset[str]) -> None:
        """Somebody sees the content."""
        if self.paused:
            return
        if self.looks is not None:
            self.looks |= weights
            return
        for name in weights:
            self.fixed.setdefault(name, f"its values are built in by {_caller()}")

    @contextlib.contextmanager
    def scope(self) -> Iterator[set[str]]:
        """Collect looks instead of fixing what was looked at."""
        outer, self.looks = self.looks, set()
        try:
            yield self.looks
        finally:
            self.looks = outer

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Content may be looked at: nothing is decided by it."""
        outer, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = outer


def _hashable(p: Any) -> Any:
    return tuple(map(_hashable, p)) if isinstance(p, (list, tuple)) else p


def _caller() -> str:
    """The function of tactix or a pack that looks."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith((OWN, "numpy", "contextlib", "concurrent")):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "the build"


def content(x: Any) -> Any:
    """The plain array of a Traced; anything else as it is."""
    return x.value if isinstance(x, Traced) else x


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array with the term that it is. What is not traced falls back on the content: a look."""

    __slots__ = ("term", "tracer", "value")

    def __init__(self, value: Array, term: Term, tracer: Tracer) -> None:
        self.value, self.term, self.tracer = value, term, tracer

    # -- facts that are the same for any content --------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return self.value.size  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        return self.value.nbytes  # type: ignore[no-any-return]

    @property
    def flags(self) -> Any:
        return self.value.flags

    def __len__(self) -> int:
        return len(self.value)

    # -- traced -----------------------------------------------------------------------------------

    @property
    def T(self) -> Any:
        return self.transpose()

    def reshape(self, *shape: Any) -> Any:
        wanted = self.value.reshape(*shape).shape
        return self.tracer.apply("reshape", [self], [list(wanted)])

    def ravel(self) -> Any:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Any:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = [int(a) % self.ndim for a in given] if given else list(range(self.ndim))[::-1]
        return self.tracer.apply("transpose", [self], [order])

    def astype(self, dtype: Any, **_: Any) -> Any:
        to = DType.of(np.dtype(dtype))
        return self if to.numpy == self.dtype else self.tracer.apply("cast", [self], [to.value])

    def view(self, dtype: Any) -> Any:
        return self.tracer.apply("bits", [self], [DType.of(np.dtype(dtype)).value])

    def copy(self, order: str = "C") -> Any:
        return Traced(self.value.copy(order), self.term, self.tracer)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        axes = None if axis is None else [int(a) for a in np.atleast_1d(axis)]
        return self.tracer.apply("sum", [self], [axes, bool(keepdims)])

    def __getitem__(self, key: Any) -> Any:
        basic = ops.key_to_json(key, self.ndim)
        return self._seen()[key] if basic is None else self.tracer.apply("index", [self], [basic])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and ufunc is np.isfinite:  # refitting takes finite weights only
            return np.isfinite(content(inputs[0]))
        name: str = ufunc.__name__
        if method == "__call__" and not options and ops.UFUNCS.get(name) is ufunc:
            return self.tracer.apply(name, inputs)
        return getattr(ufunc, method)(*(_seen(x) for x in inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = FUNCTIONS.get(function)
        result = NotImplemented if found is None else found(self.tracer, *args, **kwargs)
        return function(*_seen(args), **_seen(kwargs)) if result is NotImplemented else result

    # -- looks ------------------------------------------------------------------------------------

    def _seen(self) -> Array:
        self.tracer.look(self.term.weights)
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._seen(), dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._seen())

    def __float__(self) -> float:
        return float(self._seen())

    def __int__(self) -> int:
        return int(self._seen())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._seen())

    def __reduce__(self) -> Any:
        return np.array, (self._seen(),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._seen(), name)

    def __repr__(self) -> str:
        return f"<traced {self.dtype}{self.shape} of {', '.join(sorted(self.term.weights))}>"


def _seen(x: Any) -> Any:
    """The content, also of arrays in lists, tuples and mappings."""
    if isinstance(x, Traced):
        return x._seen()
    if isinstance(x, (list, tuple)):
        return type(x)(map(_seen, x))
    return {k: _seen(v) for k, v in x.items()} if isinstance(x, Mapping) else x


# -- functions of numpy --------------------------------------------------------------------------


def _padded(tracer: Tracer, x: Any, widths: Any, mode: str = "constant", **options: Any) -> Any:
    value = options.pop("constant_values", 0)
    if mode != "constant" or options or np.size(value) != 1 or np.asarray(value).any():
        return NotImplemented
    pairs = np.broadcast_to(np.asarray(widths), (x.ndim, 2)).tolist()
    return tracer.apply("pad", [x], [pairs]) if any(map(any, pairs)) else x


def _joined(tracer: Tracer, arrays: Any, axis: int = 0) -> Any:
    return tracer.apply("concatenate", list(arrays), [int(axis)])


def _stacked(tracer: Tracer, arrays: Any, axis: int = 0) -> Any:
    at = axis % (np.ndim(arrays[0]) + 1)
    return _joined(tracer, [np.expand_dims(a, at) for a in arrays], at)


def _turned(function: Any) -> Any:
    """A function that only changes the order of axes: which one it does is read from the shape of a
    dummy.
    """

    def turned(tracer: Tracer, x: Any, *args: Any) -> Any:
        dummy = np.broadcast_to(np.int8(0), range(1, x.ndim + 1))
        return x.transpose([n - 1 for n in function(dummy, *args).shape])

    return turned


def _split(tracer: Tracer, x: Any, where: Any, axis: int = 0) -> Any:
    """``np.split`` at indices."""
    if isinstance(where, int):
        return NotImplemented
    ends = [*(int(i) for i in where), x.shape[axis]]
    lead = (slice(None),) * (axis % x.ndim)
    return [x[(*lead, slice(a, b))] for a, b in zip([0, *ends], ends, strict=False)]


def _taken(tracer: Tracer, x: Any, places: Any, axis: int | None = None) -> Any:
    traced = isinstance(x, Traced) and not isinstance(places, Traced) and axis is not None
    return (
        tracer.apply("take", [x, places], [int(axis)])
        if traced and axis is not None
        else NotImplemented
    )


def _where(tracer: Tracer, condition: Any, a: Any, b: Any) -> Any:
    """Only what replaces numbers that are finite: ``where(isfinite(b), a, b)``."""
    if (
        isinstance(b, Traced)
        and not isinstance(condition, Traced)
        and np.array_equal(condition, np.isfinite(b.value))
    ):
        return tracer.apply("finite_or", [b, a])
    return NotImplemented


FUNCTIONS: dict[Any, Any] = {
    np.pad: _padded,
    np.concatenate: _joined,
    np.stack: _stacked,
    np.split: _split,
    np.where: _where,
    np.take: _taken,
    **{f: _turned(f) for f in (np.moveaxis, np.swapaxes, np.transpose)},
    np.reshape: lambda tracer, x, shape: x.reshape(shape),
    np.ravel: lambda tracer, x: x.ravel(),
    np.squeeze: lambda tracer, x, axis=None: x.reshape(np.squeeze(x.value, axis).shape),
    np.expand_dims: lambda tracer, x, axis: x.reshape(np.expand_dims(x.value, axis).shape),
    np.atleast_1d: lambda tracer, x: x.reshape(-1) if not x.ndim else x,
    np.broadcast_to: lambda tracer, x, shape: tracer.apply(
        "broadcast", [x], [[int(n) for n in np.atleast_1d(shape)]]
    ),
    np.clip: lambda tracer, x, low, high: tracer.apply("clip", [x], [float(low), float(high)]),
    np.sum: lambda tracer, x, axis=None, keepdims=False: x.sum(axis, keepdims),
    np.result_type: lambda tracer, *args: np.result_type(*map(content, args)),
    np.shape: lambda tracer, x: x.shape,
    np.ndim: lambda tracer, x: x.ndim,
    np.size: lambda tracer, x: x.size,
}
"""How functions of numpy are traced; those that give NotImplemented, and all others, look."""
