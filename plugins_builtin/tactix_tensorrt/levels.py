"""Which version of TensorRT's API a process has: names appear and vanish with it.

One process has one level: TACTIX_TENSORRT_LEVEL, or ``choose`` before the API is imported.
"""

from __future__ import annotations

import os
import sys
from typing import TypeVar

from tactix.base.errors import ConfigError

VARIABLE = "TACTIX_TENSORRT_LEVEL"
VERSIONS = {"8.6": "8.6.1", "10.16": "10.16.0", "11.1": "11.1.0"}
"""What ``__version__`` is at each level, oldest first."""

DEFAULT = "10.16"
Class = TypeVar("Class", bound=type)
API = "tactix_tensorrt.api"

_GONE_IN_11 = {
    "": "IAlgorithm IAlgorithmContext IAlgorithmIOInfo IAlgorithmSelector IAlgorithmVariant "
    "CalibrationAlgoType IInt8Calibrator IInt8EntropyCalibrator IInt8EntropyCalibrator2 "
    "IInt8LegacyCalibrator IInt8MinMaxCalibrator IStreamReader QuantizationFlag",
    "ITensor": "dynamic_range set_dynamic_range reset_dynamic_range",
    "ILayer": "precision precision_is_set reset_precision set_output_type get_output_type "
    "output_type_is_set reset_output_type",
    "Builder": "platform_has_fast_fp16 platform_has_fast_int8 platform_has_tf32",
    "IBuilderConfig": "int8_calibrator algorithm_selector set_calibration_profile "
    "get_calibration_profile set_quantization_flag clear_quantization_flag "
    "get_quantization_flag quantization_flags",
    "ICudaEngine": "device_memory_size get_device_memory_size_for_profile "
    "has_implicit_batch_dimension minimum_weight_streaming_budget weight_streaming_budget "
    "create_execution_context_without_device_memory",
    "IExecutionContext": "all_shape_inputs_specified",
    "OnnxParser": "supports_model parse_with_weight_descriptors",
    "IPluginRegistry": "plugin_creator_list get_plugin_creator",
    "Refitter": "set_dynamic_range get_dynamic_range get_tensors_with_dynamic_range",
}

_GONE_IN_10 = {
    "": "ResizeMode SliceMode",
    "ICudaEngine": "num_bindings __len__ get_binding_name get_binding_index get_binding_shape "
    "get_binding_dtype binding_is_input max_batch_size get_profile_shape",
    "IExecutionContext": "execute_async_v2 set_binding_shape get_binding_shape",
    "Builder": "build_engine max_batch_size",
    "IBuilderConfig": "max_workspace_size",
    "INetworkDefinition": "add_convolution add_pooling add_deconvolution add_padding",
}

_NEW_IN_11 = {
    "": "AttentionIOForm CausalMaskKind",
    "IAttention": "causal_kind key_value_form key_value_lengths query_form query_lengths",
    "INetworkDefinition": "add_attention_v2",
}

_NEW_IN_10 = {
    "": "IRuntimeConfig IStreamReaderV2 IStreamWriter IDebugListener IGpuAsyncAllocator "
    "InterfaceInfo TimingCacheKey TimingCacheValue",
    "ITimingCache": "query queryKeys update",
    "OnnxParser": "get_layer_output_tensor load_initializer load_model_proto parse_model_proto",
    "OnnxParserRefitter": "load_initializer load_model_proto refit_model_proto",
    "INetworkDefinition": "are_weights_marked_refittable mark_weights_refittable "
    "unmark_weights_refittable",
    "ITopKLayer": "indices_type",
    "IExecutionContext": "get_runtime_config",
    "ICudaEngine": "create_runtime_config get_engine_stat",
}


def choose(level: str) -> None:
    """Let this process, and those that it starts, have that level.

    Raises ConfigError for a level that is none, and where the API was imported at another one.
    """
    _check(level)
    if API in sys.modules and level != current():
        do = "Choose before the first import, or start another process"
        raise ConfigError(f"the API was imported at level {current()}", do=do)
    os.environ[VARIABLE] = level


def current() -> str:
    """Raises ConfigError for a level in the environment that is none."""
    return _check(os.environ.get(VARIABLE) or DEFAULT)


def _check(level: str) -> str:
    if level not in VERSIONS:
        raise ConfigError(f"no level {level!r} of TensorRT", do=f"Choose {', '.join(VERSIONS)}")
    return level


def absent(owner: str = "") -> frozenset[str]:
    """Members of a class, or of the module, that this level lacks."""
    levels = list(VERSIONS)
    at = levels.index(current())
    tables = []
    if at >= levels.index("11.1"):
        tables.append(_GONE_IN_11)
    else:
        tables.append(_NEW_IN_11)
    if at >= levels.index("10.16"):
        tables.append(_GONE_IN_10)
    else:
        tables.append(_NEW_IN_10)
    return frozenset(name for t in tables for name in t.get(owner, "").split())


def at_this_level(cls: Class) -> Class:
    """Take away what the level lacks of a class, wherever a base has it."""
    gone = absent(cls.__name__)
    for owner in cls.__mro__:
        for name in gone & vars(owner).keys():
            delattr(owner, name)
    return cls
