"""What of the API is there by name alone.

``IGNORED``: what is kept and changes nothing; a build warns of attributes that were set, and of
flags (``config.NO_EFFECT`` are served elsewhere). ``NOT_CALLED``: what programs may subclass and
hand over, and nothing calls. ``REFUSED``: what returns None or False, with a
line in the log. All the rest does what TensorRT's does.
"""

from __future__ import annotations

IGNORED: dict[str, frozenset[str]] = {
    name: frozenset(members.split())
    for name, members in {
        "IBuilderConfig": "DLA_core avg_timing_iterations "
        "clear_quantization_flag default_device_type "
        "get_quantization_flag l2_limit_for_tiling "
        "profile_stream quantization_flags "
        "reset_device_type set_device_type "
        "set_preview_feature set_quantization_flag tiling_optimization_level",
        "Builder": "DLA_core max_threads reset",
        "Runtime": "DLA_core tempfile_control_flags",
        "IExecutionContext": "debug_sync nvtx_verbosity set_aux_streams temporary_allocator",
        "IOptimizationProfile": "extra_memory_target",
        "ITensor": "location",
        "OnnxParser": "set_builder_config",
        "Refitter": "max_threads weights_validation",
    }.items()
}

REFUSED: dict[str, frozenset[str]] = {
    name: frozenset(members.split())
    for name, members in {
        "IBuilderConfig": "can_run_on_DLA",
        "IExecutionContext": "set_communicator set_input_consumed_event",
        "IPluginRegistry": "deregister_library load_library",
        "Refitter": "get_dynamic_range get_tensors_with_dynamic_range set_dynamic_range",
    }.items()
}

_NOT_CALLED = "IPluginResourceContext KernelLaunchParams"
NOT_CALLED = frozenset(_NOT_CALLED.split())
