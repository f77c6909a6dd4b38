"""A folder of models that changes while it is being loaded."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from kept_log import KeptLog

from tactix.base.errors import ConfigError
from tactix.base.logger import Logger, Severity
from tactix_serve.repository import Repository
from tactix_serve.served_model import MODEL, ServedModel


class EmptyModel(ServedModel):
    """Takes and gives nothing."""

    inputs = outputs = ()

    async def infer(self, feeds: Any, timeout: Any, outputs: Any = None) -> dict[str, np.ndarray]:
        return {}

    async def close(self) -> None:
        pass


def put(folder: Path, version: int) -> None:
    place = folder / "m" / str(version)
    place.mkdir(parents=True)
    (place / MODEL).write_bytes(b"x")


def served(folder: Path, opens: Any) -> str:
    """The version that serves after one look."""
    repository = Repository(folder, opens, Logger(Severity.INTERNAL_ERROR))

    async def look() -> str:
        await repository.refresh()
        try:
            return repository.find("m").described.version
        finally:
            await repository.close()

    return asyncio.run(look())


def test_versions_that_are_replaced_before_they_are_loaded(tmp_path: Path) -> None:
    """Both that were there are gone when it is their turn; the one that came meanwhile serves."""
    put(tmp_path, 1)
    put(tmp_path, 2)

    def opens(folder: Path, config: Any) -> ServedModel:
        if folder.name == "2":
            put(tmp_path, 3)
            for old in (1, 2):
                shutil.rmtree(tmp_path / "m" / str(old))
        if not (folder / MODEL).exists():
            raise ConfigError("there is no model", who=str(folder))
        return EmptyModel()

    assert served(tmp_path, opens) == "3"


def test_a_version_that_cannot_be_loaded_is_tried_once(tmp_path: Path) -> None:
    put(tmp_path, 1)
    put(tmp_path, 2)
    asked: list[str] = []

    def opens(folder: Path, config: Any) -> ServedModel:
        asked.append(folder.name)
        if folder.name == "2":
            raise ConfigError("broken", who=str(folder))
        return EmptyModel()

    assert served(tmp_path, opens) == "1"
    assert asked == ["2", "1"]


def test_a_folder_without_a_version_is_told_once(tmp_path: Path) -> None:
    """Not at the first look, as it may be filled right now."""
    (tmp_path / "m" / "v1").mkdir(parents=True)
    log = KeptLog()
    repository = Repository(tmp_path, lambda folder, config: EmptyModel(), log)
    warned = []
    for _ in range(3):
        asyncio.run(repository.refresh())
        warned.append(len(log.of(Severity.WARNING)))
    assert warned == [0, 1, 1]
    assert f"{tmp_path / 'm'} has no version to serve" in log.of(Severity.WARNING)[0]
    assert not repository.directory.ready
