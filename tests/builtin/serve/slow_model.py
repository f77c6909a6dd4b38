"""A model that answers late, for servers of several processes, which open it by name."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from tactix.base.arrays import Array
from tactix_serve import served_model
from tactix_serve.config import ModelConfig
from tactix_serve.datatypes import TensorMetadata
from tactix_serve.served_model import ServedModel


class SlowModel(ServedModel):
    """Gives what it gets, after as many seconds as that says."""

    platform = "test"
    inputs = (TensorMetadata("x", "FP32", (-1, 4)),)
    outputs = (TensorMetadata("y", "FP32", (-1, 4)),)

    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        await asyncio.sleep(float(feeds["x"][0, 0]))
        return {"y": feeds["x"]}

    async def close(self) -> None:
        pass


def open_model(folder: Path, config: ModelConfig, cache: Path) -> ServedModel:
    """A slow one in the folder of that name."""
    if folder.parent.name == "slow":
        return SlowModel()
    return served_model.open_model(folder, config, cache)
