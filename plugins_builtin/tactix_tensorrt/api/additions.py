"""The ``add_*`` of a network: what each one gives, or why tactix's adapter does not have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tactix.base.errors import TactixError
from tactix_tensorrt.api.enums import (
    ActivationType,
    AttentionNormalizationOp,
    CausalMaskKind,
    CumulativeOperation,
    DataType,
    ElementWiseOperation,
    FillOperation,
    GatherMode,
    KVCacheMode,
    MatrixOperation,
    PoolingType,
    ReduceOperation,
    ScaleMode,
    ScatterMode,
    TopKOperation,
    UnaryOperation,
)
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.layers import (
    arithmetic,
    attention,
    blocks,
    branches,
    loops,
    moving,
    plugins,
    selecting,
    tokens,
    windows,
)
from tactix_tensorrt.api.layers.bounds import Construct
from tactix_tensorrt.api.refusal import refused
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.api.values import checked_numbers

if TYPE_CHECKING:
    from tactix_tensorrt.api.network import INetworkDefinition
    from tactix_tensorrt.api.plugins import IPluginV2, IPluginV3
    from tactix_tensorrt.api.values import Array, Weights
    from tactix_tensorrt.quick.definitions import Creation

    Numbers = Weights | Array | None

L = TypeVar("L", bound=ILayer)
C = TypeVar("C", bound=Construct)

WEIGHTS = frozenset({"weights", "kernel", "bias", "shift", "scale", "power"})
"""Attributes of layers that are numbers."""


class Additions:
    """``self`` is a network. Each gives the layer, whose attributes may be set until a build."""

    def _new(self, cls: type[L], inputs: Sequence[ITensor | None], **attributes: object) -> L:
        network: INetworkDefinition = self  # type: ignore[assignment]
        kind = cls.__name__[1:].removesuffix("Layer")
        layer = cls(network, network.next_name(kind), inputs)
        layer.attributes.update({k: v for k, v in attributes.items() if v is not None})
        for name, value in attributes.items():
            known = vars(cls).get(name)
            if isinstance(known, Attribute) and value is not None:
                known.check(value)
        for name in WEIGHTS & attributes.keys():
            checked_numbers(attributes[name])
        return network.add(layer)

    # -- element by element -----------------------------------------------------------------------

    def add_activation(self, input: ITensor, type: ActivationType) -> arithmetic.IActivationLayer:
        return self._new(arithmetic.IActivationLayer, [input], kind=type)

    def add_elementwise(
        self, input1: ITensor, input2: ITensor, op: ElementWiseOperation
    ) -> arithmetic.IElementWiseLayer:
        return self._new(arithmetic.IElementWiseLayer, [input1, input2], op=op)

    def add_unary(self, input: ITensor, op: UnaryOperation) -> arithmetic.IUnaryLayer:
        return self._new(arithmetic.IUnaryLayer, [input], op=op)

    def add_scale(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: Numbers = None,
        scale: Numbers = None,
        power: Numbers = None,
    ) -> arithmetic.IScaleLayer:
        return self.add_scale_nd(input, mode, shift, scale, power)

    def add_scale_nd(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: Numbers = None,
        scale: Numbers = None,
        power: Numbers = None,
        channel_axis: int = 1,
    ) -> arithmetic.IScaleLayer:
        numbers = {"shift": shift, "scale": scale, "power": power}
        fields = {"mode": mode, "channel_axis": channel_axis, **numbers}
        return self._new(arithmetic.IScaleLayer, [input], **fields)

    def add_cast(self, input: ITensor, to_type: DataType) -> arithmetic.ICastLayer:
        return self._new(arithmetic.ICastLayer, [input], to_type=to_type)

    def add_identity(self, input: ITensor) -> arithmetic.IIdentityLayer:
        return self._new(arithmetic.IIdentityLayer, [input])

    def add_select(
        self, condition: ITensor, then_input: ITensor, else_input: ITensor
    ) -> arithmetic.ISelectLayer:
        return self._new(arithmetic.ISelectLayer, [condition, then_input, else_input])

    def add_parametric_relu(
        self, input: ITensor, slopes: ITensor
    ) -> arithmetic.IParametricReLULayer:
        return self._new(arithmetic.IParametricReLULayer, [input, slopes])

    # -- products, reductions ---------------------------------------------------------------------

    def add_matrix_multiply(
        self, input0: ITensor, op0: MatrixOperation, input1: ITensor, op1: MatrixOperation
    ) -> arithmetic.IMatrixMultiplyLayer:
        return self._new(arithmetic.IMatrixMultiplyLayer, [input0, input1], op0=op0, op1=op1)

    def add_einsum(self, inputs: Sequence[ITensor], equation: str) -> arithmetic.IEinsumLayer:
        return self._new(arithmetic.IEinsumLayer, inputs, equation=equation)

    def add_reduce(
        self, input: ITensor, op: ReduceOperation, axes: int, keep_dims: bool
    ) -> arithmetic.IReduceLayer:
        fields = {"op": op, "axes": axes, "keep_dims": keep_dims}
        return self._new(arithmetic.IReduceLayer, [input], **fields)

    def add_topk(
        self,
        input: ITensor,
        op: TopKOperation,
        k: int,
        axes: int,
        indices_type: DataType = DataType.INT32,
    ) -> arithmetic.ITopKLayer:
        fields = {"op": op, "k": k, "axes": axes, "indices_type": indices_type}
        return self._new(arithmetic.ITopKLayer, [input], **fields)

    def add_softmax(self, input: ITensor) -> arithmetic.ISoftMaxLayer:
        return self._new(arithmetic.ISoftMaxLayer, [input])

    def add_cumulative(
        self,
        input: ITensor,
        axis: ITensor,
        op: CumulativeOperation = CumulativeOperation.SUM,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> arithmetic.ICumulativeLayer:
        fields = {"op": op, "exclusive": exclusive, "reverse": reverse}
        return self._new(arithmetic.ICumulativeLayer, [input, axis], **fields)

    def add_normalization(
        self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int
    ) -> arithmetic.INormalizationLayer:
        given = [input, scale, bias]
        return self._new(arithmetic.INormalizationLayer, given, axes=axesMask)

    add_normalization_v2 = add_normalization

    # -- windows ----------------------------------------------------------------------------------

    def add_convolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Sequence[int],
        kernel: Numbers,
        bias: Numbers = None,
    ) -> windows.IConvolutionLayer:
        return self._weighted(
            windows.IConvolutionLayer, input, num_output_maps, kernel_shape, (kernel, bias)
        )

    add_convolution = add_convolution_nd

    def add_deconvolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Sequence[int],
        kernel: Numbers,
        bias: Numbers = None,
    ) -> windows.IDeconvolutionLayer:
        return self._weighted(
            windows.IDeconvolutionLayer, input, num_output_maps, kernel_shape, (kernel, bias)
        )

    add_deconvolution = add_deconvolution_nd

    def _weighted(
        self,
        cls: type[L],
        input: ITensor,
        maps: int,
        size: Sequence[int],
        weights: tuple[Numbers, Numbers],
    ) -> L:
        kernel, bias = weights
        fields = {"num_output_maps": maps, "kernel_size_nd": size, "kernel": kernel, "bias": bias}
        return self._new(cls, [input], **fields, **windows.at_first(len(size)))

    def add_pooling_nd(
        self, input: ITensor, type: PoolingType, window_size: Sequence[int]
    ) -> windows.IPoolingLayer:
        fields = {"kind": type, "window_size_nd": window_size, **windows.at_first(len(window_size))}
        return self._new(windows.IPoolingLayer, [input], **fields)

    add_pooling = add_pooling_nd

    def add_lrn(
        self, input: ITensor, window: int, alpha: float, beta: float, k: float
    ) -> windows.ILRNLayer:
        fields = {"window_size": window, "alpha": alpha, "beta": beta, "k": k}
        return self._new(windows.ILRNLayer, [input], **fields)

    def add_padding_nd(
        self, input: ITensor, pre_padding: Sequence[int], post_padding: Sequence[int]
    ) -> windows.IPaddingLayer:
        fields = {"pre_padding_nd": pre_padding, "post_padding_nd": post_padding}
        return self._new(windows.IPaddingLayer, [input], **fields)

    add_padding = add_padding_nd

    def add_resize(self, input: ITensor) -> windows.IResizeLayer:
        return self._new(windows.IResizeLayer, [input])

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> windows.IGridSampleLayer:
        return self._new(windows.IGridSampleLayer, [input, grid])

    # -- moving -----------------------------------------------------------------------------------

    def add_constant(self, shape: Sequence[int], weights: Numbers) -> moving.IConstantLayer:
        return self._new(moving.IConstantLayer, [], shape=shape, weights=weights)

    def add_concatenation(self, inputs: Sequence[ITensor]) -> moving.IConcatenationLayer:
        return self._new(moving.IConcatenationLayer, inputs)

    def add_shuffle(self, input: ITensor) -> moving.IShuffleLayer:
        return self._new(moving.IShuffleLayer, [input])

    def add_slice(
        self, input: ITensor, start: Sequence[int], shape: Sequence[int], stride: Sequence[int]
    ) -> moving.ISliceLayer:
        fields = {"start": start, "shape": shape, "stride": stride}
        return self._new(moving.ISliceLayer, [input], **fields)

    def add_shape(self, input: ITensor) -> moving.IShapeLayer:
        return self._new(moving.IShapeLayer, [input])

    def add_squeeze(self, input: ITensor, axes: ITensor) -> moving.ISqueezeLayer:
        return self._new(moving.ISqueezeLayer, [input, axes])

    def add_unsqueeze(self, input: ITensor, axes: ITensor) -> moving.IUnsqueezeLayer:
        return self._new(moving.IUnsqueezeLayer, [input, axes])

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> moving.IGatherLayer:
        return self._new(moving.IGatherLayer, [input, indices], axis=axis)

    def add_gather_v2(
        self, input: ITensor, indices: ITensor, mode: GatherMode
    ) -> moving.IGatherLayer:
        return self._new(moving.IGatherLayer, [input, indices], mode=mode)

    def add_scatter(
        self, data: ITensor, indices: ITensor, updates: ITensor, mode: ScatterMode
    ) -> moving.IScatterLayer:
        return self._new(moving.IScatterLayer, [data, indices, updates], mode=mode)

    def add_non_zero(
        self, input: ITensor, indices_type: DataType = DataType.INT32
    ) -> moving.INonZeroLayer:
        return self._new(moving.INonZeroLayer, [input], indices_type=indices_type)

    def add_reverse_sequence(
        self, input: ITensor, sequence_lens: ITensor
    ) -> moving.IReverseSequenceLayer:
        return self._new(moving.IReverseSequenceLayer, [input, sequence_lens])

    def add_fill(
        self, shape: Sequence[int], op: FillOperation, output_type: DataType = DataType.FLOAT
    ) -> moving.IFillLayer:
        fields = {"shape": shape, "operation": op, "to_type": output_type}
        return self._new(moving.IFillLayer, [None], **fields)

    def add_quantize(
        self, input: ITensor, scale: ITensor, output_type: DataType = DataType.INT8
    ) -> moving.IQuantizeLayer:
        return self._new(moving.IQuantizeLayer, [input, scale], to_type=output_type)

    def add_dequantize(
        self, input: ITensor, scale: ITensor, output_type: DataType = DataType.FLOAT
    ) -> moving.IDequantizeLayer:
        return self._new(moving.IDequantizeLayer, [input, scale], to_type=output_type)

    def add_assertion(self, condition: ITensor, message: str) -> moving.IAssertionLayer:
        return self._new(moving.IAssertionLayer, [condition], message=message)

    def add_dynamic_quantize(
        self,
        input: ITensor,
        axis: int,
        block_size: int,
        output_type: DataType,
        scale_type: DataType,
    ) -> blocks.IDynamicQuantizeLayer:
        types = {"to_type": output_type, "scale_type": scale_type}
        fields = {"axis": axis, "block_size": block_size, **types}
        return self._new(blocks.IDynamicQuantizeLayer, [input, None], **fields)

    def add_dynamic_quantize_v2(
        self,
        input: ITensor,
        block_shape: Sequence[int],
        output_type: DataType,
        scale_type: DataType,
    ) -> blocks.IDynamicQuantizeLayer:
        types = {"to_type": output_type, "scale_type": scale_type}
        fields = {"block_shape": block_shape, **types}
        return self._new(blocks.IDynamicQuantizeLayer, [input, None], **fields)

    # -- choosing ---------------------------------------------------------------------------------

    def add_one_hot(
        self, indices: ITensor, values: ITensor, depth: ITensor, axis: int
    ) -> selecting.IOneHotLayer:
        return self._new(selecting.IOneHotLayer, [indices, values, depth], axis=axis)

    def add_ragged_softmax(self, input: ITensor, bounds: ITensor) -> selecting.IRaggedSoftMaxLayer:
        return self._new(selecting.IRaggedSoftMaxLayer, [input, bounds])

    def add_nms(
        self,
        boxes: ITensor,
        scores: ITensor,
        max_output_boxes_per_class: ITensor,
        indices_type: DataType = DataType.INT32,
    ) -> selecting.INMSLayer:
        given = [boxes, scores, max_output_boxes_per_class]
        return self._new(selecting.INMSLayer, given, indices_type=indices_type)

    # -- transformers -----------------------------------------------------------------------------

    def add_attention(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: AttentionNormalizationOp,
        causal: bool,
    ) -> attention.IAttention:
        kind = CausalMaskKind.UPPER_LEFT if causal else CausalMaskKind.NONE
        return self._attention([query, key, value], norm_op, kind)

    def add_attention_v2(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: AttentionNormalizationOp,
        causal_kind: CausalMaskKind,
    ) -> attention.IAttention:
        return self._attention([query, key, value], norm_op, causal_kind)

    def _attention(
        self, inputs: Sequence[ITensor], norm_op: AttentionNormalizationOp, kind: CausalMaskKind
    ) -> attention.IAttention:
        first = self._new(attention.IAttentionInputLayer, inputs)
        last = self._new(attention.IAttentionOutputLayer, first.outputs)
        found = attention.IAttention(first, last)
        found.norm_op = norm_op
        found.align(kind)
        return found

    def add_rotary_embedding(
        self,
        input: ITensor,
        cos_cache: ITensor,
        sin_cache: ITensor,
        interleaved: bool,
        rotary_embedding_dim: int,
    ) -> tokens.IRotaryEmbeddingLayer:
        fields = {"interleaved": interleaved, "rotary_embedding_dim": rotary_embedding_dim}
        return self._new(tokens.IRotaryEmbeddingLayer, [input, cos_cache, sin_cache], **fields)

    def add_kv_cache_update(
        self, cache: ITensor, update: ITensor, write_indices: ITensor, cache_mode: KVCacheMode
    ) -> tokens.IKVCacheUpdateLayer:
        given = [cache, update, write_indices]
        return self._new(tokens.IKVCacheUpdateLayer, given, cache_mode=cache_mode)

    def add_moe(
        self,
        hidden_states: ITensor,
        selected_experts_for_tokens: ITensor,
        scores_for_selected_experts: ITensor,
    ) -> tokens.IMoELayer:
        chosen = [selected_experts_for_tokens, scores_for_selected_experts]
        return self._new(tokens.IMoELayer, [hidden_states, *chosen])

    # -- loops and branches -----------------------------------------------------------------------

    def add_loop(self) -> loops.ILoop:
        return self._construct(loops.ILoop)

    def add_if_conditional(self) -> branches.IIfConditional:
        return self._construct(branches.IIfConditional)

    def _construct(self, cls: type[C]) -> C:
        network: INetworkDefinition = self  # type: ignore[assignment]
        made = cls(self._new, network.layers)
        network.constructs.append(made)
        return made

    # -- plugins ----------------------------------------------------------------------------------

    def add_plugin_v2(
        self, inputs: Sequence[ITensor], plugin: IPluginV2
    ) -> plugins.IPluginV2Layer | None:
        """None for an IPluginV2 that is no IPluginV2DynamicExt, which is logged."""
        return self._plugin(plugins.IPluginV2Layer, inputs, (), plugin)

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: IPluginV3
    ) -> plugins.IPluginV3Layer | None:
        """``shape_inputs``: integers that shapes tell, for sizes of outputs. None for one whose
        capabilities are not there, which is logged.
        """
        return self._plugin(plugins.IPluginV3Layer, inputs, shape_inputs, plugin)

    def add_plugin(self, func: Creation, aot: bool | None = None) -> plugins.IPluginV3Layer | None:
        """What ``tensorrt.plugin.op.NAMESPACE.NAME(...)`` gives. ``aot``: by its compiled kernels,
        or by its ``impl``; else as the network's flags say. None if that cannot be.
        """
        from tactix_tensorrt.api.plugin_nodes import asked
        from tactix_tensorrt.plugin_steps.calling import called

        network: INetworkDefinition = self  # type: ignore[assignment]
        try:
            made = called("tensorrt.plugin.op", func, "__call__", asked(network, aot))
        except TactixError as e:
            network.fail(e)
            return None
        inputs, shapes, plugin = cast("tuple[list[ITensor], list[ITensor], IPluginV3]", made)
        return self.add_plugin_v3(inputs, shapes, plugin)

    def _plugin(
        self,
        cls: type[L],
        inputs: Sequence[ITensor],
        shapes: Sequence[ITensor],
        plugin: IPluginV2 | IPluginV3,
    ) -> L | None:
        from tactix_tensorrt.plugin_steps.views import view_of

        network: INetworkDefinition = self  # type: ignore[assignment]
        try:
            outputs = view_of(plugin).num_outputs
        except TactixError as e:
            network.fail(e)
            return None
        name = network.next_name(cls.TYPE.name)
        layer = cls(network, name, [*inputs, *shapes], outputs)
        layer.attributes |= {"plugin": plugin, "num_shape_inputs": len(shapes)}
        return network.add(layer)

    # -- what is not there ------------------------------------------------------------------------

    add_dist_collective = refused("add_dist_collective", "Run an engine on each device")
