"""Typed errors: what failed, who caused it, why, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


class ErrorCode(enum.IntEnum):
    """Error classes with TensorRT's names and numbers."""

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


def punctuated(parts: Iterable[str], mark: str = ". ") -> str:
    """The texts that are there with one mark between them, even where they end with one."""
    out = ""
    for text in (str(p).strip() for p in parts if p):
        out = f"{_ready(out, mark)}{text}" if out else text
    return out


def _ready(text: str, mark: str) -> str:
    """A text that another one follows."""
    if text.endswith(("?", "!", "...")):
        return f"{text} "
    return text.rstrip(".,;: ") + mark


class TactixError(Exception):
    """Base of every error that tactix raises on purpose.

    ``what`` failed, ``who`` caused it (node, plugin, file), ``why``, and what to ``do``; the
    message joins those given.
    """

    code = ErrorCode.UNSPECIFIED_ERROR

    def __init__(self, what: str, *, who: str = "", why: str = "", do: str = "") -> None:
        self.what, self.who, self.why, self.do = what, who, why, do
        super().__init__(what)

    def __str__(self) -> str:
        return punctuated((punctuated((self.who, self.what, self.why), ": "), self.do))


class InternalError(TactixError):
    """A broken promise inside tactix or a plugin; please report it."""

    code = ErrorCode.INTERNAL_ERROR


class InvalidArgument(TactixError, ValueError):
    """An argument has the wrong name, type, shape or range."""

    code = ErrorCode.INVALID_ARGUMENT


class ShapeError(InvalidArgument):
    """Shapes do not fit each other, the layer, or the profile."""


class DTypeError(InvalidArgument):
    """A dtype does not fit what the layer or tensor takes."""


class ConfigError(TactixError, ValueError):
    """Builder or session settings that contradict each other."""

    code = ErrorCode.INVALID_CONFIG


class NetworkError(TactixError):
    """A network that is not well formed."""

    code = ErrorCode.INVALID_ARGUMENT


@dataclass(frozen=True)
class ModelNode:
    """A node of a model. ``index``: its position in its graph; ``operator``: without domain;
    ``told``: where it is and why it could not be imported, where that is so.
    """

    index: int
    name: str
    operator: str
    told: str = ""


class ModelImportError(TactixError):
    """A model file that could not be turned into a network. ``nodes``: those that could not be,
    none where it is not about nodes.
    """

    code = ErrorCode.INVALID_ARGUMENT
    nodes: Sequence[ModelNode] = ()


class UnsupportedOperator(ModelImportError):
    """No enabled plugin gives an operator of the model a meaning."""

    code = ErrorCode.UNSUPPORTED_STATE


class NoTacticError(TactixError):
    """No tactic can run a node; the message lists each tactic's reason."""

    code = ErrorCode.UNSUPPORTED_STATE


class AccuracyError(TactixError):
    """A result departs from the reference beyond its budget."""

    code = ErrorCode.FAILED_COMPUTATION


class CompilerError(TactixError):
    """Source text that could not be turned into machine code.

    ``failed``: which sources, by digest, and why, where the compiler tells.
    """

    code = ErrorCode.FAILED_INITIALIZATION
    failed: Mapping[str, str] = MappingProxyType({})


class ToolchainError(CompilerError):
    """A compiler that would fail with any source: it is not there, or its output cannot be kept."""


class TimingCacheError(TactixError):
    """A timing cache that cannot be read, or a miss under ``frozen=True``."""

    code = ErrorCode.INVALID_STATE


class LockError(TactixError):
    """A lock file that cannot be read, or a frozen build that would differ from what it holds."""

    code = ErrorCode.INVALID_STATE


class BuildCancelled(TactixError):
    """The user stopped what gives nothing unless it is done: compiling, writing a lock."""

    code = ErrorCode.INVALID_STATE


class PlanFormatError(TactixError):
    """Bytes that are not a well-formed plan."""

    code = ErrorCode.INVALID_ARGUMENT


class PlanCompatibilityError(TactixError):
    """A well-formed plan that this machine or version cannot run; ``reasons`` lists why."""

    code = ErrorCode.UNSUPPORTED_STATE

    def __init__(self, what: str, *, reasons: tuple[str, ...] = (), **more: str) -> None:
        super().__init__(what, why=punctuated(reasons, "; "), **more)
        self.reasons = reasons


class UntrustedPlan(TactixError):
    """A plan whose code is not trusted, or whose signature does not fit it."""

    code = ErrorCode.UNSUPPORTED_STATE


class AllocationError(TactixError, MemoryError):
    """Memory that could not be had."""

    code = ErrorCode.FAILED_ALLOCATION


class ExecutionError(TactixError):
    """A step of a plan that failed while running."""

    code = ErrorCode.FAILED_EXECUTION


class DataError(ExecutionError):
    """Values of inputs that a step cannot take, as an index out of range: others would run."""


class DeviceLost(ExecutionError):
    """A device that can do nothing more for this process."""


class EngineClosed(TactixError):
    """An engine was used after it was closed, or closed while a request waited for it."""

    code = ErrorCode.INVALID_STATE


class DeadlineExceeded(TactixError, TimeoutError):
    """A request was not answered in the time that its caller gave it."""

    code = ErrorCode.FAILED_EXECUTION


class QueueFull(TactixError):
    """As many requests wait as may; the caller did not want to wait behind them."""

    code = ErrorCode.INVALID_STATE


def out_of_range(index: int, size: int, who: str = "") -> DataError:
    """The error for an index into an axis of ``size`` elements that it does not have."""
    what, why = f"index {index} is out of range", f"the axis has {size} elements"
    return DataError(what, who=who, why=why, do="Indices go from -size to size - 1")


class PluginError(TactixError):
    """A plugin that is missing, broken or in conflict."""

    code = ErrorCode.FAILED_INITIALIZATION

    def __init__(
        self,
        what: str,
        *,
        key: str = "",
        dist: str = "",
        version: str = "",
        phase: str = "",
        **more: str,
    ) -> None:
        super().__init__(what, **more)
        self.key, self.dist, self.version, self.phase = key, dist, version, phase
