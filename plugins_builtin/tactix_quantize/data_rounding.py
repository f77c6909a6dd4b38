"""Weights of few bits that are rounded by what their products read.

GPTQ: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers" (2022). AWQ: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM
Compression and Acceleration" (2023). Of the activations, those of the float model, second moments
are kept, K x K numbers for each tensor that products read; so many tensors are looked at in one
pass over the data that their moments take a bounded amount of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from tactix.base.arrays import Array
from tactix.base.errors import BuildCancelled, InvalidArgument
from tactix.builder import Builder
from tactix.contracts.graph import Value
from tactix_quantize import feeds
from tactix_quantize.calibrate import PHASE, Observer
from tactix_quantize.names import names_of
from tactix_quantize.observe import Tensors
from tactix_quantize.weight_blocks import (
    AT_ONCE,
    BlockSteps,
    FewBits,
    WeightBlocks,
    as_blocks,
    in_blocks,
    integers,
    packed_blocks,
    steps_of,
)

MEMORY = 512 << 20
"""Bytes of moments that one pass over the data gathers, unless those of one tensor are more."""
DAMPING = 0.01
"""Added to the diagonal of the moments, as a share of its mean (Frantar et al., section 3.3)."""
EXPONENTS = np.linspace(0, 1, 20, endpoint=False)
"""Of the mean magnitudes of activations, among which AWQ searches (Lin et al., section 3.2)."""
LEAST_MAGNITUDE = 1e-4
SEARCHED = 2048
"""Columns of a product's weights, at even distances, by which the exponent is chosen."""


@dataclass
class Moments:
    """Of the rows of one tensor: ``squares``, the sum of their outer products, (K, K) float64;
    ``magnitudes``, the sum of their absolute values, (K,); ``rows``, how many.
    """

    squares: Array
    magnitudes: Array
    rows: int = 0

    @classmethod
    def of(cls, size: int) -> Moments:
        return cls(np.zeros((size, size)), np.zeros(size))

    def add(self, x: Array) -> None:
        """``x``: (..., K); rows that are not finite count nothing."""
        rows = x.reshape(-1, len(self.magnitudes)).astype(np.float32)
        rows = rows[np.isfinite(rows).all(1)]
        self.squares += rows.T @ rows
        self.magnitudes += np.abs(rows).sum(0, dtype=np.float64)
        self.rows += len(rows)


@dataclass(frozen=True)
class RoundedWeights:
    """``factors``: by which activations are to be multiplied, (K,); None for one."""

    blocks: WeightBlocks
    factors: Array | None = None


@dataclass(frozen=True)
class SharedInput:
    """Products that read one tensor: their moments, and weights (K, N) of each."""

    moments: Moments
    weights: Sequence[Callable[[], Array]]


# -- GPTQ ----------------------------------------------------------------------------------------


