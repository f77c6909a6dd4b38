"""Steps as ranges of NVTX, which Nsight Systems and others show."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tactix.base.errors import ConfigError
from tactix.run.observed import RunningStep, StepObserver


class NvtxSteps(StepObserver):
    """Runs each step in a range with its name. Raises ConfigError without the package nvtx."""

    def __init__(self) -> None:
        try:
            module: Any = importlib.import_module("nvtx")
        except ImportError as e:
            raise ConfigError(
                "NVTX ranges need the package nvtx", why=str(e), do="pip install nvtx"
            ) from None
        self._push: Callable[..., object] = module.push_range
        self._pop: Callable[[], object] = module.pop_range

    def step(self, running: RunningStep, /) -> None:
        """As any observer's."""
        self._push(running.step.name)
        try:
            running.run()
        finally:
            self._pop()
