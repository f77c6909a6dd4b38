"""Layers of transformers beside attention: positions, caches, experts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, broadcast_shapes, floordiv
from tactix.base.dtypes import DType
from tactix_tensorrt.api.enums import DataType, KVCacheMode, LayerType, MoEActType
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.api.values import NATIVE, Dims

if TYPE_CHECKING:
    from tactix.contracts.graph import Value


class IRotaryEmbeddingLayer(ILayer):
    """Pairs of the last axis turned by angles: halves, or neighbours if ``interleaved``.

    Inputs: x (batch, heads, sequence, dim), cosines and sines (batch, sequence, dim / 2); with
    positions (batch, sequence) in input 3 the tables are (positions, dim / 2).
    ``rotary_embedding_dim``: of how many elements pairs are made, 0 for all; the rest stays.
    """

    TYPE = LayerType.ROTARY_EMBEDDING
    interleaved = Attribute(False)
    rotary_embedding_dim = Attribute(0)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x = emit.input(0)
        if x.spec.rank != 4:
            raise emit.refuse(f"its input is {x.spec}", "Give batch, heads, sequence and dim")
        width = x.spec.shape[3]
        turned: Dim = self.rotary_embedding_dim or width
        own = x if turned == width else emit.part(x, 3, 0, turned)
        tables = [self._table(emit, i) for i in (1, 2)]
        y = self._turned(emit, own, tables)
        if turned == width:
            return [y]
        return [emit.one("Concat", y, emit.part(x, 3, turned, width - turned), axis=3)]

    @staticmethod
    def _table(emit: Lowering, index: int) -> Value:
        """(batch, 1, sequence, pairs)."""
        table, where = emit.input(index), emit.optional(3)
        if where is not None:
            table = emit.one("Gather", table, where, axis=0)
        if table.spec.rank != 3:
            raise emit.refuse(f"a table is {table.spec}", "Give batch, sequence and pairs")
        batch, sequence, pairs = table.spec.shape
        return emit.reshape(table, (batch, 1, sequence, pairs))

    def _turned(self, emit: Lowering, x: Value, tables: Sequence[Value]) -> Value:
        """With tactix's layer where sizes tell that a table goes along x."""
        twice = [emit.one("Concat", t, t, axis=3) for t in tables]
        fits = all(broadcast_shapes(x.spec.shape, t.spec.shape) == x.spec.shape for t in twice)
        if fits and not self.interleaved:
            return emit.one("RotaryEmbedding", x, *twice)
        cosines, sines = tables
        width = x.spec.shape[3]
        pairs = floordiv(width, 2)
        begins, step = ((0, 1), 2) if self.interleaved else ((0, pairs), 1)
        a, b = (emit.part(x, 3, i, pairs, step) for i in begins)

        def times(u: Value, v: Value) -> Value:
            return emit.one("Mul", u, v)

        first = emit.one("Sub", times(a, cosines), times(b, sines))
        second = emit.one("Add", times(a, sines), times(b, cosines))
        if not self.interleaved:
            return emit.one("Concat", first, second, axis=3)
        both = [emit.reshape(t, (*t.spec.shape, 1)) for t in (first, second)]
        return emit.reshape(emit.one("Concat", *both, axis=4), (*first.spec.shape[:3], width))


class IKVCacheUpdateLayer(ILayer):
    """A cache (batch, heads, room, dim) with rows (batch, heads, new, dim) written from a place of
    each sample on.

    The result is a tensor of its own, which may have the cache's address where an engine's
    ``get_aliased_input_tensor`` names that.
    """

    TYPE = LayerType.KV_CACHE_UPDATE
    cache_mode = Attribute(KVCacheMode.LINEAR)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        cache, update = emit.input(0), emit.input(1)
        places = emit.cast(emit.input(2), DType.INT64)
        if cache.spec.rank != 4 or update.spec.rank != 4:
            do = "Give batch, heads, sequence and dim of both"
            raise emit.refuse(f"the cache is {cache.spec}, what is written {update.spec}", do)
        return [emit.one("TensorScatter", cache, update, places, axis=2, mode="linear")]


WEIGHTS, BIASES, SCALE = 3, 6, 9
"""Inputs of a mixture of experts, from where on: of gate, up and down; and the scale."""


