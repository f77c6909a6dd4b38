"""What a program may say to a session: ONNX Runtime's names, and those that mean something here.

Names that are none raise AttributeError, so that a misspelt one does not go unnoticed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "tactix."
"""Of session configuration entries that are options of ``tactix.build``."""


class GraphOptimizationLevel(enum.IntEnum):
    """Level 0 of a build for the first, what the builder does by itself for the others."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Steps run one behind the other in both."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True)
class SessionOptions:
    """``intra_op_num_threads``: of one run; 0 is what tactix takes by itself.
    ``graph_optimization_level``: see there. ``log_severity_level``: 0 verbose, 1 info, 2 warning, 3
    error, 4 fatal; -1 is the default, warnings.

    The others change nothing, as tactix has no such switch: memory is always planned, and steps run
    one behind the other.
    """

    intra_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    log_severity_level: int = -1
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = ""
    use_deterministic_compute: bool = False
    _entries: dict[str, str] = field(default_factory=dict)

    def add_session_config_entry(self, config_key: str, config_value: str) -> None:
        """Options of the build are ``tactix.precision``, ``tactix.level``, ``tactix.budget``,
        ``tactix.cache``; other keys are kept and mean nothing.
        """
        self._entries[config_key] = config_value

    def get_session_config_entry(self, config_key: str) -> str:
        """Raises KeyError for a key that was not added."""
        return self._entries[config_key]

    @property
    def build_entries(self) -> Mapping[str, str]:
        """Options of the build, by name."""
        return {
            key.removeprefix(PREFIX): value
            for key, value in self._entries.items()
            if key.startswith(PREFIX)
        }


@dataclass(slots=True)
class RunOptions:
    """Of one run. None of them changes anything."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    _entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, config_key: str, config_value: str) -> None:
        """Is kept and means nothing."""
        self._entries[config_key] = config_value
