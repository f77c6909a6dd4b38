"""Runtime: plans become engines."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tactix_tensorrt import device
from tactix_tensorrt.api.allocation import ProgramAllocator
from tactix_tensorrt.api.callbacks import IStreamReader, IStreamReaderV2
from tactix_tensorrt.api.engine import ICudaEngine
from tactix_tensorrt.api.enums import TempfileControlFlag
from tactix_tensorrt.api.logger import Forwarding, ILogger, Rooted, returns

if TYPE_CHECKING:
    from tactix.run.runtime import Runtime as NativeRuntime

PIECE = 1 << 24
"""Bytes that a stream reader is asked for at a time."""


class Runtime(Rooted):
    """Makes engines of plans."""

    max_threads = 0
    temporary_directory = ""

    tempfile_control_flags = (
        TempfileControlFlag.ALLOW_IN_MEMORY_FILES.mask
        | TempfileControlFlag.ALLOW_TEMPORARY_FILES.mask
    )

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        self._lean = ""

    @cached_property
    def native(self) -> NativeRuntime:
        """tactix's, made when it is first needed."""
        from tactix.run.runtime import Runtime as NativeRuntime

        out = NativeRuntime(Forwarding(self._logger))
        return out.load_runtime(self._lean) if self._lean else out

    @property
    def engine_host_code_allowed(self) -> bool:
        """Whether plans may bring code that no trust store vouches for."""
        return self.native.engine_host_code_allowed

    @engine_host_code_allowed.setter
    def engine_host_code_allowed(self, allowed: bool) -> None:
        self.native.engine_host_code_allowed = allowed

    @returns(None)
    def deserialize_cuda_engine(
        self,
        serialized_engine: bytes | IStreamReader | IStreamReaderV2 | None = None,
        *,
        stream_reader: IStreamReader | None = None,
        stream_reader_v2: IStreamReaderV2 | None = None,
    ) -> ICudaEngine | None:
        """The engine of a plan's bytes, or of what a reader gives; None if it cannot be."""
        from tactix_tensorrt.plugin_steps.launcher import check

        if serialized_engine is None:
            serialized_engine = stream_reader or stream_reader_v2 or b""
        if isinstance(serialized_engine, IStreamReader | IStreamReaderV2):
            serialized_engine = _all_of(serialized_engine)
        if self.max_threads:
            self.native.max_threads = self.max_threads
        self.native.allocator = self._allocator()
        content = bytes(memoryview(serialized_engine).cast("B"))
        engine = self.native.deserialize(content)
        check(engine.plan)
        if getattr(engine, "streamable_weights_size", 1):
            return ICudaEngine(engine, self._logger, self.native.session)
        return self._streamed(content)

    def _allocator(self) -> str | ProgramAllocator:
        """The program's; tactix's own if there is none."""
        if self.gpu_allocator is None:
            return ""
        return ProgramAllocator(self.gpu_allocator, device.chosen(), self._logger)

    def _streamed(self, plan: bytes) -> ICudaEngine:
        """The engine of a plan whose weights come and go: tactix maps them from a file, which is
        there for as long as the engine is.
        """
        folder = tempfile.TemporaryDirectory(
            prefix="tactix-plan-", dir=self.temporary_directory or None
        )
        path = Path(folder.name) / "streamed.plan"
        path.write_bytes(plan)
        out = ICudaEngine(self.native.deserialize(path), self._logger, self.native.session)
        out.kept = folder
        return out

    def load_runtime(self, path: str) -> Runtime:
        """One that hands plans to the lean runtime at that path."""
        out = Runtime(self._logger)
        out._lean = path
        return out

    def get_plugin_registry(self) -> object:
        from tactix_tensorrt.api.plugin_registry import get_plugin_registry

        return get_plugin_registry()


def _all_of(reader: IStreamReader | IStreamReaderV2) -> bytes:
    pieces = []
    while piece := (
        reader.read(PIECE) if isinstance(reader, IStreamReader) else reader.read(PIECE, 0)
    ):
        pieces.append(bytes(piece))
    return b"".join(pieces)
