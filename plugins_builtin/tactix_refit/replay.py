"""Compute constants again from weights: recipes over arrays, several constants at a time.

A constant is written where it is wanted: what gives it, and all that only turns its result around,
goes straight into the destination.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tactix.base.errors import PlanFormatError
from tactix.plan.schema import Plan
from tactix_refit import ops
from tactix_refit.moves import Move, composed
from tactix_refit.parts import LARGE, PART, Rows, order_of, spans
from tactix_refit.recipe import Recipes, RecipeStep, computed, literal

Array = Any
Job = Callable[[], None]
MOST = 6
"""Threads; more of them wait for each other in the interpreter (16 were slower on 16 cores)."""
ROW = 128
"""Bytes of a row from which it is copied as one."""
PRODUCT = 200_000
"""Multiplications of a product at a time: its columns stay in a cache, and no library shares them
between threads.
"""


class Replay:
    """Recipes of one plan; literals are read once, and what turns a result around is worked out
    once.

    Raises PlanFormatError.
    """

    def __init__(self, plan: Plan, recipes: Recipes) -> None:
        self.recipes, self.terms = recipes, recipes.terms
        self.literals = {
            k: literal(plan, t) for k, t in enumerate(recipes.terms) if t.op == "literal"
        }
        try:
            self._ends = {k: self._end(k) for k in set(recipes.constants.values())}
        except (ValueError, TypeError, LookupError, ArithmeticError) as e:
            raise PlanFormatError(
                "a recipe cannot be followed", who="refit.terms", why=str(e)[:200]
            ) from e

    def _end(self, place: int) -> tuple[int, Move | None]:
        """The term before the moves that a constant ends with, and these as one."""
        chain: list[RecipeStep] = []
        best, inner = (place, composed(self.terms[place].shape, ())), place
        while self.terms[inner].op in ("reshape", "transpose", "pad"):
            chain.insert(0, self.terms[inner])
            inner = self.terms[inner].args[0]
            move = composed(self.terms[inner].shape, [(t.op, t.params) for t in chain])
            best = best if move is None else (inner, move)
        return best

    def run(
        self,
        blobs: Iterable[str],
        weights: Mapping[str, Array],
        out: Mapping[str, Array],
        threads: int,
        made: Callable[[str], None] = lambda blob: None,
    ) -> None:
        """Fill ``out``, contiguous bytes by blob, for these blobs; ``made`` is called with each
        that is filled.

        Raises PlanFormatError for a wrong recipe.
        """
        wanted, threads = sorted(blobs, key=lambda b: -out[b].nbytes), min(threads, MOST)
        work, places = _Work(self, weights, wanted, threads > 1), self.recipes.constants
        queue = _Queue(wanted, lambda b: work.jobs(places[b], out[b], *self._ends[places[b]]))

        def some() -> None:
            while found := queue.take():
                blob, job = found
                with following(places[blob]):
                    job()
                if queue.done(blob):
                    made(blob)

        with ThreadPoolExecutor(
            max(1, threads - 1)
        ) as pool:  # which starts none before it is asked
            others = [pool.submit(some) for _ in range(threads - 1)]
            some()
            for done in others:
                done.result()


class _Queue:
    """Constants to be made. ``split``: the jobs of one, which is asked for by the thread that gets
    to it first.
    """

    def __init__(self, blobs: Iterable[str], split: Callable[[str], list[Job]]) -> None:
        self._split, self._lock = split, threading.Lock()
        self._jobs: deque[tuple[str, Job | None]] = deque((b, None) for b in blobs)
        self._left: dict[str, int] = {}

    def take(self) -> tuple[str, Job] | None:
        """The next job, and which constant it is a part of."""
        with self._lock:
            if not self._jobs:
                return None
            blob, job = self._jobs.popleft()
        if job is None:
            job, *others = self._split(blob)
            with self._lock:
                self._left[blob] = 1 + len(others)
                self._jobs.extendleft((blob, j) for j in others)
        return blob, job

    def done(self, blob: str) -> bool:
        """A job is; whether it was the constant's last."""
        with self._lock:
            self._left[blob] -= 1
            return not self._left[blob]


