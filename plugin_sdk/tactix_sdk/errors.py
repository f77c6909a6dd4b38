"""The errors that a plugin raises. Each takes what failed, and by keyword ``who``, ``why`` and what
to ``do``.
"""

from tactix.base.errors import (
    AccuracyError,
    AllocationError,
    CompilerError,
    ConfigError,
    DTypeError,
    ExecutionError,
    InternalError,
    InvalidArgument,
    ModelImportError,
    NetworkError,
    PluginError,
    ShapeError,
    TactixError,
    UnsupportedOperator,
)

__all__ = [
    "AccuracyError", "AllocationError", "CompilerError", "ConfigError", "DTypeError",
    "ExecutionError", "InternalError", "InvalidArgument", "ModelImportError", "NetworkError",
    "PluginError", "ShapeError", "TactixError", "UnsupportedOperator",
]  # fmt: skip
