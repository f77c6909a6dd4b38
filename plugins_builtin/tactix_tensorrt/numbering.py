"""Enumerations whose members or numbers are not those of TensorRT 10.16, release by release.

Members are in the order in which that release declares them, as the bindings that NVIDIA publishes
tell: tensorrt-bindings 8.6.1 and tensorrt-cu13-bindings 11.1.0. At 8.6 enumerations that later
releases only added to keep what was added, and kinds of layers that 8.6 lacks follow its own: the
adapter's networks are made of them.
"""

from __future__ import annotations

NUMBERS: dict[str, dict[str, str]] = {
    "8.6": {
        "BuilderFlag": (
            "FP16=0 INT8=1 DEBUG=2 GPU_FALLBACK=3 STRICT_TYPES=4 REFIT=5 DISABLE_TIMING_CACHE=6 "
            "TF32=7 SPARSE_WEIGHTS=8 SAFETY_SCOPE=9 OBEY_PRECISION_CONSTRAINTS=10 "
            "PREFER_PRECISION_CONSTRAINTS=11 DIRECT_IO=12 REJECT_EMPTY_ALGORITHMS=13 "
            "ENABLE_TACTIC_HEURISTIC=14 VERSION_COMPATIBLE=15 EXCLUDE_LEAN_RUNTIME=16 FP8=17"
        ),
        "EngineCapability": (
            "DEFAULT=0 SAFE_GPU=1 SAFE_DLA=2 STANDARD=0 SAFETY=1 DLA_STANDALONE=2"
        ),
        "LayerType": (
            "CONVOLUTION=0 FULLY_CONNECTED=1 GRID_SAMPLE=43 NMS=44 ACTIVATION=2 POOLING=3 LRN=4 "
            "SCALE=5 SOFTMAX=6 DECONVOLUTION=7 CONCATENATION=8 ELEMENTWISE=9 PLUGIN=10 UNARY=11 "
            "PADDING=12 SHUFFLE=13 REDUCE=14 TOPK=15 GATHER=16 MATRIX_MULTIPLY=17 "
            "RAGGED_SOFTMAX=18 CONSTANT=19 RNN_V2=20 IDENTITY=21 CAST=47 PLUGIN_V2=22 SLICE=23 "
            "SHAPE=24 PARAMETRIC_RELU=25 RESIZE=26 TRIP_LIMIT=27 RECURRENCE=28 ITERATOR=29 "
            "LOOP_OUTPUT=30 SELECT=31 ASSERTION=40 FILL=32 QUANTIZE=33 DEQUANTIZE=34 "
            "CONDITION=35 CONDITIONAL_INPUT=36 CONDITIONAL_OUTPUT=37 SCATTER=38 EINSUM=39 "
            "ONE_HOT=41 NON_ZERO=42 REVERSE_SEQUENCE=45 NORMALIZATION=46 PLUGIN_V3=48 "
            "SQUEEZE=49 UNSQUEEZE=50 CUMULATIVE=51 DYNAMIC_QUANTIZE=52 ATTENTION_INPUT=53 "
            "ATTENTION_OUTPUT=54 ROTARY_EMBEDDING=55 KV_CACHE_UPDATE=56 MOE=57 "
            "DIST_COLLECTIVE=58"
        ),
        "NetworkDefinitionCreationFlag": "EXPLICIT_BATCH=0 EXPLICIT_PRECISION=1",
        "PaddingMode": (
            "EXPLICIT_ROUND_DOWN=0 EXPLICIT_ROUND_UP=1 SAME_UPPER=2 SAME_LOWER=3 "
            "CAFFE_ROUND_DOWN=4 CAFFE_ROUND_UP=5"
        ),
        "PreviewFeature": (
            "FASTER_DYNAMIC_SHAPES_0805=0 DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805=1 "
            "PROFILE_SHARING_0806=2"
        ),
        "ProfilingVerbosity": "LAYER_NAMES_ONLY=0 DETAILED=2 NONE=1 DEFAULT=0 VERBOSE=2",
        "SampleMode": "STRICT_BOUNDS=0 DEFAULT=0 WRAP=1 CLAMP=2 FILL=3 REFLECT=4",
    },
    "11.1": {
        "BuilderFlag": (
            "DEBUG=2 GPU_FALLBACK=3 REFIT=4 DISABLE_TIMING_CACHE=5 EDITABLE_TIMING_CACHE=26 "
            "TF32=6 SPARSE_WEIGHTS=7 SAFETY_SCOPE=8 DIRECT_IO=11 VERSION_COMPATIBLE=12 "
            "EXCLUDE_LEAN_RUNTIME=13 ERROR_ON_TIMING_CACHE_MISS=15 DISABLE_COMPILATION_CACHE=17 "
            "STRIP_PLAN=18 REFIT_IDENTICAL=19 WEIGHT_STREAMING=20 REFIT_INDIVIDUAL=22 "
            "STRICT_NANS=23 MONITOR_MEMORY=24 DISTRIBUTIVE_INDEPENDENCE=27"
        ),
        "CollectiveOperation": (
            "ALL_REDUCE=0 ALL_GATHER=1 BROADCAST=2 REDUCE=3 REDUCE_SCATTER=4 ALL_TO_ALL=5 "
            "GATHER=6 SCATTER=7"
        ),
        "NetworkDefinitionCreationFlag": (
            "STRONGLY_TYPED=0 PREFER_AOT_PYTHON_PLUGINS=2 PREFER_JIT_PYTHON_PLUGINS=1"
        ),
        "PreviewFeature": "ALIASED_PLUGIN_IO_10_03=0 RUNTIME_ACTIVATION_RESIZE_10_10=1",
        "TacticSource": "EDGE_MASK_CONVOLUTIONS=0 JIT_CONVOLUTIONS=1",
    },
}


def numbers(level: str, enumeration: str) -> dict[str, int]:
    """Members of an enumeration at a level; empty where they are 10.16's."""
    pairs = [entry.split("=") for entry in NUMBERS.get(level, {}).get(enumeration, "").split()]
    return {name: int(number) for name, number in pairs}
