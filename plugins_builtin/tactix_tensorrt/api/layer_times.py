"""What a program's profiler is told: the times of a run's steps, at once or when it asks."""

from __future__ import annotations

from tactix_tensorrt.api.callbacks import IProfiler


class LayerTimes:
    """tactix's view of a program's profiler. ``profiler``: the program's."""

    def __init__(self, profiler: IProfiler) -> None:
        self.profiler = profiler
        self._steps: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self._steps.append((layer_name, ms))

    def begin(self) -> None:
        """A run begins: what is known of the one before it is forgotten."""
        self._steps.clear()

    def tell(self) -> bool:
        """Tell the program of the last run; False if there is nothing that was not told."""
        steps, self._steps = self._steps, []
        for name, ms in steps:
            self.profiler.report_layer_time(name, ms)
        return bool(steps)
