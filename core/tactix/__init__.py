"""tactix: ONNX in, a fused and autotuned plan out, a small fast runtime; every part a plugin.

    import tactix
    engine = tactix.build("model.onnx")
    y = engine(x)
    engine.save("model.plan")
    engine = tactix.load("model.plan")

Importing this package loads no other: names are fetched when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "tactix.api": "build load load_or_build",
    "tactix.builder": "Builder",
    "tactix.contracts.calibrator": "Calibration",
    "tactix.config": (
        "BuilderConfig BuilderFlag MemoryPoolType OptimizationProfile ProfilingVerbosity"
    ),
    "tactix.network.definition": "NetworkDefinition",
    "tactix.plan.schema": "Plan",
    "tactix.plugins.session": "Session",
    "tactix.run.context": "ExecutionContext",
    "tactix.run.engine": "Engine",
    "tactix.run.runtime": "Runtime",
    "tactix.base.dtypes": "DType",
    "tactix.base.error_recorder": "ErrorRecorder",
    "tactix.base.errors": "ErrorCode TactixError",
    "tactix.base.logger": "Logger Severity",
    "tactix.base.progress": "ProgressMonitor",
}

_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "__version__", "Builder", "BuilderConfig", "BuilderFlag", "Calibration", "DType", "Engine",
    "ErrorCode", "ErrorRecorder", "ExecutionContext", "Logger", "MemoryPoolType",
    "NetworkDefinition", "OptimizationProfile", "Plan", "ProfilingVerbosity", "ProgressMonitor",
    "Runtime", "Session", "Severity", "TactixError", "build", "load", "load_or_build",
]  # fmt: skip

if TYPE_CHECKING:
    from tactix.api import build, load, load_or_build
    from tactix.base.dtypes import DType
    from tactix.base.error_recorder import ErrorRecorder
    from tactix.base.errors import ErrorCode, TactixError
    from tactix.base.logger import Logger, Severity
    from tactix.base.progress import ProgressMonitor
    from tactix.builder import Builder
    from tactix.config import (
        BuilderConfig,
        BuilderFlag,
        MemoryPoolType,
        OptimizationProfile,
        ProfilingVerbosity,
    )
    from tactix.contracts.calibrator import Calibration
    from tactix.network.definition import NetworkDefinition
    from tactix.plan.schema import Plan
    from tactix.plugins.session import Session
    from tactix.run.context import ExecutionContext
    from tactix.run.engine import Engine
    from tactix.run.runtime import Runtime


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'tactix' has no attribute {name!r}")
    found = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
