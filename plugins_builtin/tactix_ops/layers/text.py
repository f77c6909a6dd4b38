"""Layers on strings, whose arrays hold Python's str: constants, comparison, joining, cutting,
tokens, numbers as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, broadcast_shapes, dmax, sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix.contracts.layer import random_array as random_numbers
from tactix_ops.layers.common import Array, Specs, required
from tactix_ops.layers.text_pattern import compiled

WORDS = ("", "a", "B", "7", "a b", " b,7 ", "Été", "B,,a")


def strings_only(layer: Layer, inputs: Specs, count: int) -> list[TensorSpec]:
    """The first ``count`` inputs, which must be strings. Raises InvalidArgument, DTypeError."""
    given = required(layer, inputs, count)
    for s in given:
        if s.dtype is not DType.STRING:
            raise DTypeError(f"{layer.key} takes strings, not {s.dtype.value}")
    return given


def texts(values: Any, shape: tuple[int, ...]) -> Array:
    """Strings in row-major order as an array of objects."""
    out = np.empty(shape, object)
    out[...] = np.array(list(values), object).reshape(shape)
    return out


def sampled(spec: TensorSpec, rng: Any) -> Array:
    """Random short strings, or numbers."""
    if spec.dtype is not DType.STRING:
        return random_numbers(spec, rng)
    return texts(rng.choice(np.array(WORDS, object), math.prod(spec.at({}))), spec.at({}))


class TextLayer(Layer):
    """A layer that strings may go into."""

    def sample(self, attrs: Any, inputs: Specs, rng: Any) -> list[Any]:
        return [None if s is None else sampled(s, rng) for s in inputs]


@dataclass(frozen=True)
class TextAttrs:
    """``values`` in row-major order, of a tensor of ``shape``."""

    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()


class Text(Layer):
    """Strings that are known; no inputs."""

    key = "tactix.Text@1"
    Attrs = TextAttrs

    def infer(self, attrs: TextAttrs, inputs: Specs) -> list[TensorSpec]:
        if len(attrs.values) != math.prod(attrs.shape):
            raise ShapeError(f"{self.key}: {len(attrs.values)} values for shape {attrs.shape}")
        return [TensorSpec(DType.STRING, attrs.shape)]

    def reference(self, attrs: TextAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (texts(attrs.values, attrs.shape),)


class TextEqual(TextLayer):
    """Whether two strings are the same: booleans, broadcast."""

    key = "tactix.TextEqual@1"
    commutative = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = strings_only(self, inputs, 2)
        return [TensorSpec(DType.BOOL, broadcast_shapes(a.shape, b.shape))]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.asarray(inputs[0] == inputs[1], bool),)


class StringConcat(TextLayer):
    """The second string behind the first, broadcast."""

    key = "tactix.StringConcat@1"
    imports = ("onnx:ai.onnx::StringConcat",)

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        a, b = strings_only(self, inputs, 2)
        return [TensorSpec(DType.STRING, broadcast_shapes(a.shape, b.shape))]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (np.asarray(inputs[0] + inputs[1], object),)


@dataclass(frozen=True)
class StringSplitAttrs:
    """``delimiter``: empty means stretches of white space. ``maxsplit``: most cuts, from the left;
    below 0: all.

    ``symbol``: what the largest number of parts is called.
    """

    symbol: str = "parts"
    delimiter: str = ""
    maxsplit: int = -1


class StringSplit(TextLayer):
    """Parts of each string along a new last axis, filled up with empty ones; and how many they are
    (int64).
    """

    key = "tactix.StringSplit@1"
    Attrs = StringSplitAttrs

    def infer(self, attrs: StringSplitAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = strings_only(self, inputs, 1)
        return [
            TensorSpec(DType.STRING, (*x.shape, sym(attrs.symbol))),
            TensorSpec(DType.INT64, x.shape),
        ]

    def reference(self, attrs: StringSplitAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        parts = [s.split(attrs.delimiter or None, attrs.maxsplit) for s in x.ravel()]
        lengths = np.array([len(p) for p in parts], np.int64)
        widest = int(lengths.max(initial=0))
        padded = [s for p in parts for s in (*p, *("",) * (widest - len(p)))]
        return texts(padded, (*x.shape, widest)), lengths.reshape(x.shape)


@dataclass(frozen=True)
class RegexFullMatchAttrs:
    """``pattern``: in RE2's syntax."""

    pattern: str = ""


