"""One version of a model that answers requests."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tactix.base.arrays import Array
from tactix.base.dims import symbols
from tactix.base.errors import ConfigError, PlanCompatibilityError
from tactix.plan.schema import TensorIO
from tactix.run.engine import Engine
from tactix.run.request_stats import EngineStats
from tactix_serve.batch_check import check_rows
from tactix_serve.batch_warm_up import shapes_of, warm_sizes
from tactix_serve.batching import Batcher, BatchStats
from tactix_serve.config import CONFIG, ModelConfig
from tactix_serve.datatypes import NAMES, TensorMetadata
from tactix_serve.directory import BatchLimits
from tactix_serve.model_devices import asked_devices

PLAN, MODEL = "model.plan", "model.onnx"
"""What a version's folder holds: one of the two; the plan comes first."""


Answering = asyncio.Future[Mapping[str, Array]]


@dataclass(frozen=True)
class ModelCounters:
    """``batches``: None for a model whose requests run one by one; ``runs``: None for one in
    batches. ``device``: see ``Device.counters``, of the device named ``kind``.
    """

    batches: BatchStats | None = None
    runs: EngineStats | None = None
    kind: str = ""
    device: Mapping[str, float] = field(default_factory=dict)


class ServedModel(ABC):
    """``platform``: what runs it. ``inputs``, ``outputs``: what it takes and gives. ``batching``:
    None where requests run one by one.
    """

    platform: str = "tactix_plan"
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    batching: BatchLimits | None = None

    @abstractmethod
    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        """Outputs by name. ``outputs``: those that are asked for, None for all; others may be among
        the results. Raises TactixError.
        """

    def counters(self) -> ModelCounters:
        """As of now."""
        return ModelCounters()

    def ask(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Answering:
        """As ``infer``, for callers that wait for many; cancelled, it is given up. Raises
        TactixError at once or later.
        """
        return asyncio.ensure_future(self.infer(feeds, timeout, outputs))

    @abstractmethod
    async def close(self) -> None:
        """Requests that run are waited for."""


class EngineModel(ServedModel):
    """An engine, with or without a batcher in front."""

    def __init__(self, engine: Engine, config: ModelConfig) -> None:
        self._engine, self._config = engine, config
        self.inputs = tuple(map(_metadata, engine.inputs))
        self.outputs = tuple(map(_metadata, engine.outputs))
        self.batcher: Batcher | None = None
        if (options := config.batching) is not None:
            self.batcher = Batcher(engine, options)
            check_rows(engine, self.batcher.axes)
            most, times = self.batcher.max_batch, (options.window, options.max_queue)
            self.batching = BatchLimits(most, *times, config.timeout)

    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        limit = self._limit(timeout)
        if self.batcher is not None:
            return await self.batcher.infer(feeds, limit, outputs)
        return await self._engine.run_async(feeds, timeout=limit, outputs=outputs)

    def ask(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Answering:
        if self.batcher is not None:
            return self.batcher.ask(feeds, self._limit(timeout), outputs)
        return super().ask(feeds, timeout, outputs)

    def counters(self) -> ModelCounters:
        done: dict[str, float] = {}
        for device in self._engine.devices:
            for name, more in device.counters().items():
                done[name] = done.get(name, 0) + more
        kind = self._engine.device.kind
        if self.batcher is not None:
            return ModelCounters(self.batcher.stats(), None, kind, done)
        return ModelCounters(None, self._engine.stats(), kind, done)

    def _limit(self, timeout: float | None) -> float | None:
        return timeout or self._config.timeout or None

    async def close(self) -> None:
        if self.batcher is not None:
            await self.batcher.close()
        await asyncio.to_thread(self._engine.close)


def open_model(folder: Path, config: ModelConfig, cache: Path) -> ServedModel:
    """The model in a version's folder, warm. Raises TactixError, OSError.

    Weights are copied, so that nobody who writes over the file harms what serves.
    """
    import tactix
    from tactix.plugins.session import Session

    policy = config.on_untrusted
    if (folder / PLAN).exists():
        session = Session(group="runtime")
        asked = asked_devices(folder.parent / CONFIG, config.devices, session)
        try:
            engine = tactix.load(
                folder / PLAN,
                session=session,
                devices=config.devices,
                copy_weights=True,
                max_threads=config.threads,
                on_untrusted=policy,
            )
        except PlanCompatibilityError as e:
            raise asked.blamed(e) from None
    elif (folder / MODEL).exists():
        session = Session(group="build")
        asked = asked_devices(folder.parent / CONFIG, config.devices, session)
        engine = tactix.load_or_build(
            folder / MODEL,
            cache=cache,
            session=session,
            device=asked.kind,
            devices=config.devices,
            level=config.level,
            threads=config.threads,
            on_untrusted=policy,
        )
    else:
        do = f"Put a {PLAN} or a {MODEL} there"
        raise ConfigError("there is no model", who=str(folder), do=do)
    return warm(engine, config)


def warm(engine: Engine, config: ModelConfig) -> ServedModel:
    """What serves an engine, which is closed if that cannot be. Raises TactixError."""
    try:
        return _warm(engine, config)
    except BaseException:
        engine.close()
        raise


def _warm(engine: Engine, config: ModelConfig) -> ServedModel:
    engine.set_pool(config.contexts, config.max_queue, SHAPES)
    model = EngineModel(engine, config)
    batcher = model.batcher
    if batcher is not None:
        shapes = max(SHAPES, 2 * shapes_of(batcher))
        engine.set_pool(config.contexts, config.max_queue, shapes)
    tuned = engine.profiles or not engine.plan.symbols
    if config.warm_up and tuned and not any(io.dtype.has_element for io in engine.inputs):
        if batcher is not None and batcher.sizes:
            warm_sizes(engine, batcher)
        else:
            engine.warm_up()
    return model


SHAPES = 16
"""Input shapes that stay bound in each context. No measurement is on record."""


def _metadata(io: TensorIO) -> TensorMetadata:
    if io.dtype not in NAMES:
        raise ConfigError(
            f"{io.name!r} is {io.dtype.value}, which the protocol cannot say",
            do=f"Serve networks of {', '.join(sorted(NAMES.values()))}",
        )
    shape = tuple(-1 if symbols(d) else d for d in io.shape)
    return TensorMetadata(io.name, NAMES[io.dtype], shape)  # type: ignore[arg-type]