def gptq(w: Array, moments: Moments, kind: FewBits) -> WeightBlocks:
    """Weights (K, N) rounded row by row, what each row loses being made up for by the rows behind
    it, as far as they can by the moments; the scale of a block follows from the weights as they are
    when it is reached.
    """
    k, n = w.shape
    upper = _inverse_factor(moments.squares)
    blocks = -(-k // kind.block)
    whole = np.zeros((n, blocks, kind.block), np.uint8)
    scales, zeros = (np.empty((n, blocks), np.float32) for _ in range(2))
    at_once = max(1, AT_ONCE // k)
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        left = w[:, part].astype(np.float32)
        for b in range(blocks):
            rows = slice(b * kind.block, min(k, (b + 1) * kind.block))
            steps = steps_of(as_blocks(left[rows], kind.block)[:, 0], kind)
            found, lost = _block(left[rows], upper[rows, rows], steps, kind.high)
            left[rows.stop :] -= upper[rows, rows.stop :].T @ lost
            whole[part, b, : len(found)] = found.T
            scales[part, b], zeros[part, b] = steps.scales, steps.zeros
    return packed_blocks(whole, BlockSteps(scales, zeros), kind)


def _inverse_factor(squares: Array) -> Array:
    """The upper Cholesky factor of the inverse of the damped moments, float32."""
    h = squares.copy()
    diagonal = np.einsum("ii->i", h)
    unread = diagonal == 0
    diagonal += DAMPING * float(diagonal.mean())
    diagonal[unread] = max(1.0, float(diagonal.max()))
    return np.linalg.cholesky(np.linalg.inv(h)).T.astype(np.float32)


def _block(w: Array, upper: Array, steps: BlockSteps, high: int) -> tuple[Array, Array]:
    """Integers of one block of rows, and what each row lost in units of the factor's diagonal."""
    left, whole, lost = w.copy(), np.empty(w.shape, np.uint8), np.empty_like(w)
    for i in range(len(w)):
        whole[i] = integers(left[i][:, None], steps, high)[:, 0]
        kept = (whole[i] - steps.zeros) * steps.scales
        lost[i] = (left[i] - kept) / upper[i, i]
        left[i + 1 :] -= np.outer(upper[i, i + 1 :], lost[i])
    return whole, lost


# -- AWQ -----------------------------------------------------------------------------------------


def awq_scales(shared: SharedInput, kind: FewBits) -> Array:
    """By what each row of the weights is multiplied before it is rounded, and its activation
    divided: a power of the activation's mean magnitude, of the exponent with which all products of
    the tensor lose least; (K,) float32.
    """
    size = np.maximum(shared.moments.magnitudes / max(1, shared.moments.rows), LEAST_MAGNITUDE)
    samples = []
    for read in shared.weights:
        w = read()
        samples.append(w[:, :: max(1, w.shape[1] // SEARCHED)].astype(np.float32))
    best, least = np.ones(len(size), np.float32), np.inf
    for exponent in EXPONENTS:
        s = size**exponent
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        loss = sum(_loss(w, _restored(w * s[:, None], kind) / s[:, None], shared) for w in samples)
        if loss < least:
            best, least = s, loss
    return best


def _restored(w: Array, kind: FewBits) -> Array:
    """Weights (K, n) rounded to the nearest and back."""
    x = as_blocks(w, kind.block)
    steps = steps_of(x, kind)
    whole = integers(x, steps, kind.high)
    out = (whole - steps.zeros[..., None]) * steps.scales[..., None]
    restored: Array = out.reshape(w.shape[1], -1)[:, : len(w)].T
    return restored


def _loss(w: Array, rounded: Array, shared: SharedInput) -> float:
    """The energy of the difference of results on the data."""
    d = (rounded - w).astype(np.float64)
    return float((d * (shared.moments.squares @ d)).sum())


# -- of a file -----------------------------------------------------------------------------------


class DataRounding:
    """Rounds products of a model file by data. ``method``: ``gptq`` or ``awq``. ``data``: can be
    read again; see ``Calibration``. Raises ModelImportError, UnsupportedOperator.
    """

    def __init__(self, path: str, method: str, kind: FewBits, data: object, by: Observer) -> None:
        self._method, self._kind, self._data, self._by = method, kind, data, by
        self._network = Builder(by.session.logger, by.session).import_model(path)
        self._values = {n: v for v in self._network.values for n in reversed(names_of(v))}
        self._products: dict[str, list[Callable[[], Array]]] = {}
        self._moments: dict[str, Moments] = {}
        self._factors: dict[str, Array] = {}

    def prepare(
        self, products: Sequence[onnx.NodeProto], weights: Callable[[onnx.NodeProto], Array]
    ) -> None:
        """Take note of all products; ``weights``: theirs, (K, N)."""
        for node in products:
            self._products.setdefault(node.input[0], []).append(partial(weights, node))

    def __call__(self, node: onnx.NodeProto, w: Array) -> RoundedWeights:
        """Raises InvalidArgument for bad data, BuildCancelled."""
        tensor = node.input[0]
        if tensor not in self._moments:
            self._observe(tensor)
        moments = self._moments[tensor]
        if not moments.rows:
            return RoundedWeights(in_blocks(w, self._kind))
        if self._method == "gptq":
            return RoundedWeights(gptq(w, moments, self._kind))
        if tensor not in self._factors:
            shared = SharedInput(moments, self._products[tensor])
            self._factors[tensor] = awq_scales(shared, self._kind)
        s = self._factors[tensor]
        return RoundedWeights(in_blocks(w * s[:, None], self._kind), 1 / s)

    def _observe(self, first: str) -> None:
        """Gather the moments of a tensor and of those behind it, as many as memory allows."""
        names = list(self._products)
        names = names[names.index(first) :]
        sizes = {n: self._products[n][0]().shape[0] for n in names[:1]}
        used = 8 * sizes[first] ** 2
        for n in names[1:]:
            v = self._values.get(n)
            size = v.spec.shape[-1] if v is not None and v.spec.rank else 0
            if not isinstance(size, int) or used + 8 * size**2 > MEMORY:
                break
            sizes[n], used = size, used + 8 * size**2
        self._moments = {n: Moments.of(size) for n, size in sizes.items()}
        self._run({n: self._values[n] for n in sizes if n in self._values})

    def _run(self, values: Mapping[str, Value]) -> None:
        by, network = self._by, self._network
        names: dict[str, list[str]] = {}
        for n, v in values.items():
            names.setdefault(v.name, []).append(n)
        tensors = Tensors(by.session, network, list(dict.fromkeys(values.values())), by.config)
        by.monitor.phase(PHASE, feeds.count(self._data))
        for done, batch in enumerate(feeds.batches(self._data, network.inputs), 1):
            for name, x in tensors.of(batch):
                for n in names.get(name, ()):
                    self._moments[n].add(x)
            by.monitor.step(PHASE, done)
            if by.monitor.cancelled():
                raise BuildCancelled("the quantisation was stopped")
        by.monitor.finish(PHASE)
        if values and not any(m.rows for m in self._moments.values()):
            do = "Give samples on which the float model gives finite values"
            raise InvalidArgument("no row that products read is finite", do=do)
