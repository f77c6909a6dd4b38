"""A folder of models, NAME/VERSION/model.plan or model.onnx, as it is now: what changes is loaded
beside what serves, and takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tactix.base.logger import Logger
from tactix_serve.config import CONFIG, ModelConfig, read_config
from tactix_serve.directory import ModelDescription, ModelDirectory
from tactix_serve.model_statistics import RequestTimes, statistics
from tactix_serve.served_model import MODEL, PLAN, ModelCounters, ServedModel

Opens = Callable[[Path, ModelConfig], ServedModel]
Signature = tuple[tuple[str, int, int, int], ...]
"""Of files: name, inode, bytes, nanoseconds of the last change."""
LOOKS = 3
"""Times that the folder is looked at, where it changes while models are loaded and one is left
without a version. Each comes only after such a change; what still changes is seen at the next poll.
"""
EMPTY_LOOKS = 2
"""At polls, after which a folder without a version is told of."""


@dataclass
class LoadedVersion:
    """A version that serves. ``users``: requests that run; it closes when there are none.
    ``requests``: how those that came for it ended.
    """

    described: ModelDescription
    model: ServedModel
    signature: Signature
    users: int = 0
    retired: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    requests: RequestTimes = field(default_factory=RequestTimes)

    @cached_property
    def datatypes(self) -> Mapping[str, str]:
        """Of outputs, by name."""
        return {m.name: m.datatype for m in self.described.outputs}

    def __enter__(self) -> LoadedVersion:
        self.users += 1
        return self

    def __exit__(self, *raised: object) -> None:
        self.users -= 1
        if not self.users:
            self.idle.set()

    async def retire(self) -> None:
        """Wait for its requests, and close it."""
        self.retired = True
        while self.users:
            self.idle.clear()
            await self.idle.wait()
        await self.model.close()


class Repository:
    """``open_model``: gives the model of a version's folder, in a thread. Of one event loop.
    ``directory``: what serves now; ``watchers`` are called when it is another one.

    Of each model the highest version serves; where that cannot be loaded, the one before, or what
    served before.
    """

    def __init__(self, folder: Path, open_model: Opens, logger: Logger) -> None:
        self._folder, self._open, self._logger = folder, open_model, logger
        self.directory, self.watchers = ModelDirectory(), list[Callable[[], object]]()
        self._serving: dict[str, LoadedVersion] = {}
        self._failed: dict[tuple[str, str], tuple[Signature, str]] = {}
        self._looks: dict[str, int] = {}  # at folders without a version, by name
        self._retiring: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self.loads = self.failures = 0

    def find(self, name: str, version: str = "") -> LoadedVersion:
        """What serves. Raises ModelNotFound."""
        return self._serving[self.directory.find(name, version).name]

    def counters(self) -> dict[str, ModelCounters]:
        """Of what serves, by name."""
        return {name: version.model.counters() for name, version in self._serving.items()}

    def statistics(self, name: str, version: str = "") -> Sequence[Mapping[str, object]]:
        """Of one model, or of all that serve. Raises ModelNotFound."""
        names = [self.find(name, version).described.name] if name else sorted(self._serving)
        return [
            statistics(v.described, v.requests, v.model.counters())
            for v in map(self._serving.__getitem__, names)
        ]

    def _note(self) -> None:
        """The directory, after a change."""
        self.directory = ModelDirectory(
            {name: v.described for name, v in self._serving.items()},
            {key: why for key, (_, why) in self._failed.items()},
        )
        for watcher in self.watchers:
            watcher()

    async def refresh(self) -> None:
        """Load what is new or has changed, retire what is gone. Raises nothing of a model's.

        A version may be taken away, as a newer one has come, before its turn to be loaded: where
        that leaves a model without one that serves, what is there by then is looked at again.
        """
        async with self._lock:
            there = await asyncio.to_thread(self._scan)
            self._tell_empty(await asyncio.to_thread(self._empty, there))
            for _ in range(LOOKS):
                self._drop(there)
                for name, versions in sorted(there.items()):
                    await self._refresh_model(name, versions)
                if there.keys() <= self._serving.keys():
                    return
                before, there = there, await asyncio.to_thread(self._scan)
                if there == before:
                    return

    def _empty(self, there: Collection[str]) -> list[str]:
        """Folders that would be models, had they a version."""
        return [p.name for p in _folders(self._folder) if p.name not in there]

    def _tell_empty(self, names: list[str]) -> None:
        """Warn once of each that was so at the look before, too: one may be about to be filled."""
        self._looks = {name: self._looks.get(name, 0) + 1 for name in names}
        for name in (n for n, looks in self._looks.items() if looks == EMPTY_LOOKS):
            self._logger.warning(
                f"{self._folder / name} has no version to serve. Put a model into a folder with a "
                f"number there: {name}/1/{PLAN} or {name}/1/{MODEL}"
            )

    async def watch(self, poll: float) -> None:
        """Refresh every ``poll`` seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(poll)
            try:
                await self.refresh()
            except OSError as e:
                self._logger.error(f"{self._folder} cannot be read: {e}")

    def _drop(self, there: Mapping[str, Mapping[str, Signature]]) -> None:
        """What is not in the folder any more."""
        known = {(n, v) for n, versions in there.items() for v in versions}
        forgotten = self._failed.keys() - known
        for key in forgotten:
            del self._failed[key]
        gone = [self._serving.pop(name) for name in sorted(self._serving.keys() - there.keys())]
        if forgotten or gone:
            self._note()
        for version in gone:
            self._logger.info(f"model {version.described.name} is gone")
            self._retire(version)

    async def _refresh_model(self, name: str, versions: dict[str, Signature]) -> None:
        """The highest version that can be loaded serves; where one cannot, none takes the place of
        a higher one that serves.
        """
        serving, failed = self._serving.get(name), False
        for version in sorted(versions, key=int, reverse=True):
            signature = versions[version]
            if serving and (serving.described.version, serving.signature) == (
                version,
                signature,
            ):
                return
            if serving and failed and int(version) < int(serving.described.version):
                return
            known = self._failed.get((name, version), ((), ""))[0] == signature
            if not known and await self._load(name, version, signature):
                return
            failed = True

    async def _load(self, name: str, version: str, signature: Signature) -> bool:
        folder = self._folder / name / version
        try:
            config = await asyncio.to_thread(read_config, folder.parent)
            model = await asyncio.to_thread(self._open, folder, config)
        except Exception as e:  # whatever it is, the others serve on
            self._failed[name, version] = signature, str(e) or repr(e)
            self.failures += 1
            self._note()
            self._logger.error(f"model {name} version {version} is not loaded: {e}")
            return False
        self._failed.pop((name, version), None)
        before = self._serving.get(name)
        tensors = model.inputs, model.outputs
        described = ModelDescription(name, version, model.platform, *tensors, model.batching)
        self._serving[name] = LoadedVersion(described, model, signature)
        self.loads += 1
        self._note()
        self._logger.info(f"model {name} version {version} serves")
        if before is not None:
            self._retire(before)
        return True

    def _retire(self, version: LoadedVersion) -> None:
        task = asyncio.get_running_loop().create_task(version.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def close(self) -> None:
        """Nothing serves any more; requests that run are waited for."""
        async with self._lock:
            serving = list(self._serving.values())
            self._serving.clear()
            self._note()
            for version in serving:
                self._retire(version)
        while self._retiring:
            await asyncio.wait(self._retiring)

    def _scan(self) -> dict[str, dict[str, Signature]]:
        """Models and versions in the folder; a file that vanishes meanwhile is not there."""
        out: dict[str, dict[str, Signature]] = {}
        for model in _folders(self._folder):
            shared = _signature([model / CONFIG])
            versions = (v for v in _folders(model) if v.name.isascii() and v.name.isdigit())
            found = {
                v.name: shared + files
                for v in versions
                if (files := _signature([v / PLAN, v / MODEL]))
            }
            if found:
                out[model.name] = found
        return out


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except FileNotFoundError:
        return []


def _signature(paths: list[Path]) -> Signature:
    out = []
    for path in paths:
        try:
            s = path.stat()
        except FileNotFoundError:
            continue
        out.append((path.name, s.st_ino, s.st_size, s.st_mtime_ns))
    return tuple(out)