class RegexFullMatch(TextLayer):
    """Whether the whole string matches a pattern: booleans."""

    key = "tactix.RegexFullMatch@1"
    Attrs = RegexFullMatchAttrs
    imports = ("onnx:ai.onnx::RegexFullMatch",)

    def infer(self, attrs: RegexFullMatchAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = strings_only(self, inputs, 1)
        compiled(attrs.pattern)
        return [TensorSpec(DType.BOOL, x.shape)]

    def reference(self, attrs: RegexFullMatchAttrs, *inputs: Array) -> tuple[Array, ...]:
        matches = compiled(attrs.pattern).matches
        return (np.array([matches(s) for s in inputs[0].ravel()], bool).reshape(inputs[0].shape),)


@dataclass(frozen=True)
class TokenizerAttrs:
    """``tokens``: a pattern of tokens, in RE2's syntax. Without one ``separators`` are patterns of
    what lies between tokens, one after the other; one empty separator: each character is a token.

    ``mincharnum``: characters that a token has at least. ``mark``: each row begins with ``\\x02``,
    and ``\\x03`` stands behind its last token. ``pad_value``: what fills rows up. ``symbol``: what
    the length of the longest row is called.
    """

    symbol: str = "tokens"
    tokens: str = ""
    separators: tuple[str, ...] = ()
    mincharnum: int = 1
    mark: bool = False
    pad_value: str = ""


class Tokenizer(TextLayer):
    """Tokens of each string of (C) or (N, C) along a new last axis, filled up. Of matches at one
    place the longest counts.

    Source: ONNX Runtime's operator com.microsoft::Tokenizer.
    """

    key = "tactix.Tokenizer@1"
    Attrs = TokenizerAttrs

    def infer(self, attrs: TokenizerAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = strings_only(self, inputs, 1)
        if x.rank not in (1, 2):
            raise ShapeError(f"{self.key} takes strings (C) or (N, C), not {x}")
        if bool(attrs.tokens) == bool(attrs.separators):
            raise InvalidArgument(
                f"{self.key} needs a pattern of tokens or separators",
                why="both are given" if attrs.tokens else "none is given",
            )
        for pattern in (attrs.tokens, *attrs.separators):
            compiled(pattern)
        return [TensorSpec(DType.STRING, (*x.shape, sym(attrs.symbol)))]

    def reference(self, attrs: TokenizerAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        rows = [[t for t in _tokens(attrs, s) if len(t) >= attrs.mincharnum] for s in x.ravel()]
        if not any(rows):
            rows = [[] for _ in rows]
        elif attrs.mark:
            rows = [["\x02", *row, "\x03"] for row in rows]
        widest = max(map(len, rows), default=0)
        padded = [t for r in rows for t in (*r, *(attrs.pad_value,) * (widest - len(r)))]
        return (texts(padded, (*x.shape, widest)),)


def _tokens(attrs: TokenizerAttrs, s: str) -> list[str]:
    if attrs.tokens:
        return [s[begin:end] for begin, end in _matches(attrs.tokens, s)]
    if attrs.separators == ("",):
        return list(s)
    parts = [s]
    for pattern in attrs.separators:
        parts = [p for part in parts for p in _between(pattern, part)]
    return parts


def _between(pattern: str, s: str) -> list[str]:
    """What lies between matches. An empty one takes the character behind it."""
    parts, place = [], 0
    for begin, end in _matches(pattern, s):
        parts.append(s[place:begin])
        place = max(end, begin + 1)
    return [*parts, s[place:]]


def _matches(pattern: str, s: str) -> Iterator[tuple[int, int]]:
    """Places of matches from the left, each behind the one before, and a character behind an empty
    one.
    """
    find, place = compiled(pattern).find, 0
    while place <= len(s) and (found := find(s, place)) is not None:
        yield found
        place = max(found[1], found[0] + 1)


CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@dataclass(frozen=True)
class StringNormalizerAttrs:
    """``case_change_action``: NONE, LOWER or UPPER. ``stopwords``: strings to leave out.

    ``is_case_sensitive``: whether stop words must agree in case. ``symbol``: what the number of
    strings left is called.
    """

    symbol: str = "count"
    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    stopwords: tuple[str, ...] = ()


class StringNormalizer(TextLayer):
    """The strings of (C) or (1, C) that are no stop words, their case changed; one empty string if
    none is left.
    """

    key = "tactix.StringNormalizer@1"
    Attrs = StringNormalizerAttrs

    def infer(self, attrs: StringNormalizerAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = strings_only(self, inputs, 1)
        if attrs.case_change_action not in CASES:
            raise InvalidArgument(
                f"{self.key} knows no case {attrs.case_change_action!r}", do=f"It has {list(CASES)}"
            )
        if x.rank not in (1, 2) or (
            x.rank == 2 and isinstance(x.shape[0], int) and x.shape[0] != 1
        ):
            raise ShapeError(f"{self.key} takes strings (C) or (1, C), not {x}")
        count: Dim = sym(attrs.symbol) if attrs.stopwords else dmax(x.shape[-1], 1)
        return [TensorSpec(DType.STRING, (count,) if x.rank == 1 else (1, count))]

    def reference(self, attrs: StringNormalizerAttrs, *inputs: Array) -> tuple[Array, ...]:
        x = inputs[0]
        if x.ndim == 2 and len(x) != 1:
            raise ShapeError(f"{self.key} takes strings (C) or (1, C), not {x.shape}")
        same = CASES["NONE" if attrs.is_case_sensitive else "LOWER"]
        gone = {same(w) for w in attrs.stopwords}
        change = CASES[attrs.case_change_action]
        left = [change(s) for s in x.ravel() if same(s) not in gone] or [""]
        return (texts(left, (len(left),) if x.ndim == 1 else (1, len(left))),)


class FormatText(TextLayer):
    """Numbers as text, the shortest that gives the number back: ``0.1``, ``1e+20``, ``nan``,
    ``-inf``, ``True``.
    """

    key = "tactix.FormatText@1"

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        return [TensorSpec(DType.STRING, required(self, inputs, 1)[0].shape)]

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        return (texts([str(v) for v in inputs[0].ravel()], inputs[0].shape),)


@dataclass(frozen=True)
class ParseTextAttrs:
    """``to``: the dtype of the numbers."""

    to: DType = DType.FP32


class ParseText(TextLayer):
    """Numbers that are written as text, plain or with an exponent; integers drop a fraction.

    Raises InvalidArgument for text that is no number.
    """

    key = "tactix.ParseText@1"
    Attrs = ParseTextAttrs

    def infer(self, attrs: ParseTextAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = strings_only(self, inputs, 1)
        return [TensorSpec(attrs.to, x.shape)]

    def reference(self, attrs: ParseTextAttrs, *inputs: Array) -> tuple[Array, ...]:
        numbers = self._plain(inputs[0], attrs.to)
        if numbers is None:
            numbers = [self._number(s, attrs.to) for s in inputs[0].ravel()]
        return (
            np.array(numbers, self._wide(attrs.to)).astype(attrs.to.numpy).reshape(inputs[0].shape),
        )

    def sample(self, attrs: ParseTextAttrs, inputs: Specs, rng: Any) -> list[Any]:
        (x,) = required(self, inputs, 1)
        return [texts([str(v) for v in rng.integers(0, 2, math.prod(x.at({})))], x.at({}))]

    @staticmethod
    def _wide(to: DType) -> Any:
        """A type that holds every number read: one rounding only, and integers exact."""
        return (
            object
            if to.is_int
            else bool
            if to is DType.BOOL
            else np.complex128
            if to.value[0] == "c"
            else np.float64
        )

    @staticmethod
    def _plain(x: Array, to: DType) -> list[Any] | None:
        """All numbers at once; None where one of them is not written plainly."""
        words = x.ravel().tolist()
        if not (to.is_int or to.is_float) or any("_" in s for s in words):
            return None
        try:
            return list(map(int if to.is_int else float, words))
        except (ValueError, OverflowError):
            return None

    def _number(self, s: str, to: DType) -> Any:
        try:
            if "_" in s:
                raise ValueError("a number has no underscores")
            if to.value[0] == "c":
                return complex(s)
            if to is DType.BOOL:
                return s == "True" or (s != "False" and float(s) != 0)
            return _whole(s) if to.is_int else float(s)
        except (ValueError, OverflowError) as e:
            raise InvalidArgument(
                f"{s[:80]!r} is no number of dtype {to.value}", who=self.key, why=str(e)
            ) from e


def _whole(s: str) -> int:
    try:
        return int(s)
    except ValueError:
        return int(float(s))


LAYERS: tuple[Layer, ...] = (
    Text(),
    TextEqual(),
    StringConcat(),
    StringSplit(),
    RegexFullMatch(),
    Tokenizer(),
    StringNormalizer(),
    FormatText(),
    ParseText(),
)
