"""What every engine tells of its plan, of the file that it came from, and of its requests; and that
it is closed at the end of a block.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tactix.base.dims import Shape, show
from tactix.base.dtypes import DType
from tactix.base.error_recorder import Recorded
from tactix.base.errors import EngineClosed, InvalidArgument
from tactix.plan.schema import Plan, TensorIO
from tactix.run.plan_file import PlanFile, RuntimeSettings, reopen
from tactix.run.request_stats import EngineStats, RequestLog

if TYPE_CHECKING:
    from tactix.run.request_pool import RequestPool


class EngineFacts(Recorded):
    """``closed``: whether it can run no more."""

    _log: RequestLog
    _pool: RequestPool | None

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.name, self.inputs, self.outputs, self.profiles = (
            plan.name,
            plan.inputs,
            plan.outputs,
            plan.profiles,
        )
        self.closed = False
        self._file: PlanFile | None = None

    def survive_forks(self) -> None:
        """Once it is whole: from then on a child process has it, too."""
        _engines.add(self)

    def after_fork(self) -> None:
        """In the child: locks that other threads may have held, and threads, are of the parent."""

    def get_used_plugin_libraries(self) -> list[str]:
        """As of the plan."""
        return self.plan.get_used_plugin_libraries()

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    def get_tensor_name(self, index: int) -> str:
        """Inputs come first. Raises InvalidArgument."""
        if index not in range(self.num_io_tensors):
            raise InvalidArgument(
                f"no tensor {index!r}", why=f"the engine has {self.num_io_tensors}"
            )
        return (*self.inputs, *self.outputs)[index].name

    def get_tensor_shape(self, name: str) -> Shape:
        """Symbolic where it depends on the input shapes. Raises InvalidArgument."""
        return self._tensor(name).shape

    def get_tensor_dtype(self, name: str) -> DType:
        """Raises InvalidArgument."""
        return self._tensor(name).dtype

    def get_tensor_mode(self, name: str) -> str:
        """``input`` or ``output``. Raises InvalidArgument."""
        return self.plan.buffers[self._tensor(name).buffer].kind

    def _tensor(self, name: str) -> TensorIO:
        for io in (*self.inputs, *self.outputs):
            if io.name == name:
                return io
        known = ", ".join(io.name for io in (*self.inputs, *self.outputs))
        raise InvalidArgument(f"no tensor is named {name!r}", do=f"There are: {known}")

    def came_from(self, path: str | Path, options: RuntimeSettings) -> None:
        """Which file holds its plan, and the options of the ``Runtime`` that loaded it."""
        seal = self.plan.seal
        if seal is not None:
            self._file = PlanFile(os.path.abspath(path), seal.digest.hex(), options)

    def __reduce__(self) -> tuple[Callable[[PlanFile], EngineFacts], tuple[PlanFile]]:
        """By path and digest: it is loaded again where it is needed."""
        if self.closed:
            raise self._ended()
        if self._file is None:
            do = "Save the plan first: engine.save('model.plan'); then pickle the engine"
            raise InvalidArgument("no file holds the engine's plan", who=self.name, do=do)
        return reopen, (self._file,)

    def stats(self) -> EngineStats:
        """What became of requests so far."""
        pool = self._pool
        if pool is None:
            return self._log.stats(0, 0, 0)
        return self._log.stats(len(pool.queue), pool.queue.running, len(pool.contexts))

    def close(self) -> None:
        """Give back what it holds."""
        raise NotImplementedError(f"{type(self).__name__}: close")

    def __enter__(self) -> Self:
        """Raises EngineClosed."""
        if self.closed:
            raise self._ended()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def _ended(self) -> Callable[[], EngineClosed]:
        """What is raised once it is closed; it does not keep the engine."""
        name, path = self.name, self._file.path if self._file else None
        return lambda: _engine_closed(name, path)

    def __repr__(self) -> str:
        taken, given = (
            ", ".join(f"{io.name}: {io.dtype.value}{show(io.shape)}" for io in ios)
            for ios in (self.inputs, self.outputs)
        )
        return f"<engine {self.name or 'without name'}: {taken} -> {given}>"


def _engine_closed(name: str, path: str | None) -> EngineClosed:
    do = f"Load it again: tactix.load({path!r})" if path else "Load its plan again"
    return EngineClosed("the engine is closed", who=name, do=do)


_engines: weakref.WeakSet[EngineFacts] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
