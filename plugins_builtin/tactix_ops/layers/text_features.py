"""Features of tokens and categories, which may be strings or numbers: counts of n-grams, one column
per category.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, required
from tactix_ops.layers.text import TextLayer

MODES = ("TF", "IDF", "TFIDF")


class _Rows:
    """N-grams of one length, as rows of numbers below ``base``. ``names``: what they are called."""

    def __init__(self, rows: Array, names: Array, base: int) -> None:
        n = rows.shape[1]
        self._names: dict[tuple[int, ...], int] | None = None
        if base**n >= 1 << 62:  # numbers of rows would wrap
            self._names = dict(zip(map(tuple, rows.tolist()), names.tolist(), strict=True))
            return
        self._powers = base ** np.arange(n, dtype=np.int64)
        keys = rows @ self._powers
        order = np.argsort(keys)
        self._keys, self._sorted = keys[order], names[order]

    def find(self, windows: Array) -> Array:
        """The names of windows (count, n), -1 for those that are none."""
        if self._names is not None:
            return np.array([self._names.get(tuple(w), -1) for w in windows.tolist()], np.int64)
        wanted = windows @ self._powers
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        hit = (self._keys[place] == wanted) & (windows >= 0).all(axis=1)
        return np.where(hit, self._sorted[place], -1)


class Vocabulary:
    """The tokens of n-grams by number, and the n-grams by length as rows of these."""

    def __init__(self, grams: dict[tuple[Any, ...], int]) -> None:
        self._numbers = {t: i for i, t in enumerate(dict.fromkeys(t for g in grams for t in g))}
        self.rows = {n: self._rows(grams, n) for n in sorted({len(g) for g in grams})}

    def _rows(self, grams: dict[tuple[Any, ...], int], n: int) -> _Rows:
        own = [(g, i) for g, i in grams.items() if len(g) == n]
        rows = np.array([[self._numbers[t] for t in g] for g, _ in own], np.int64)
        return _Rows(rows, np.array([i for _, i in own], np.int64), len(self._numbers))

    def places(self, tokens: Array) -> Array:
        """The number of each token, -1 for others."""
        numbers = self._numbers
        found = [numbers.get(t, -1) for t in tokens.ravel().tolist()]
        return np.array(found, np.int64).reshape(tokens.shape)


@dataclass(frozen=True)
class TfIdfVectorizerAttrs:
    """``mode``: TF counts, IDF tells which occur, TFIDF counts and weighs.

    ``pool_strings`` or ``pool_int64s``: the 1-grams, then the 2-grams, and so on; ``ngram_counts``:
    where those of each length begin. ``ngram_indexes``: the column of each n-gram. ``weights``: of
    the n-grams; none mean ones.
    """

    mode: str = "TF"
    min_gram_length: int = 1
    max_gram_length: int = 1
    max_skip_count: int = 0
    ngram_counts: tuple[int, ...] = ()
    ngram_indexes: tuple[int, ...] = ()
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def columns(self) -> int:
        """Width of the result."""
        return max(self.ngram_indexes) + 1

    def grams(self) -> dict[tuple[Any, ...], int]:
        """Numbers of the n-grams whose length is asked for."""
        pool = self.pool_strings or self.pool_int64s
        ends = (*self.ngram_counts[1:], len(pool))
        found: list[tuple[Any, ...]] = []
        for n, (start, end) in enumerate(zip(self.ngram_counts, ends), 1):
            found += [pool[i : i + n] for i in range(start, end - n + 1, n)]
        lengths = range(self.min_gram_length, self.max_gram_length + 1)
        return {g: i for i, g in enumerate(found) if len(g) in lengths}

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """Made once: runs of a step have the same attributes."""
        return Vocabulary(self.grams())


class TfIdfVectorizer(TextLayer):
    """Tokens (C) or (N, C) to float32 (columns) or (N, columns): how often each n-gram occurs.

    The tokens of an n-gram are 1 to ``max_skip_count + 1`` places apart, all at the same distance.
    """

    key = "tactix.TfIdfVectorizer@1"
    Attrs = TfIdfVectorizerAttrs
    imports = ("onnx:ai.onnx::TfIdfVectorizer",)

    def infer(self, attrs: TfIdfVectorizerAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        self._check(attrs)
        if (x.dtype is DType.STRING) != bool(attrs.pool_strings) or not (
            x.dtype.is_int or attrs.pool_strings
        ):
            raise DTypeError(f"{self.key}: tokens {x.dtype.value} do not fit its pool")
        if x.rank > 2:
            raise ShapeError(f"{self.key} takes tokens (C) or (N, C), not {x}")
        return [TensorSpec(DType.FP32, (*x.shape[:-1], attrs.columns))]

    def _check(self, attrs: TfIdfVectorizerAttrs) -> None:
        """Raises InvalidArgument for lists that do not fit one another."""
        pool = attrs.pool_strings or attrs.pool_int64s
        starts = (*attrs.ngram_counts, len(pool))
        sizes = [end - start for start, end in itertools.pairwise(starts)]
        whole = all(size >= 0 and size % n == 0 for n, size in enumerate(sizes, 1))
        count = sum(size // n for n, size in enumerate(sizes, 1))
        if (
            attrs.mode not in MODES
            or not pool
            or bool(attrs.pool_strings) == bool(attrs.pool_int64s)
        ):
            raise InvalidArgument(
                f"{self.key}: mode {attrs.mode!r}, {len(pool)} tokens",
                do=f"Give one of {MODES}, one pool",
            )
        if (
            not whole
            or starts[0] != 0
            or count != len(attrs.ngram_indexes)
            or min(attrs.ngram_indexes) < 0
        ):
            raise InvalidArgument(
                f"{self.key}: {len(attrs.ngram_indexes)} columns for {count} n-grams, from {starts}"
            )
        if attrs.weights and len(attrs.weights) != count:
            raise InvalidArgument(f"{self.key}: {len(attrs.weights)} weights for {count} n-grams")
        if attrs.mode == "IDF" and len(set(attrs.ngram_indexes)) < count:
            raise InvalidArgument(
                f"{self.key}: n-grams share a column, which mode IDF gives no meaning"
            )

    def reference(self, attrs: TfIdfVectorizerAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        rows = x if x.ndim == 2 else x.reshape(1, -1)
        counts = np.zeros((len(rows), len(attrs.ngram_indexes)), np.float32)
        known = attrs.vocabulary.places(rows)
        for n, grams in attrs.vocabulary.rows.items():
            for distance in range(1, 2 + (attrs.max_skip_count if n > 1 else 0)):
                _count(known, n, distance, grams, counts)
        if attrs.mode == "IDF":
            counts = (counts > 0).astype(np.float32)
        if attrs.mode != "TF" and attrs.weights:
            counts *= np.array(attrs.weights, np.float32)
        out = np.zeros((len(rows), attrs.columns), np.float32)
        np.add.at(out.T, np.array(attrs.ngram_indexes), counts.T)
        return (out.reshape(*x.shape[:-1], attrs.columns),)


def _count(known: Array, n: int, distance: int, grams: _Rows, counts: Array) -> None:
    """Add the n-grams of the rows (N, C) of numbers with that distance between them to
    ``counts``.
    """
    width = known.shape[1] - distance * (n - 1)
    if width <= 0:
        return
    windows = np.stack([known[:, i * distance : i * distance + width] for i in range(n)], axis=-1)
    found = grams.find(windows.reshape(-1, n))
    (hits,) = np.nonzero(found >= 0)
    np.add.at(counts, (hits // width, found[hits]), 1)


@dataclass(frozen=True)
class OneHotCategoriesAttrs:
    """``zeros``: whether an element may be in no category."""

    zeros: bool = True


class OneHotCategories(TextLayer):
    """1 in the column of the element's category, else 0; inputs x, categories (K): float32
    (*x.shape, K).

    Raises InvalidArgument for an element in no category, unless ``zeros``.
    """

    key = "tactix.OneHotCategories@1"
    Attrs = OneHotCategoriesAttrs

    def infer(self, attrs: OneHotCategoriesAttrs, inputs: Specs) -> list[TensorSpec]:
        x, categories = required(self, inputs, 2)
        if x.dtype is not categories.dtype or categories.rank != 1:
            raise DTypeError(f"{self.key}: elements {x}, categories {categories}")
        return [TensorSpec(DType.FP32, (*x.shape, *categories.shape))]

    def reference(self, attrs: OneHotCategoriesAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, categories = inputs
        hit = np.asarray(x[..., None] == categories, bool)
        if not attrs.zeros and not hit.any(axis=-1).all():
            strange = x[~hit.any(axis=-1)].ravel()[0]
            raise InvalidArgument(f"{str(strange)[:80]!r} is in no category", who=self.key)
        return (hit.astype(np.float32),)


LAYERS: tuple[Layer, ...] = (TfIdfVectorizer(), OneHotCategories())
