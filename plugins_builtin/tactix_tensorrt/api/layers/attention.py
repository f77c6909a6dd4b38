"""Attention: what programs set on one object, between the two layers that bound it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import exact_div
from tactix.base.dtypes import DType
from tactix_tensorrt.api.enums import (
    AttentionIOForm,
    AttentionNormalizationOp,
    CausalMaskKind,
    DataType,
    LayerType,
)
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.sealed import Sealed
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.api.values import NATIVE
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.contracts.graph import Value

MASK, SCALE, QUERIES, KEYS = 3, 4, 5, 6
"""Inputs behind query, key and value: a mask, the scale of what is rounded, and lengths."""


class IAttentionBoundaryLayer(ILayer):
    """``attention``: whose bound it is."""

    TYPE = LayerType.ATTENTION_INPUT
    owner: IAttention

    @property
    def attention(self) -> IAttention:
        return self.owner


class IAttentionInputLayer(IAttentionBoundaryLayer):
    """Hands query, key and value on; the inputs behind them are read by the other bound."""

    TYPE = LayerType.ATTENTION_INPUT
    OUTPUTS = 3

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.input(i) for i in range(3)]


class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """All that is computed."""

    TYPE = LayerType.ATTENTION_OUTPUT

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [self.attention.computed(emit)]


@at_this_level
class IAttention(Sealed):
    """``norm(query key') value``, where the program has scaled the query.

    query: (batch, heads, s, dim); key, value: (batch, heads that queries share, t, dim). A boolean
    mask is true where a key may be seen, another one is added; lengths (batch,) say how many of
    the rows of each sample count. A query that sees no key gives 0.
    """

    norm_op = Attribute(AttentionNormalizationOp.SOFTMAX)
    decomposable = Attribute(False)
    normalization_quantize_to_type = Attribute(DataType.FP8)
    _kind = Attribute(CausalMaskKind.NONE)
    _query_form = Attribute(AttentionIOForm.PADDED_BHND)
    _key_value_form = Attribute(AttentionIOForm.PADDED_BHND)
    num_ranks = Attribute(1)
    metadata = ""

    def __init__(self, first: IAttentionInputLayer, last: IAttentionOutputLayer) -> None:
        self._first, self._last = first, last
        self.attributes: dict[str, object] = {}
        first.owner = last.owner = self

    def changed(self) -> None:
        self._last.changed()

    @property
    def name(self) -> str:
        return self._last.name

    @name.setter
    def name(self, name: str) -> None:
        self._last.name = name

    @property
    def causal(self) -> bool:
        return self._kind is not CausalMaskKind.NONE

    @causal.setter
    def causal(self, causal: bool) -> None:
        self.align(CausalMaskKind.UPPER_LEFT if causal else CausalMaskKind.NONE)

    @property
    def causal_kind(self) -> CausalMaskKind:
        return self._kind

    @causal_kind.setter
    def causal_kind(self, kind: CausalMaskKind) -> None:
        self.align(kind)

    def align(self, kind: CausalMaskKind) -> None:
        """Which keys are no later than a query, at any level."""
        self._kind = kind

    @property
    def query_form(self) -> AttentionIOForm:
        return self._query_form

    @query_form.setter
    def query_form(self, form: AttentionIOForm) -> None:
        self._query_form = form

    @property
    def key_value_form(self) -> AttentionIOForm:
        return self._key_value_form

    @key_value_form.setter
    def key_value_form(self, form: AttentionIOForm) -> None:
        self._key_value_form = form

    # -- inputs and outputs -----------------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        return self._first.num_inputs

    @property
    def num_outputs(self) -> int:
        return 1

    def get_input(self, index: int) -> ITensor | None:
        return self._first.get_input(index)

    def set_input(self, index: int, tensor: ITensor) -> bool:
        self._first.set_input(index, tensor)
        return True

    def get_output(self, index: int) -> ITensor | None:
        return self._last.get_output(index)

    @property
    def mask(self) -> ITensor | None:
        return self.get_input(MASK)

    @mask.setter
    def mask(self, tensor: ITensor) -> None:
        self.set_input(MASK, tensor)

    @property
    def normalization_quantize_scale(self) -> ITensor | None:
        return self.get_input(SCALE)

    @normalization_quantize_scale.setter
    def normalization_quantize_scale(self, tensor: ITensor) -> None:
        self.set_input(SCALE, tensor)

    @property
    def query_lengths(self) -> ITensor | None:
        return self.get_input(QUERIES)

    @query_lengths.setter
    def query_lengths(self, tensor: ITensor) -> None:
        self.set_input(QUERIES, tensor)

    @property
    def key_value_lengths(self) -> ITensor | None:
        return self.get_input(KEYS)

    @key_value_lengths.setter
    def key_value_lengths(self, tensor: ITensor) -> None:
        self.set_input(KEYS, tensor)

    # -- towards tactix ---------------------------------------------------------------------------

    def computed(self, emit: Lowering) -> Value:
        """The result (batch, heads, s, dim). Raises NetworkError."""
        q, k, v = (emit.input(i) for i in range(3))
        self._check(emit, q)
        k, v = (_shared(emit, x, q) for x in (k, v))
        bias = self._bias(emit, q, k)
        if self.norm_op is AttentionNormalizationOp.NONE:
            return self._plain(emit, (q, k, v), bias)
        scale = self._given(emit, SCALE)
        if scale is None:
            fields = {"scale": 1.0, "nan_to_zero": bias is not None}
            return emit.one("Attention", q, k, v, bias, **fields)
        return self._rounded(emit, (q, k, v), bias, scale)

    def _check(self, emit: Lowering, q: Value) -> None:
        forms = {self._query_form, self._key_value_form}
        if forms != {AttentionIOForm.PADDED_BHND}:
            raise emit.refuse("packed tokens", "Use AttentionIOForm.PADDED_BHND, and lengths")
        if self.num_ranks != 1:
            raise emit.refuse(f"{self.num_ranks} ranks: an engine of tactix runs on one device")
        if self.causal and self.mask is not None:
            raise emit.refuse("a mask beside a causal one", "Make one mask of both")
        if q.spec.rank != 4:
            raise emit.refuse(f"its query is {q.spec}", "Give batch, heads, sequence and dim")

    def _given(self, emit: Lowering, index: int) -> Value | None:
        tensor = self.get_input(index)
        return None if tensor is None else emit.value(tensor)

    @staticmethod
    def _plain(emit: Lowering, qkv: Sequence[Value], bias: Value | None) -> Value:
        """Without a norm."""
        if bias is not None:
            raise emit.refuse("a mask without a norm", "Set AttentionNormalizationOp.SOFTMAX")
        q, k, v = qkv
        return emit.one("MatMul", emit.one("MatMul", q, _turned(emit, k)), v)

    def _rounded(
        self, emit: Lowering, qkv: Sequence[Value], bias: Value | None, scale: Value
    ) -> Value:
        """With weights of the keys that are rounded to a type and back."""
        to = self.normalization_quantize_to_type
        if to not in (DataType.FP8, DataType.INT8):
            raise emit.refuse(f"weights of keys as {to}", "Use DataType.FP8 or INT8")
        q, k, v = qkv
        scores = emit.one("MatMul", q, _turned(emit, k))
        if bias is not None:
            scores = emit.one("Add", scores, bias)
        weights = emit.one("Softmax", scores, axis=3)
        if bias is not None:
            nothing = emit.one("IsNaN", weights)
            weights = emit.one("Where", nothing, emit.number(0.0, weights), weights)
        scale = emit.reshape(emit.cast(scale, DType.FP32), ())
        stored = emit.one("QuantizeLinear", weights, scale, dtype=NATIVE[to])
        back = emit.one("DequantizeLinear", stored, scale, dtype=q.spec.dtype)
        return emit.one("MatMul", back, v)

    def _bias(self, emit: Lowering, q: Value, k: Value) -> Value | None:
        """What is added to the scores; None for nothing."""
        seen = [x for x in (self._causal(emit, q, k), self._counted(emit, k)) if x is not None]
        mask = self._given(emit, MASK)
        if mask is not None and mask.spec.dtype is DType.BOOL:
            seen, mask = [*seen, mask], None
        if not seen:
            return mask
        both = seen[0] if len(seen) == 1 else emit.one("And", *seen)
        bias = emit.one("Where", both, emit.number(0.0, q), emit.number(-math.inf, q))
        return bias if mask is None else emit.one("Add", bias, mask)

    def _counted(self, emit: Lowering, k: Value) -> Value | None:
        """Which keys are within the lengths: (batch, 1, 1, t)."""
        lengths = self._lengths(emit, KEYS)
        if lengths is None:
            return None
        return emit.one("Less", emit.counter(k.spec.shape[2], 3, 4), lengths)

    def _lengths(self, emit: Lowering, index: int) -> Value | None:
        """(batch, 1, 1, 1), int64."""
        given = self._given(emit, index)
        if given is None:
            return None
        return emit.reshape(emit.cast(given, DType.INT64), (given.spec.numel, 1, 1, 1))

    def _causal(self, emit: Lowering, q: Value, k: Value) -> Value | None:
        """Which keys are no later than the query."""
        if not self.causal:
            return None
        s, t = q.spec.shape[2], k.spec.shape[2]
        row, column = emit.counter(s, 2, 4), emit.counter(t, 3, 4)
        if self._kind is CausalMaskKind.LOWER_RIGHT:
            keys = self._lengths(emit, KEYS) or emit.one("Dims", values=(t,), shape=())
            queries = self._lengths(emit, QUERIES) or emit.one("Dims", values=(s,), shape=())
            row = emit.one("Add", row, emit.one("Sub", keys, queries))
        return emit.one("LessOrEqual", column, row)


def _turned(emit: Lowering, x: Value) -> Value:
    return emit.one("Transpose", x, perm=(0, 1, 3, 2))


def _shared(emit: Lowering, x: Value, q: Value) -> Value:
    """Each head of keys or values for as many heads of queries as share it. Raises NetworkError."""
    if x.spec.rank != 4:
        raise emit.refuse(f"keys or values are {x.spec}", "Give batch, heads, sequence and dim")
    (batch, own, sequence, depth), heads = x.spec.shape, q.spec.shape[1]
    if own == heads:
        return x
    each = exact_div(heads, own)
    if each is None:
        raise emit.refuse(f"{heads} heads of queries cannot share {own} of keys")
    wide = emit.reshape(x, (batch, own, 1, sequence, depth))
    wide = emit.one("Expand", wide, shape=(batch, own, each, sequence, depth))
    return emit.reshape(wide, (batch, heads, sequence, depth))
