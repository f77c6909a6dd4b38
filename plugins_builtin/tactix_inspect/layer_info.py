"""A plan's steps as TensorRT's engine inspector tells of layers, for the explorers of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tactix.base.dims import Dim, Env, Expr, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import Format
from tactix.contracts.launcher import Operand, Step
from tactix.plan.schema import Plan

TYPES: Mapping[str, str] = {
    "ConvTranspose": "Deconvolution", "MatMul": "MatrixMultiply", "Gemm": "MatrixMultiply",
    "pointwise": "PointWise", "Softmax": "SoftMax", "MaxPool": "Pooling", "AveragePool": "Pooling",
    "GlobalAveragePool": "Pooling", "GlobalMaxPool": "Pooling", "Reshape": "Shuffle",
    "Transpose": "Shuffle", "Concat": "Concatenation", "LayerNormalization": "Normalization",
    "InstanceNormalization": "Normalization", "GroupNormalization": "Normalization",
}  # fmt: skip
"""TensorRT's names of layers, where they differ from tactix's."""

NUMBERS: Mapping[DType, str] = {
    DType.FP16: "FP16 format", DType.BF16: "BFloat16 format", DType.INT8: "Int8 format",
    DType.UINT8: "UInt8 format", DType.INT32: "Int32", DType.INT64: "Int64 format",
    DType.FP8: "FP8 format",
}  # fmt: skip
"""As the inspector writes dtypes; others by their own name."""

WIDTHS: Mapping[int, str] = {2: "Two", 4: "Four", 8: "Eight", 16: "Sixteen", 32: "Thirty-two"}

WEIGHTS: Mapping[DType, str] = {
    DType.FP32: "Float", DType.FP16: "Half", DType.INT8: "Int8", DType.INT32: "Int32",
}  # fmt: skip

NONE: Env = {}


def layers_document(plan: Plan, env: Env = NONE) -> dict[str, object]:
    """What ``trtexec --exportLayerInfo`` writes. ``env``: values of symbols; a dim that needs one
    without is -1.
    """
    return {
        "Layers": [layer_facts(plan, i, env) for i in range(len(plan.steps))],
        "Bindings": [io.name for io in (*plan.inputs, *plan.outputs)],
    }


def layer_facts(plan: Plan, index: int, env: Env = NONE) -> dict[str, object]:
    """One step, with the inspector's keys."""
    step = plan.steps[index]
    info = step.info
    kind = str(info.get("kind", step.artifact.launcher))
    name = kind.split("@")[0].rpartition(".")[2]
    facts: dict[str, object] = {
        "Name": step.name,
        "LayerType": TYPES.get(name, name),
        "Inputs": _tensors(plan, step.inputs, env),
        "Outputs": _tensors(plan, step.outputs, env),
        "TacticName": str(info.get("tactic", step.artifact.launcher)),
        "TacticValue": str(info.get("variant", "")),
        "StreamId": 0,
        "Metadata": _metadata(step),
    }
    weights = _weights(plan, step)
    return {**facts, **weights}


def _metadata(step: Step) -> str:
    """The model's nodes that a step stands for, divided as TensorRT does."""
    origin = step.info.get("origin")
    names = origin if isinstance(origin, (list, tuple)) else ()
    return "\x1e".join(f"[ONNX Layer: {name}]" for name in names)


def _tensors(plan: Plan, operands: Sequence[Operand], env: Env) -> list[dict[str, object]]:
    """What is read or written, but for weights."""
    return [
        {
            "Name": plan.buffers[o.buffer].name,
            "Location": "Host" if o.spec.dtype.on_host else "Device",
            "Dimensions": [_size(d, env) for d in o.spec.shape],
            "Format/Datatype": format_name(o.format, o.spec.dtype),
        }
        for o in operands
        if o.buffer >= 0 and not plan.buffers[o.buffer].blob
    ]


def _size(d: Dim, env: Env) -> int:
    if not isinstance(d, Expr):
        return d
    return evaluate(d, env) if symbols(d) <= env.keys() else -1


def format_name(fmt: Format, dtype: DType) -> str:
    """``Row major linear FP32``, ``Channel major FP16 format``."""
    number = NUMBERS.get(dtype, dtype.name)
    if fmt.is_linear:
        return f"Row major {number}" if dtype is DType.INT8 else f"Row major linear {number}"
    number = number if number.endswith(" format") else f"{number} format"
    if fmt.lanes == 1:
        return f"Channel major {number}"
    width = WIDTHS.get(fmt.lanes, str(fmt.lanes))
    return f"{width} wide channel vectorized row major {number}"


def _weights(plan: Plan, step: Step) -> dict[str, object]:
    """The type and number of a step's largest constant, if it has one of a type that TensorRT
    names.
    """
    read = {*step.constants.values(), *(o.buffer for o in step.inputs if o.buffer >= 0)}
    found = [b for b in (plan.buffers[i] for i in read) if b.blob and b.dtype in WEIGHTS]
    if not found:
        return {}
    b = max(found, key=lambda b: _size(b.nbytes, NONE))
    count = _size(b.nbytes, NONE) // b.dtype.itemsize
    return {"Weights": {"Type": WEIGHTS[b.dtype], "Count": count}}
