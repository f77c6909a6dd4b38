"""A folder of models, NAME/VERSION/model.plan or model.onnx, as it is now: what changes is loaded
beside what serves, and takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tactix.base.errors import TactixError
from tactix.base.logger import Logger
from tactix_serve.config import CONFIG, ModelConfig, read_config
from tactix_serve.served_model import MODEL, PLAN, ServedModel

Opens = Callable[[Path, ModelConfig], ServedModel]
Signature = tuple[tuple[str, int, int, int], ...]
"""Of files: name, inode, bytes, nanoseconds of the last change."""


class ModelNotFound(TactixError):
    """No model of that name and version serves."""


@dataclass
class LoadedVersion:
    """A version that serves. ``users``: requests that run; it closes when there are none."""

    name: str
    version: str
    model: ServedModel
    signature: Signature
    users: int = 0
    retired: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)

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


@dataclass(frozen=True)
class ModelState:
    """A row of the repository's index. ``reason``: why a version is not served."""

    name: str
    version: str
    ready: bool
    reason: str = ""


class Repository:
    """``open_model``: gives the model of a version's folder, in a thread. Of one event loop.

    Of each model the highest version serves; where that cannot be loaded, the one before, or what
    served before.
    """

    def __init__(self, folder: Path, open_model: Opens, logger: Logger) -> None:
        self._folder, self._open, self._logger = folder, open_model, logger
        self._serving: dict[str, LoadedVersion] = {}
        self._failed: dict[tuple[str, str], tuple[Signature, str]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self.loads = self.failures = 0

    def find(self, name: str, version: str = "") -> LoadedVersion:
        """What serves. Raises ModelNotFound."""
        found = self._serving.get(name)
        if found is None:
            failed = [why for (n, _), (_, why) in self._failed.items() if n == name]
            known = f"There are: {', '.join(sorted(self._serving)) or 'none'}"
            raise ModelNotFound(f"no model {name!r} serves", why="; ".join(failed), do=known)
        if version not in ("", found.version):
            what = f"version {version!r} of model {name!r} does not serve"
            raise ModelNotFound(what, do=f"Version {found.version} does")
        return found

    @property
    def ready(self) -> bool:
        """Whether every model that is in the folder serves in some version."""
        return bool(self._serving) and not {n for n, _ in self._failed} - self._serving.keys()

    def index(self) -> list[ModelState]:
        """What serves, and what could not be loaded."""
        serving = [ModelState(v.name, v.version, True) for v in self._serving.values()]
        failed = [ModelState(n, v, False, why) for (n, v), (_, why) in self._failed.items()]
        return sorted([*serving, *failed], key=lambda s: (s.name, s.version))

    async def refresh(self) -> None:
        """Load what is new or has changed, retire what is gone. Raises nothing of a model's."""
        async with self._lock:
            there = await asyncio.to_thread(self._scan)
            for key in self._failed.keys() - {(n, v) for n, vs in there.items() for v in vs}:
                del self._failed[key]
            for name in sorted(self._serving.keys() - there.keys()):
                self._logger.info(f"model {name} is gone")
                self._retire(self._serving.pop(name))
            for name, versions in sorted(there.items()):
                await self._refresh_model(name, versions)

    async def _refresh_model(self, name: str, versions: dict[str, Signature]) -> None:
        """The highest version that can be loaded serves; where one cannot, none takes the place of
        a higher one that serves.
        """
        serving, failed = self._serving.get(name), False
        for version in sorted(versions, key=int, reverse=True):
            signature = versions[version]
            if serving and (serving.version, serving.signature) == (version, signature):
                return
            if serving and failed and int(version) < int(serving.version):
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
            self._logger.error(f"model {name} version {version} is not loaded: {e}")
            return False
        self._failed.pop((name, version), None)
        before = self._serving.get(name)
        self._serving[name] = LoadedVersion(name, version, model, signature)
        self.loads += 1
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
            while self._serving:
                self._retire(self._serving.popitem()[1])
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
