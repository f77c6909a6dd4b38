"""Einsum said as transposes, matrix products, factors and sums, which have kernels.

Tensors are joined two at a time. Axes that both have and that nothing else asks for are summed by a
MatMul; where they have none such, they are multiplied element by element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node
from tactix.contracts.rule import P, Pattern, Rule
from tactix_ops.layers.matmul import parse_equation

T = P.tactix
Labels = tuple[str, ...]
"""Names of axes: letters of the equation, and ``.2`` for the second axis from the right of those
that ``...`` stands for.
"""
NARROW = frozenset({DType.FP16, DType.BF16})


@dataclass(frozen=True)
class EinsumTerm:
    """A tensor and the names of its axes, each of which stands there once."""

    tensor: Pattern
    labels: Labels

    def turned(self, labels: Iterable[str]) -> EinsumTerm:
        """With its axes in this order."""
        wanted = tuple(labels)
        if wanted == self.labels:
            return self
        perm = tuple(self.labels.index(c) for c in wanted)
        return EinsumTerm(T.Transpose(self.tensor, perm=perm), wanted)

    def summed(self, gone: Collection[str]) -> EinsumTerm:
        """The sum along these axes."""
        axes = tuple(i for i, c in enumerate(self.labels) if c in gone)
        if not axes:
            return self
        left = tuple(c for c in self.labels if c not in gone)
        return EinsumTerm(T.ReduceSum(self.tensor, axes=axes, keepdims=False), left)


@dataclass(frozen=True)
class AxisSizes:
    """Of the axes by name, and in which order the result has them."""

    of: Mapping[str, Dim]
    result: Labels

    def shape(self, labels: Iterable[str]) -> Shape:
        return tuple(self.of[c] for c in labels)

    def count(self, labels: Iterable[str]) -> Dim:
        return dims.prod(self.shape(labels))

    def ordered(self, labels: Iterable[str]) -> Labels:
        """As in the result, and before those the ones that it does not have."""
        place = {c: i for i, c in enumerate(self.result)}
        return tuple(sorted(labels, key=lambda c: place.get(c, -1)))


# -- what the equation says ----------------------------------------------------------------------


def _labels(term: str, rank: int) -> Labels:
    """Names of the axes of a tensor that the term stands for."""
    before, dots, after = term.partition(".")
    inner = rank - len(before) - len(after) if dots else 0
    return (*before, *(f".{inner - i}" for i in range(inner)), *after)


def _named(root: Node) -> tuple[list[Labels], AxisSizes]:
    """Names of each tensor's axes, and their sizes."""
    terms, out = parse_equation(root.attrs.equation)
    names = [_labels(t, v.spec.rank) for t, v in zip(terms, root.given, strict=True)]
    sizes: dict[str, Dim] = {}
    for labels, v in zip(names, root.given, strict=True):
        for c, d in zip(labels, v.spec.shape, strict=True):
            sizes[c] = dims.broadcast(sizes.get(c, 1), d)
    return names, AxisSizes(sizes, _labels(out, root.outputs[0].spec.rank))


def _when(root: Node) -> bool | str:
    if root.given[0].spec.dtype is DType.BOOL:
        return "truth values are not multiplied"
    return True


# -- one tensor ----------------------------------------------------------------------------------


def _batch_ones(names: Sequence[Labels], sizes: AxisSizes) -> frozenset[str]:
    """Axes of size 1 that all of two tensors and the result have: a MatMul's batch, so that a batch
    of 1 is no other product than one of 2.
    """
    one = (c for c in sizes.result if sizes.of[c] == 1)
    if len(names) != 2:
        return frozenset()
    return frozenset(c for c in one if all(labels.count(c) == 1 for labels in names))


def _repeated(tensor: Pattern, labels: Labels, spec: TensorSpec, sizes: AxisSizes) -> Pattern:
    """With the size of its name for each axis of which only running tells whether it repeats."""
    shape = tuple(1 if d == 1 else sizes.of[c] for c, d in zip(labels, spec.shape, strict=True))
    return tensor if shape == spec.shape else T.Expand(tensor, shape=shape)


def _without_ones(
    tensor: Pattern, labels: Labels, shape: Shape, batch: Collection[str]
) -> EinsumTerm:
    """Without axes of size 1, which say how often the rest repeats, but for those of a batch."""
    kept = [(c, d) for c, d in zip(labels, shape, strict=True) if d != 1 or c in batch]
    left = tuple(d for _, d in kept)
    narrow = tensor if len(left) == len(shape) else T.Reshape(tensor, shape=left)
    return EinsumTerm(narrow, tuple(c for c, _ in kept))


def _with_diagonals(term: EinsumTerm, sizes: AxisSizes) -> EinsumTerm:
    """Each name once: of axes of one name the diagonal.

    The diagonal is the first column of the matrix with one more element a row. Elements behind the
    last row fill that up.
    """
    twice = next((c for c in term.labels if term.labels.count(c) > 1), None)
    if twice is None:
        return term
    places = [i for i, c in enumerate(term.labels) if c == twice][:2]
    others = [i for i in range(len(term.labels)) if i not in places]
    left, n = tuple(term.labels[i] for i in others), sizes.of[twice]
    before, rank = sizes.shape(left), len(left)
    flat = T.Reshape(T.Transpose(term.tensor, perm=(*others, *places)), shape=(*before, n * n))
    filled = T.Pad(flat, pads=(*(0,) * (2 * rank + 1), n))
    rows = T.Reshape(filled, shape=(*before, n, n + 1))
    column = T.Slice(rows, begins=(0,), sizes=(1,), axes=(rank + 1,), steps=(1,))
    return _with_diagonals(EinsumTerm(T.Reshape(column, shape=(*before, n)), (*left, twice)), sizes)