class IMoELayer(ILayer):
    """The experts that each token chose, weighted: ``down(act(gate x) * up x)``.

    Inputs: tokens (batch, sequence, hidden), chosen experts and their scores (batch, sequence, k);
    the others are set by methods. Every expert is computed for every token.
    """

    TYPE = LayerType.MOE
    activation_type = Attribute(MoEActType.SILU)

    quantization_to_type = Attribute(DataType.FLOAT)
    quantization_block_shape: Attribute[Sequence[int]] = Attribute((), Dims)
    dyn_q_output_scale_type = Attribute(DataType.FLOAT)
    swiglu_param_limit = Attribute(math.inf)
    swiglu_param_alpha = Attribute(1.0)
    swiglu_param_beta = Attribute(0.0)

    def set_gated_weights(
        self,
        fc_gate_weights: ITensor,
        fc_up_weights: ITensor,
        fc_down_weights: ITensor,
        activation_type: MoEActType,
    ) -> None:
        """(experts, hidden, inner) of gate and up, (experts, inner, hidden) of down."""
        self._set(WEIGHTS, fc_gate_weights, fc_up_weights, fc_down_weights)
        self.activation_type = activation_type

    def set_gated_biases(
        self, fc_gate_biases: ITensor, fc_up_biases: ITensor, fc_down_biases: ITensor
    ) -> None:
        """(experts, inner) of gate and up, (experts, hidden) of down."""
        self._set(BIASES, fc_gate_biases, fc_up_biases, fc_down_biases)

    def set_quantization_static(
        self, fc_down_activation_scale: ITensor, data_type: DataType
    ) -> None:
        """Round what ``down`` reads, by one scale or one of each expert."""
        self._set(SCALE, fc_down_activation_scale)
        self.quantization_to_type = data_type

    def set_quantization_dynamic_dbl_q(
        self,
        fc_down_activation_dbl_q_scale: ITensor,
        data_type: DataType,
        block_shape: Sequence[int],
        dyn_q_output_scale_type: DataType,
    ) -> None:
        """Kept; a build refuses it."""
        self._set(SCALE, fc_down_activation_dbl_q_scale)
        self.quantization_to_type = data_type
        self.quantization_block_shape = block_shape
        self.dyn_q_output_scale_type = dyn_q_output_scale_type

    def set_swiglu_params(self, limit: float, alpha: float, beta: float) -> None:
        """Kept; a build refuses others than infinity, 1 and 0."""
        self.swiglu_param_limit = limit
        self.swiglu_param_alpha, self.swiglu_param_beta = alpha, beta

    def _set(self, first: int, *tensors: ITensor) -> None:
        for i, tensor in enumerate(tensors, first):
            self.set_input(i, tensor)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        self._check(emit)
        x, wide = emit.input(0), emit.input(0).spec.shape
        tokens = emit.reshape(x, (1, wide[0] * wide[1], wide[2]))
        gate, up = (self._product(emit, tokens, i) for i in range(2))
        if self.activation_type is MoEActType.SILU:
            gate = emit.one("Mul", gate, emit.one("Sigmoid", gate))
        inner = self._rounded(emit, emit.one("Mul", gate, up))
        y = self._product(emit, inner, 2)
        return [emit.reshape(self._weighted(emit, y), wide)]

    def _check(self, emit: Lowering) -> None:
        swiglu = (self.swiglu_param_limit, self.swiglu_param_alpha, self.swiglu_param_beta)
        if swiglu != (math.inf, 1.0, 0.0):
            raise emit.refuse("parameters of SwiGLU", "Leave set_swiglu_params out")
        if self.quantization_block_shape:
            raise emit.refuse("dynamic quantization", "Use set_quantization_static")
        if emit.input(0).spec.rank != 3:
            raise emit.refuse(f"its input is {emit.input(0).spec}", "Give batch, sequence, hidden")

    @staticmethod
    def _product(emit: Lowering, x: Value, which: int) -> Value:
        """(experts, tokens, ...)."""
        y = emit.one("MatMul", x, emit.input(WEIGHTS + which))
        bias = emit.optional(BIASES + which)
        if bias is None:
            return y
        experts, columns = bias.spec.shape
        return emit.one("Add", y, emit.reshape(bias, (experts, 1, columns)))

    def _rounded(self, emit: Lowering, x: Value) -> Value:
        """To the type that quantization is to and back, if there is a scale."""
        scale = emit.optional(SCALE)
        if scale is None:
            return x
        to = NATIVE[self.quantization_to_type]
        if to is not DType.FP8:
            raise emit.refuse(f"quantization to {self.quantization_to_type}", "Use DataType.FP8")
        scale = emit.cast(scale, DType.FP32)
        q = emit.one("QuantizeLinear", x, scale, axis=0, dtype=to)
        return emit.one("DequantizeLinear", q, scale, axis=0, dtype=x.spec.dtype)

    @staticmethod
    def _weighted(emit: Lowering, y: Value) -> Value:
        """Of (experts, tokens, hidden) the sum of those that each token chose, by its scores.

        What was not chosen is left out rather than multiplied by 0: it may be infinite.
        """
        experts, tokens, _ = y.spec.shape
        k = emit.input(1).spec.shape[2]
        chosen = emit.reshape(emit.cast(emit.input(1), DType.INT64), (1, tokens, k))
        scores = emit.reshape(emit.input(2), (1, tokens, k))
        hit = emit.one("Equal", chosen, emit.counter(experts, 0, 3))
        given = emit.one("Where", hit, scores, emit.number(0.0, scores))
        share = emit.one("ReduceSum", given, axes=(2,), keepdims=True)
        ones = emit.cast(hit, DType.INT32)
        times = emit.one("ReduceMax", ones, axes=(2,), keepdims=True)
        taken = emit.one("Where", emit.cast(times, DType.BOOL), y, emit.number(0.0, y))
        return emit.one("ReduceSum", emit.one("Mul", taken, share), axes=(0,), keepdims=False)
