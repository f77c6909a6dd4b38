"""TensorRT's enumerations, which behave and print as pybind11's: no integers, but ``int(x)`` works.

Numbers and order are those of TensorRT 10.16; ``numbering`` has what other levels differ in.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from tactix_tensorrt import levels, numbering


class Enum(enum.Enum):
    """As pybind11 makes them: equal to itself alone, and ``int(x)`` is its number."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    @property
    def mask(self) -> int:
        """The bit that stands for it in masks."""
        return 1 << int(self.value)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        numbers = numbering.numbers(levels.current(), cls.__name__)
        if numbers:
            _relist(cls, numbers)


def _relist(cls: type[Enum], numbers: Mapping[str, int]) -> None:
    """Let it have those members alone, which an Enum itself does not change; the first name of a
    number is the member's, later ones are aliases."""
    known = dict(cls._member_map_)
    for name in known.keys() & vars(cls).keys():
        type.__delattr__(cls, name)
    for table in (cls._member_map_, cls._member_names_, cls._value2member_map_):
        table.clear()
    for name, number in numbers.items():
        if number not in cls._value2member_map_:
            member = known.get(name) or object.__new__(cls)
            member._name_, member._value_ = name, number
            cls._value2member_map_[number] = member
            cls._member_names_.append(name)
        cls._member_map_[name] = cls._value2member_map_[number]
        type.__setattr__(cls, name, cls._member_map_[name])


class OrderedEnum(Enum):
    """One whose members have an order; those of other kinds, and numbers, have none in it."""

    def __lt__(self, other: Enum) -> bool:
        return self._number_of(other) > int(self)

    def __le__(self, other: Enum) -> bool:
        return self._number_of(other) >= int(self)

    def __gt__(self, other: Enum) -> bool:
        return self._number_of(other) < int(self)

    def __ge__(self, other: Enum) -> bool:
        return self._number_of(other) <= int(self)

    def _number_of(self, other: Enum) -> int:
        if type(other) is not type(self):
            raise TypeError("Expected an enumeration of matching type!")
        return int(other)


class DataType(Enum):
    """Types of elements."""

    FLOAT = 0
    HALF = 1
    BF16 = 7
    INT8 = 2
    INT32 = 3
    INT64 = 8
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    INT4 = 9
    FP4 = 10
    E8M0 = 11

    @property
    def itemsize(self) -> float:
        """Bytes of one element; half a byte for 4 bits."""
        return _BITS[self.value] / 8 if _BITS[self.value] < 8 else _BITS[self.value] // 8


class TensorFormat(Enum):
    """How elements of inputs and outputs lie."""

    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5
    DHWC8 = 6
    CDHW32 = 7
    HWC = 8
    DLA_LINEAR = 9
    DLA_HWC4 = 10
    HWC16 = 11
    DHWC = 12


class TensorIOMode(Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Enum):
    DEVICE = 0
    HOST = 1


