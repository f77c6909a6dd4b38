"""``tensorrt.plugin``: plugins as a few functions. Python imports it under both names, so that
nothing is defined here.
"""

from __future__ import annotations

from tactix_tensorrt import levels
from tactix_tensorrt.quick.definitions import aot_impl, autotune, impl, op, register
from tactix_tensorrt.quick.kernels import KernelLaunchParams
from tactix_tensorrt.quick.sizes import (
    ShapeExpr,
    ShapeExprs,
    SizeTensorShapeExpr,
    SymExprs,
    SymInt8,
    SymInt16,
    SymInt32,
    SymIntExprs,
    cdiv,
    max,
    min,
)
from tactix_tensorrt.quick.tensors import (
    Shape,
    SizeTensorDesc,
    Tensor,
    TensorDesc,
    from_shape_expr,
    size_tensor,
)
from tactix_tensorrt.quick.tuning import AutoTuneCombination

__all__ = [
    "AutoTuneCombination",
    "KernelLaunchParams",
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "SizeTensorDesc",
    "SizeTensorShapeExpr",
    "SymExprs",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymIntExprs",
    "Tensor",
    "TensorDesc",
    "aot_impl",
    "autotune",
    "cdiv",
    "from_shape_expr",
    "impl",
    "max",
    "min",
    "op",
    "register",
    "size_tensor",
]

if levels.current() == "8.6":
    raise ImportError("tensorrt.plugin is not of TensorRT 8.6")