@contextmanager
def following(place: int) -> Iterator[None]:
    """Raises PlanFormatError for what goes wrong inside."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as e:
        raise PlanFormatError(
            "a recipe cannot be followed", who=f"refit.terms[{place}]", why=str(e)[:200]
        ) from e


class _Work:
    """One refit. Terms that several others need are computed once. ``parted``: whether large
    constants are.
    """

    def __init__(
        self, replay: Replay, weights: Mapping[str, Array], wanted: Iterable[str], parted: bool
    ) -> None:
        self._parted = parted
        self.terms, self.weights, self.known = replay.terms, weights, dict(replay.literals)
        users: dict[int, int] = {}
        for k in replay.recipes.order(wanted):
            for a in self.terms[k].args:
                users[a] = users.get(a, 0) + 1
        plain = {"weight", "literal", *ops.VIEWS}
        self._shared = {
            k: threading.Lock() for k, n in users.items() if n > 1 and self.terms[k].op not in plain
        }

    def jobs(self, place: int, out: Array, inner: int, move: Move | None) -> list[Job]:
        """What computes one term into contiguous memory of its size. Raises PlanFormatError."""
        t, source = self.terms[place], self.terms[inner]
        with following(place):
            target = out.view(t.dtype.numpy).reshape(t.shape)
            if move is None:
                return [lambda: np.copyto(target, self._value(place), casting="no")]
            straight = target.reshape(move.target_shape).transpose(
                np.argsort(move.axes)
            )  # axes as the result has them
            known = inner in self._shared or inner in self.known or move.padding.widths
            whole = known or not self._parted or math.prod(source.shape) < LARGE
            order = [] if whole else order_of(self.terms, inner)
            if order:
                rows = Rows(self.terms, order, self._value)
                return [partial(_part, rows, move, straight, *s) for s in spans(source, move, PART)]
            return [partial(self._moved, inner, move, straight)]

    def _moved(self, inner: int, move: Move, straight: Array) -> None:
        """A term's result into a target whose axes are in the order that the result has."""
        t = self.terms[inner]
        if not (inner in self._shared or inner in self.known or move.padding.widths):
            if t.op in ops.UFUNCS and t.op != "matmul" and self._computed(t, move, straight):
                return
            if (
                t.op == "cast"
                and straight.flags.c_contiguous
                and self._product(t, straight.reshape(t.shape))
            ):
                return
        source = np.ascontiguousarray(self._value(inner))
        if move.padding.widths:
            self._padded(source.reshape(move.padding.shape), move, straight)
        else:
            _copy(straight, source.reshape(move.source_shape))

    @staticmethod
    def _padded(source: Array, move: Move, straight: Array) -> None:
        """Zeros after the first axis, which the target may have in blocks, need no array of their
        own.
        """
        (before, after), *others = move.padding.widths
        n, block = len(source), move.source_shape[1] if len(move.source_shape) > 1 else 0
        if before or any(map(any, others)) or move.source_shape[0] * block != n + after:
            padded = ops.run("pad", [source], [move.padding.widths])
            _copy(straight, padded.reshape(move.source_shape))
            return
        whole = n // block
        np.copyto(
            straight[:whole],
            source[: whole * block].reshape(whole, *straight.shape[1:]),
            casting="no",
        )
        straight[whole:] = 0
        if rest := n - whole * block:
            np.copyto(
                straight[whole, :rest],
                source[-rest:].reshape(rest, *straight.shape[2:]),
                casting="no",
            )

    def _computed(self, t: RecipeStep, move: Move, straight: Array) -> bool:
        """An operation on single elements, if its operands can be seen as the target is."""
        args = [np.broadcast_to(self._value(a), t.shape) for a in t.args]
        seen = [a.reshape(move.source_shape) for a in args]
        if not all(np.may_share_memory(a, b) for a, b in zip(args, seen, strict=True)):
            return False
        with np.errstate(all="ignore"):
            ops.UFUNCS[t.op](*seen, out=straight, casting="no")
        return True

    def _product(self, t: RecipeStep, target: Array) -> bool:
        """The rounded product of a small matrix with another that is made wider for it: some
        columns at a time.
        """
        product = self.terms[t.args[0]]
        if product.op != "matmul" or t.args[0] in self._shared or target.ndim != 2:
            return False
        left, wide = product.args
        if (
            self.terms[wide].op != "cast"
            or wide in self._shared
            or self.terms[left].nbytes > PRODUCT // 8
        ):
            return False
        a, b = self._value(left), self._value(self.terms[wide].args[0])
        step = max(1, PRODUCT // a.size)
        with np.errstate(all="ignore"):
            for k in range(0, b.shape[1], step):
                target[:, k : k + step] = a @ b[:, k : k + step].astype(product.dtype.numpy)
        return True

    def _value(self, place: int) -> Array:
        if place in self.known:
            return self.known[place]
        t = self.terms[place]
        if t.op == "weight":
            return self.weights[t.params[0]]
        if place not in self._shared:
            return self._made(t)
        with self._shared[place]:
            if place not in self.known:
                self.known[place] = self._made(t)
            return self.known[place]

    def _made(self, t: RecipeStep) -> Array:
        return computed(t, [self._value(a) for a in t.args], t.shape)


def _part(rows: Rows, move: Move, straight: Array, first: int, stop: int, place: slice) -> None:
    """A range of a term's rows into its place."""
    part = np.ascontiguousarray(rows.part(first, stop))
    _copy(straight[place], part.reshape(-1, *move.source_shape[1:]))


def _copy(target: Array, source: Array) -> None:
    """The content of a contiguous array; rows that stay whole are copied as one element each, which
    is quicker.
    """
    row = source.dtype.itemsize * source.shape[-1] if source.ndim else 0
    if row >= ROW and target.strides[-1] == target.itemsize and target.dtype == source.dtype:
        target, source = (x.view(np.dtype((np.void, row))) for x in (target, source))
    np.copyto(target, source, casting="no")
