"""What a plugin author imports: the contracts, the hook marker, the scalar functions and the rule
vocabulary.

Nothing here imports numpy, onnx or a vendor's library. ``prod``, ``ceildiv`` and ``mod`` compute
sizes, symbolic ones, too. Whole vocabularies: ``tactix_sdk.scalar`` (every scalar function),
``tactix_sdk.rules`` (patterns and templates), ``tactix_sdk.artifacts`` (kernels as data) and
``tactix_sdk.errors``.
"""

from tactix.base.dims import Dim, Shape, ceildiv, mod, prod
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, Format, TensorSpec, blocked
from tactix.contracts.allocator import Allocator
from tactix.contracts.build_stage import BuildPart, BuildStage
from tactix.contracts.calibrator import Calibrator
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import Device, DeviceProperties
from tactix.contracts.flavour import Flavour
from tactix.contracts.graph import Node, Value
from tactix.contracts.importer import Converter, Importer
from tactix.contracts.launcher import Launcher, LinkContext, Operand, Runnable, Step
from tactix.contracts.layer import Layer, NoAttrs
from tactix.contracts.presenter import Presenter
from tactix.contracts.region import Body, BodyNode, Program, program
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.contracts.tool import Tool
from tactix.contracts.trust import Seal, TrustStore
from tactix.plugins.hookspecs import hookimpl
from tactix_sdk.artifacts import Binary, KernelArtifact, Launch, Source
from tactix_sdk.host import layer, numpy_tactic
from tactix_sdk.importing import onnx_converter
from tactix_sdk.kernel import ALIAS, Follower, Kernel, Operation, c_tactic, cuda_tactic
from tactix_sdk.pack import Pack, PackLayer
from tactix_sdk.rules import ANY, P, Rule, any_of, const, fuse, literal, var
from tactix_sdk.running import Calls, array_at
from tactix_sdk.scalar import (
    Primitive,
    Scalar,
    abs_,
    and_,
    cast,
    ceil,
    cos,
    eq,
    erf,
    exp,
    expm1,
    floor,
    log,
    log1p,
    maximum,
    minimum,
    not_,
    or_,
    pow_,
    round_,
    rsqrt,
    select,
    sin,
    sqrt,
    tanh,
)
from tactix_sdk.scalar_layer import PointwiseLayer, pointwise

__all__ = [
    "ALIAS", "ANY", "Calls", "Follower", "Kernel", "Operation", "array_at", "c_tactic",
    "cuda_tactic", "layer", "numpy_tactic", "onnx_converter",
    "LINEAR", "NHWC", "Allocator", "Binary", "Body", "BodyNode", "BuildPart", "BuildStage",
    "Calibrator", "CompileContext", "Compiler", "Converter", "DType", "Device", "DeviceProperties",
    "Dim", "Flavour", "Format", "Importer", "KernelArtifact", "Launch", "Launcher", "Layer",
    "LinkContext", "NoAttrs", "Node", "Operand", "P", "Pack", "PackLayer", "PointwiseLayer",
    "Presenter", "Primitive", "Program", "Reject", "Rule", "Runnable", "Scalar", "Seal", "Shape",
    "Source", "Step", "Tactic", "TensorSpec", "Tool", "TrustStore", "Value", "Variant", "abs_",
    "and_", "any_of", "blocked", "cast", "ceil", "ceildiv", "const", "cos", "eq", "erf", "exp",
    "expm1", "floor", "fuse", "hookimpl", "literal", "log", "log1p", "maximum", "minimum", "mod",
    "not_", "or_", "pointwise", "pow_", "prod", "program", "round_", "rsqrt", "select", "sin",
    "sqrt", "tanh", "var",
]  # fmt: skip
