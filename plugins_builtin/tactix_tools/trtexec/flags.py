"""Flags of trtexec: which there are, in TensorRT's spelling, and what becomes of each here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Standing(Enum):
    """What becomes of a flag."""

    SERVED = "yes"
    KEPT = "changes nothing"
    REFUSED = "refused"


@dataclass(frozen=True)
class Flag:
    """``value``: what stands behind ``=``, empty for a switch. ``why``: of one that is kept, what
    is so anyway; of one that is refused, what to do.
    """

    name: str
    value: str
    help: str
    standing: Standing = Standing.SERVED
    why: str = ""

    @property
    def spelling(self) -> str:
        """As it is written on a command line."""
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


def _kept(name: str, value: str, help: str, why: str) -> Flag:
    return Flag(name, value, help, Standing.KEPT, why)


def _refused(name: str, value: str, help: str, do: str) -> Flag:
    return Flag(name, value, help, Standing.REFUSED, do)


_CALIBRATE = "Calibrate before, by `tactix quantize --cache FILE`, and give --calib=FILE"
_NO_DLA = "There is no DLA here: Leave it out"
_PACKS = "tactix loads no library of TensorRT's: Make a pack of it (`tactix-sdk new`)"
_SAFE = "There is no safety runtime here: Leave it out"
_TUNER = "Tune with --builderOptimizationLevel"
_COMPARE = "Use `tactix compare`"
_MEASURED = "tactix decides what to measure by --builderOptimizationLevel"
_GRAPHS = "tactix records kernels in graphs of its own, where the device has any"
TUNING = (
    "tuneBuildRoutes",
    "tuneBuildRouteFile",
    "tuningSearch",
    "tuningCacheFile",
    "tuningResultFile",
    "tuningTimeOut",
    "setBuildRoute",
)
COMPARING = (
    "loadRefOutputs",
    "accuracyAlgorithm",
    "atol",
    "rtol",
    "accuracyThreshold",
    "refPair",
)

MODEL = (Flag("onnx", "FILE", "the model"),)

BUILD = (
    Flag("saveEngine", "FILE", "write the plan"),
    Flag("loadEngine", "FILE", "read a plan of tactix's instead of building one"),
    Flag("skipInference", "", "end after the build"),
    Flag("buildOnly", "", "as --skipInference"),
    Flag("minShapes", "SPEC", "lowest shapes of the profile: x:1x3x224x224,mask:1x128"),
    Flag("optShapes", "SPEC", "shapes to tune for; alone, they are lowest and highest, too"),
    Flag("maxShapes", "SPEC", "highest shapes of the profile"),
    Flag("profile", "N", "the profile that the shapes behind it are of"),
    Flag("inputIOFormats", "SPEC", "type:chw of all inputs or of each; the type is the model's"),
    Flag("outputIOFormats", "SPEC", "type:chw of all outputs or of each"),
    Flag("fp16", "", "layers may be computed in FP16"),
    Flag("bf16", "", "layers may be computed in BF16"),
    Flag("int8", "", "layers may be computed in INT8, by --calib; Q/DQ nodes run so anyway"),
    _kept("fp8", "", "layers may be computed in FP8", "Q/DQ nodes say what may"),
    _kept("int4", "", "layers may be computed in INT4", "Q/DQ nodes say what may"),
    Flag("best", "", "as --fp16 --bf16 --int8"),
    Flag("noTF32", "", "FP32 products are not rounded to TF32"),
    Flag("stronglyTyped", "", "types are the model's: the flags of precision are left out"),
    Flag("precisionConstraints", "none|obey|prefer", "what becomes of --layerPrecisions"),
    Flag(
        "layerPrecisions", "SPEC", "layer:fp32|fp16|bf16|int8, with commas between; * as in files"
    ),
    _refused(
        "layerOutputTypes", "SPEC", "types of layers' outputs", "Put Cast nodes into the model"
    ),
    Flag("calib", "FILE", "for --int8: a calibration cache"),
    _refused("minShapesCalib", "SPEC", "lowest shapes to calibrate with", _CALIBRATE),
    _refused("optShapesCalib", "SPEC", "shapes to calibrate with", _CALIBRATE),
    _refused("maxShapesCalib", "SPEC", "highest shapes to calibrate with", _CALIBRATE),
    _refused("calibProfile", "N", "the profile to calibrate with", _CALIBRATE),
    Flag("sparsity", "disable|enable|force", "enable changes nothing; force is refused"),
    Flag("memPoolSize", "SPEC", "workspace:512 in MiB, or with a suffix B, K, M or G"),
    Flag("builderOptimizationLevel", "0..5", "how much to measure"),
    Flag("timingCacheFile", "FILE", "read timings if it is there, and write them"),
    Flag("noBuilderCache", "", "no timing cache"),
    _kept("noCompilationCache", "", "no cache of compiled kernels", "tactix has one of its own"),
    Flag("errorOnTimingCacheMiss", "", "fail where a timing is not in the cache"),
    Flag("tacticSources", "SPEC", "-CUBLAS,-CUDNN leaves libraries out, + takes them in"),
    _kept("avgTiming", "N", "measurements of a tactic", _MEASURED),
    Flag("maxTactics", "N", "tactics to try for a layer"),
    Flag("maxAuxStreams", "N", "streams beside the caller's"),
    _kept("tilingOptimizationLevel", "NAME", "effort for tilings", _MEASURED),
    _kept("l2LimitForTiling", "N", "bytes of cache for tilings", _MEASURED),
    Flag("hardwareCompatibilityLevel", "none|ampere+", "GPUs that the plan runs on"),
    Flag(
        "runtimePlatform", "NAME", "where the plan will run: SameAsBuild; WindowsAMD64 is refused"
    ),
    Flag("versionCompatible", "", "the plan brings its runtime"),
    Flag("vc", "", "as --versionCompatible"),
    Flag("excludeLeanRuntime", "", "such a plan without the runtime"),
    _refused("useRuntime", "NAME", "what runs the plan", "Use `tactix bench --flavour`"),
    _refused("leanDLLPath", "FILE", "a lean runtime", "Use `tactix bench --lean-runtime`"),
    _kept("preview", "SPEC", "preview features", "there are none here"),
    _kept("directIO", "", "no conversion of inputs and outputs", "only formats asked for are made"),
    Flag("refit", "", "the plan takes other weights"),
    Flag("stripWeights", "", "no weights in the plan: the same ones, with --refit others"),
    Flag("stripAllWeights", "", "as --refit --stripWeights"),
    Flag("weightless", "", "as --stripWeights"),
    Flag("refitFromOnnx", "FILE", "refit the engine with a model's weights before it is run"),
    Flag("dumpRefit", "", "print names of weights that a refit may change"),
    Flag("allowWeightStreaming", "", "engines may hold fewer weights than there are"),
    Flag("markDebug", "NAMES", "tensors that --saveDebugTensors may write, separated by commas"),
    Flag("markUnfusedTensorsAsDebugTensors", "", "all that fusions leave are such tensors"),
    _refused("layerDeviceTypes", "SPEC", "layers on a DLA", _NO_DLA),
    _kept("decomposableAttentions", "SPEC", "attentions to take apart", "tactix decides that"),
    _kept("pluginInstanceNorm", "", "InstanceNormalization by a plugin", "it is tactix's own"),
    _kept("pi", "", "as --pluginInstanceNorm", "it is tactix's own"),
    _kept("enablePluginOverride", "", "plugins before operators", "packs are enabled by name"),
    _kept("distributiveIndependence", "", "axes that do not meet", "so they do here"),
    _kept("monitorMemory", "", "print memory while building", "tactix prints none"),
    _kept("asyncFileReader", "", "read plans while loading", "plans are mapped"),
    _kept("explicitBatch", "", "the batch is an axis", "it always is"),
    _refused("getPlanVersionOnly", "", "print a plan's version", "Use `tactix inspect PLAN`"),
    _refused("remoteAutoTuningConfig", "SPEC", "tune elsewhere", "Build where the plan will run"),
    _refused("cpuOnly", "", "build without a GPU", "Set TACTIX_TENSORRT_DEVICE=cpu"),
    Flag("workspace", "N", "before TensorRT 10: as --memPoolSize=workspace:N"),
    _kept("heuristic", "", "before TensorRT 10: guess tactics", _MEASURED),
    _kept("minTiming", "N", "before TensorRT 10: measurements of a tactic", _MEASURED),
    _refused("maxBatch", "N", "before TensorRT 10", "Use --maxShapes"),
    _refused("safe", "", "safety builds", _SAFE),
    _refused("std", "", "standard builds beside --safe", _SAFE),
    _refused("restricted", "", "safety's restrictions", _SAFE),
    _refused("consistency", "", "check a plan for safety", _SAFE),
    *(_refused(name, "SPEC", "the tuner of TensorRT 11", _TUNER) for name in TUNING),
)

INFERENCE = (
    Flag("shapes", "SPEC", "shapes of inputs; by default those tuned for"),
    Flag("loadInputs", "SPEC", "x:FILE,y:FILE with raw bytes; others are random"),
    Flag("iterations", "N", "queries at least"),
    Flag("warmUp", "MS", "before measuring"),
    Flag("duration", "S", "seconds at least"),
    Flag("sleepTime", "MS", "between launch and compute; refused but for 0"),
    Flag("idleTime", "MS", "of rest between queries"),
    Flag("infStreams", "N", "contexts that run beside each other"),
    Flag("streams", "N", "as --infStreams"),
    Flag("threads", "", "each stream on a thread of its own"),
    Flag("useProfile", "N", "the profile of the contexts"),
    Flag("noDataTransfers", "", "leave inputs and outputs on the device while measuring"),
    Flag("includeDataTransfers", "", "the opposite, which is the default"),
    _kept("useCudaGraph", "", "replay a recorded graph", _GRAPHS),
    _kept("noCudaGraph", "", "the opposite", _GRAPHS),
    _kept("useSpinWait", "", "wait busily", "the driver's own way of waiting is used"),
    _kept("noSpinWait", "", "the opposite", "the driver's own way of waiting is used"),
    _kept("exposeDMA", "", "transfers one after the other", "they are anyway"),
    _kept("useManagedMemory", "", "memory that moves by itself", "copies are explicit"),
    _kept("separateProfileRun", "", "take layers' times in other runs", "they are taken in others"),
    _kept("allocationStrategy", "NAME", "memory of contexts", "contexts take what shapes need"),
    Flag("persistentCacheRatio", "0..1", "refused but for 0"),
    Flag("weightStreamingBudget", "SPEC", "weights in memory at once: 25%, or MiB, or with B to G"),
    Flag("timeDeserialize", "", "only tell how long a plan takes to load"),
    Flag("timeRefit", "", "tell how long --refitFromOnnx took"),
    _refused("batch", "N", "before TensorRT 10", "Use --shapes"),
    Flag("saveDebugTensors", "SPEC", "write tensors that are marked as raw bytes: x:FILE,y:FILE"),
    Flag("saveAllDebugTensors", "FORMATS", "write all: summary, numpy, string, raw"),
    *(_refused(name, "SPEC", "a comparison of TensorRT 11", _COMPARE) for name in COMPARING),
)

REPORTING = (
    Flag("verbose", "", "print messages of the build, too"),
    Flag("avgRuns", "N", "queries that are averaged in a line"),
    Flag("percentile", "P,...", "percentiles to tell"),
    Flag("profilingVerbosity", "NAME", "what a plan tells of its layers: names, all, nothing"),
    Flag("dumpOutput", "", "print outputs of the last query"),
    Flag("dumpRawBindingsToFile", "", "write inputs and outputs of the last query"),
    Flag("dumpProfile", "", "print times of layers"),
    Flag("dumpLayerInfo", "", "print layers"),
    Flag("dumpOptimizationProfile", "", "print shapes of profiles"),
    _refused("dumpKernelText", "", "print kernels", "Use `tactix inspect PLAN --source NODE`"),
    Flag("exportTimes", "FILE", "write times of queries as JSON"),
    Flag("exportOutput", "FILE", "write outputs of the last query as JSON"),
    Flag("exportProfile", "FILE", "write times of layers as JSON"),
    Flag("exportLayerInfo", "FILE", "write layers as JSON"),
)

SYSTEM = (
    Flag("device", "N", "refused but for 0: set CUDA_VISIBLE_DEVICES"),
    Flag("useDLACore", "N", "layers are for a DLA: refused without --allowGPUFallback"),
    Flag("allowGPUFallback", "", "they run beside the others"),
    _refused("buildDLAStandalone", "", "a plan for a DLA", _NO_DLA),
    _refused("adjustForDLA", "", "a model for a DLA", _NO_DLA),
    _refused("reportCapabilityDLA", "", "what a DLA has", _NO_DLA),
    Flag("plugins", "FILE", "as --staticPlugins"),
    Flag(
        "staticPlugins",
        "FILE",
        "run a file of Python that registers plugins; libraries are refused",
    ),
    Flag("dynamicPlugins", "FILE", "as --staticPlugins"),
    _refused("setPluginsToSerialize", "FILE", "a library in the plan", _PACKS),
    _kept("ignoreParsedPluginLibs", "", "libraries that a model names", "none are loaded"),
    _refused("safetyPlugins", "FILE", "a library of plugins", _PACKS),
    _kept("tempdir", "DIR", "where temporary files go", "TMPDIR says it"),
    _kept("tempfileControls", "SPEC", "whether there are temporary files", "TMPDIR says where"),
    Flag("help", "", "print the flags"),
    Flag("h", "", "as --help; also -h"),
    Flag("install", "DIR", "tactix's own: put a program `trtexec` into a folder"),
)

GROUPS = {
    "Model": MODEL,
    "Build": BUILD,
    "Inference": INFERENCE,
    "Reporting": REPORTING,
    "System": SYSTEM,
}
KNOWN = {flag.name: flag for group in GROUPS.values() for flag in group}