# -- two tensors ---------------------------------------------------------------------------------


def _joined(a: EinsumTerm, b: EinsumTerm, needed: Collection[str], sizes: AxisSizes) -> EinsumTerm:
    """Their product, summed along the axes that are not needed any more."""
    a, b = (
        x.summed([c for c in x.labels if c not in needed and c not in y.labels])
        for x, y in ((a, b), (b, a))
    )
    gone = [c for c in a.labels if c in b.labels and c not in needed]
    alone = [c for c in (*a.labels, *b.labels) if (c in a.labels) != (c in b.labels)]
    if not gone or not alone:
        return _multiplied(a, b, sizes).summed(gone)
    return min((_product(x, y, gone, sizes) for x, y in ((a, b), (b, a))), key=_away(sizes))


def _away(sizes: AxisSizes) -> Callable[[EinsumTerm], bool]:
    """A key for terms: whether their axes must be turned to be those of the result."""
    return lambda term: term.labels != sizes.ordered(term.labels)


def _multiplied(a: EinsumTerm, b: EinsumTerm, sizes: AxisSizes) -> EinsumTerm:
    """Element by element, each repeated along the axes that it does not have."""
    labels = sizes.ordered(dict.fromkeys((*a.labels, *b.labels)))
    spread = []
    for term in (a, b):
        turned = term.turned(c for c in labels if c in term.labels)
        shape = tuple(sizes.of[c] if c in term.labels else 1 for c in labels)
        tensor = turned.tensor if turned.labels == labels else T.Reshape(turned.tensor, shape=shape)
        spread.append(tensor)
    return EinsumTerm(T.Mul(*spread), labels)


def _product(a: EinsumTerm, b: EinsumTerm, gone: Sequence[str], sizes: AxisSizes) -> EinsumTerm:
    """MatMul: axes that both keep are its batch, what ``a`` alone has rows, of ``b`` columns."""
    batch = sizes.ordered(c for c in a.labels if c in b.labels and c not in gone)
    rows = sizes.ordered(c for c in a.labels if c not in b.labels)
    columns = sizes.ordered(c for c in b.labels if c not in a.labels)
    left = _matrices(a, [batch, rows, gone], sizes)
    right = _matrices(b, [batch, gone, columns], sizes)
    labels = (*batch, *rows, *columns)
    made = T.MatMul(left, right)
    if len(rows) == len(columns) == 1:
        return EinsumTerm(made, labels)
    return EinsumTerm(T.Reshape(made, shape=sizes.shape(labels)), labels)


def _matrices(term: EinsumTerm, groups: Sequence[Sequence[str]], sizes: AxisSizes) -> Pattern:
    """Axes in the order of the groups; those of the last two groups joined to one each."""
    batch, *matrix = groups
    turned = term.turned(itertools.chain(*groups))
    if all(len(g) == 1 for g in matrix):
        return turned.tensor
    shape = (*sizes.shape(batch), *(sizes.count(g) for g in matrix))
    return T.Reshape(turned.tensor, shape=shape)


# -- all of them ---------------------------------------------------------------------------------


def _next_pair(terms: Sequence[EinsumTerm], sizes: AxisSizes) -> tuple[int, int]:
    """Which two to join: those with the least work as far as sizes are known, else the first."""

    def work(pair: tuple[int, int]) -> float:
        count = sizes.count(dict.fromkeys((*terms[pair[0]].labels, *terms[pair[1]].labels)))
        return count if isinstance(count, int) else float("inf")

    return min(itertools.combinations(range(len(terms)), 2), key=work)


def _einsum(root: Node) -> Pattern:
    names, sizes = _named(root)
    dtype, result = root.given[0].spec.dtype, root.outputs[0].spec
    wide = dtype in NARROW and len(root.given) > 2
    terms, batch = [], _batch_ones(names, sizes)
    for labels, v in zip(names, root.given, strict=True):
        tensor = _repeated(T.Cast(v, to=DType.FP32) if wide else v, labels, v.spec, sizes)
        terms.append(_with_diagonals(_without_ones(tensor, labels, v.spec.shape, batch), sizes))
    while len(terms) > 1:
        i, j = _next_pair(terms, sizes)
        a, b = terms[i], terms[j]
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = {*sizes.result, *(c for t in rest for c in t.labels)}
        terms = [*rest, _joined(a, b, needed, sizes)]
    (last,) = terms
    whole = last.summed([c for c in last.labels if c not in sizes.result])
    whole = whole.turned(c for c in sizes.result if c in whole.labels)
    shaped = whole.tensor
    if shaped in root.given or sizes.shape(whole.labels) != result.shape:
        shaped = T.Reshape(shaped, shape=result.shape)
    return T.Cast(shaped, to=dtype) if wide else shaped


def _example(net: Any) -> None:
    x = net.add_input("x", "f32", [2, "n", 4])
    y = net.add_input("y", "f32", [2, "m", 4])
    net.mark_output(net.add_layer("tactix.Einsum", [x, y], equation="bij,bkj->bik")[0], "z")


RULES = (
    Rule(
        "tactix.einsum",
        T.Einsum(),
        _einsum,
        _when,
        benefit=60,
        numerics="reassociates",
        example=_example,
    ),
)