class Severity(OrderedEnum):
    """How bad a message is: lower is worse."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class BuilderFlag(Enum):
    """Switches of a build."""

    FP16 = 0
    BF16 = 17
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    EDITABLE_TIMING_CACHE = 27
    TF32 = 6
    SPARSE_WEIGHTS = 7
    SAFETY_SCOPE = 8
    OBEY_PRECISION_CONSTRAINTS = 9
    PREFER_PRECISION_CONSTRAINTS = 10
    DIRECT_IO = 11
    REJECT_EMPTY_ALGORITHMS = 12
    VERSION_COMPATIBLE = 13
    EXCLUDE_LEAN_RUNTIME = 14
    FP8 = 15
    ERROR_ON_TIMING_CACHE_MISS = 16
    DISABLE_COMPILATION_CACHE = 18
    WEIGHTLESS = 19
    STRIP_PLAN = 19
    REFIT_IDENTICAL = 20
    WEIGHT_STREAMING = 21
    INT4 = 22
    REFIT_INDIVIDUAL = 23
    STRICT_NANS = 24
    MONITOR_MEMORY = 25
    FP4 = 26
    DISTRIBUTIVE_INDEPENDENCE = 28


class NetworkDefinitionCreationFlag(Enum):
    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_AOT_PYTHON_PLUGINS = 3
    PREFER_JIT_PYTHON_PLUGINS = 2


class QuantizationFlag(Enum):
    CALIBRATE_BEFORE_FUSION = 0


class CalibrationAlgoType(Enum):
    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class DeviceType(Enum):
    GPU = 0
    DLA = 1


class EngineCapability(Enum):
    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class HardwareCompatibilityLevel(Enum):
    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class RuntimePlatform(Enum):
    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class MemoryPoolType(Enum):
    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class PreviewFeature(Enum):
    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2
    MULTIDEVICE_RUNTIME_10_16 = 3


class ProfilingVerbosity(Enum):
    LAYER_NAMES_ONLY = 0
    DETAILED = 2
    NONE = 1


class TacticSource(Enum):
    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class TilingOptimizationLevel(Enum):
    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3


class ExecutionContextAllocationStrategy(Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class LayerInformationFormat(Enum):
    ONELINE = 0
    JSON = 1


class SerializationFlag(Enum):
    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class OnnxParserFlag(Enum):
    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class ErrorCode(Enum):
    SUCCESS = 0
    INTERNAL_ERROR = 1
    MEM_ALLOC_FAILED = 2
    MODEL_DESERIALIZE_FAILED = 3
    INVALID_VALUE = 4
    INVALID_GRAPH = 5
    INVALID_NODE = 6
    UNSUPPORTED_GRAPH = 7
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13
    REFIT_FAILED = 14


class ErrorCodeTRT(Enum):
    """Classes of errors that error recorders are told."""

    SUCCESS = 0
    UNSPECIFIED_ERROR = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_CONFIG = 4
    FAILED_ALLOCATION = 5
    FAILED_INITIALIZATION = 6
    FAILED_EXECUTION = 7
    FAILED_COMPUTATION = 8
    INVALID_STATE = 9
    UNSUPPORTED_STATE = 10


class TempfileControlFlag(Enum):
    ALLOW_IN_MEMORY_FILES = 0
    ALLOW_TEMPORARY_FILES = 1


class WeightsRole(Enum):
    KERNEL = 0
    BIAS = 1
    SHIFT = 2
    SCALE = 3
    CONSTANT = 4
    ANY = 5


class AllocatorFlag(Enum):
    RESIZABLE = 0


class SeekPosition(Enum):
    SET = 0
    CUR = 1
    END = 2


class ActivationType(Enum):
    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class PoolingType(Enum):
    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class PaddingMode(Enum):
    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class ElementWiseOperation(Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class UnaryOperation(Enum):
    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


class ReduceOperation(Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class TopKOperation(Enum):
    MAX = 0
    MIN = 1


class MatrixOperation(Enum):
    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class ScaleMode(Enum):
    UNIFORM = 0
    CHANNEL = 1
    ELEMENTWISE = 2


class GatherMode(Enum):
    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class ScatterMode(Enum):
    ELEMENT = 0
    ND = 1


class FillOperation(Enum):
    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class SampleMode(Enum):
    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class InterpolationMode(Enum):
    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class ResizeCoordinateTransformation(Enum):
    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeSelector(Enum):
    FORMULA = 0
    UPPER = 1


class ResizeRoundMode(Enum):
    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class CumulativeOperation(Enum):
    SUM = 0


class BoundingBoxFormat(Enum):
    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class TripLimit(Enum):
    COUNT = 0
    WHILE = 1


class LoopOutput(Enum):
    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class AttentionNormalizationOp(Enum):
    NONE = 0
    SOFTMAX = 1


class KVCacheMode(Enum):
    LINEAR = 0


class CollectiveOperation(Enum):
    ALL_REDUCE = 0
    ALL_GATHER = 1
    BROADCAST = 2
    REDUCE = 3
    REDUCE_SCATTER = 4


class DimensionOperation(Enum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    EQUAL = 5
    LESS = 6
    FLOOR_DIV = 7
    CEIL_DIV = 8


class PluginFieldType(Enum):
    FLOAT16 = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    CHAR = 6
    DIMS = 7
    UNKNOWN = 8
    BF16 = 9
    INT64 = 10
    FP8 = 11
    INT4 = 12
    FP4 = 13


class PluginCapabilityType(Enum):
    CORE = 0
    BUILD = 1
    RUNTIME = 2


class TensorRTPhase(Enum):
    BUILD = 0
    RUNTIME = 1


class PluginCreatorVersion(Enum):
    V1 = 0
    V1_PYTHON = 64


class APILanguage(Enum):
    """What a plugin or a callback is written in."""

    CPP = 0
    PYTHON = 1


class EngineStat(Enum):
    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1


class MoEActType(Enum):
    NONE = 0
    SILU = 1


class AttentionIOForm(Enum):
    PADDED_BHND = 0
    PACKED_NHD = 1


class CausalMaskKind(Enum):
    NONE = 0
    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class PluginArgDataType(Enum):
    INT8 = 0
    INT16 = 1
    INT32 = 2


class PluginArgType(Enum):
    INT = 0


class QuickPluginCreationRequest(Enum):
    UNKNOWN = 0
    PREFER_JIT = 1
    PREFER_AOT = 2
    STRICT_JIT = 3
    STRICT_AOT = 4


class LayerType(Enum):
    CONVOLUTION = 0
    GRID_SAMPLE = 42
    NMS = 43
    ACTIVATION = 2
    POOLING = 3
    LRN = 4
    SCALE = 5
    SOFTMAX = 6
    DECONVOLUTION = 7
    CONCATENATION = 8
    ELEMENTWISE = 9
    PLUGIN = 10
    UNARY = 11
    PADDING = 12
    SHUFFLE = 13
    REDUCE = 14
    TOPK = 15
    GATHER = 16
    MATRIX_MULTIPLY = 17
    RAGGED_SOFTMAX = 18
    CONSTANT = 19
    IDENTITY = 20
    CAST = 1
    PLUGIN_V2 = 21
    SLICE = 22
    SHAPE = 23
    PARAMETRIC_RELU = 24
    RESIZE = 25
    TRIP_LIMIT = 26
    RECURRENCE = 27
    ITERATOR = 28
    LOOP_OUTPUT = 29
    SELECT = 30
    ASSERTION = 39
    FILL = 31
    QUANTIZE = 32
    DEQUANTIZE = 33
    CONDITION = 34
    CONDITIONAL_INPUT = 35
    CONDITIONAL_OUTPUT = 36
    SCATTER = 37
    EINSUM = 38
    ONE_HOT = 40
    NON_ZERO = 41
    REVERSE_SEQUENCE = 44
    NORMALIZATION = 45
    PLUGIN_V3 = 46
    SQUEEZE = 47
    UNSQUEEZE = 48
    CUMULATIVE = 49
    DYNAMIC_QUANTIZE = 50
    ATTENTION_INPUT = 51
    ATTENTION_OUTPUT = 52
    ROTARY_EMBEDDING = 53
    KV_CACHE_UPDATE = 54
    MOE = 55
    DIST_COLLECTIVE = 56


_BITS = (32, 16, 8, 32, 8, 8, 8, 16, 64, 4, 4, 8)
"""Of one element of each DataType, by its number."""
