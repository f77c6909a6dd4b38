"""Packs that a plan brings: imported from memory, apart from whatever is installed, under a name
with their digest.

So any number of versions of a pack live in one process, each for the plans that hold it. That keeps
them apart; it is no sandbox: their code may do what the process may, which is why only trusted
plans get here.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from tactix.base.errors import PluginError, TactixError
from tactix.plan.wheels import content, entries, unpack
from tactix_runtime.memory_importer import MemoryImporter

HERE: Mapping[str, str] = {}
"""Packages of tactix that packs in older plans know by the names they had (``from ... import``)."""
MOVED = {"tactix.words": "tactix.base"}
_lock = threading.Lock()


class PackImporter(MemoryImporter):
    """Modules of packs below one root. What they import by full names is looked for in ``places``
    (top-level module to where it is): their own below the root."""

    def __init__(self, root: str, files: Mapping[str, bytes], places: Mapping[str, str]) -> None:
        super().__init__(root, lambda: {**files, "__init__.py": b""})
        tops = {
            path.partition("/")[0].removesuffix(".py")
            for path in files
            if ".dist-info/" not in path
        }
        self._places = {**places, **{top: f"{root}.{top}" for top in tops}}

    def exec_module(self, module: ModuleType) -> None:
        """Raises what the module raises."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        super().exec_module(module)

    def _import(
        self, name: str, scope: Any = None, local: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        """As Python's ``__import__``."""
        name = _today(name) if not level else name
        top, dot, rest = name.partition(".")
        if level or top not in self._places:
            return __import__(name, scope, local, fromlist, level)
        found = __import__(f"{self._places[top]}{dot}{rest}", scope, local, fromlist, 0)
        return found if fromlist else sys.modules[self._places[top]]


def _today(name: str) -> str:
    """The name that a module has now."""
    for before, now in MOVED.items():
        if name == before or name.startswith(f"{before}."):
            return now + name[len(before) :]
    return name


class Carried:
    """A session that has the layers and launchers of the plan's packs before its own."""

    def __init__(self, session: Any, plugins: list[Any]) -> None:
        self._session, self._plugins = session, plugins

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name in ("layers", "launchers"):
            own = {o.key: o for p in self._plugins for o in _given(p, f"tactix_{name}")}
            found = self.__dict__[name] = _Joined(own, found)
        return found


class _Joined(Mapping[str, Any]):
    def __init__(self, own: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
        self._own, self._rest = own, rest

    def __getitem__(self, key: str) -> Any:
        return self._own[key] if key in self._own else self._rest[key]

    def __contains__(self, key: object) -> bool:
        return key in self._own or key in self._rest

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (key for key in self._rest if key not in self._own)

    def __len__(self) -> int:
        return len(list(iter(self)))


def carried(plan: Any, session: Any, places: Mapping[str, str] = HERE) -> Any:
    """The session, with the packs that a plan brings; they are imported once per process and
    content.

    ``places``: where they find modules that are elsewhere than their names say. Raises
    PlanFormatError, PluginError.
    """
    wheels = sorted({r.digest for r in plan.requirements if r.embedded})
    if not wheels:
        return session
    root = f"_plan_{hashlib.sha256(repr((__name__, wheels)).encode()).hexdigest()[:16]}"
    with _lock:
        if root not in sys.modules:
            packs = [unpack(content(plan, digest), f"blob {digest!r}") for digest in wheels]
            files = {path: text for pack in packs for path, text in pack.items()}
            sys.meta_path.append(PackImporter(root, files, places))  # type: ignore[arg-type]
            plugins = [p for pack in packs for p in entries(pack)]
            importlib.import_module(root)._plugins = plugins  # type: ignore[attr-defined]
        plugins = sys.modules[root]._plugins  # type: ignore[attr-defined]
    return Carried(session, [_loaded(root, namespace, target) for namespace, target in plugins])


def _loaded(root: str, namespace: str, target: str) -> Any:
    """A plugin: a module, or an object in one."""
    from tactix.plugins.pack import plugin_in

    module, _, attribute = target.partition(":")
    try:
        found = importlib.import_module(f"{root}.{module.strip()}")
        for name in filter(None, attribute.split(".")):
            found = getattr(found, name)
    except (Exception, SystemExit) as e:
        raise _failed(namespace, f"import of {target}", e) from e
    return plugin_in(found)


def _given(plugin: Any, hook: str) -> list[Any]:
    """What a plugin gives for a hook, marked as pluggy's markers do."""
    from tactix.plugins.pack import MARK

    out: list[Any] = []
    for name in dir(plugin):
        options = getattr(getattr(plugin, name), MARK, None)
        if isinstance(options, dict) and (options.get("specname") or name) == hook:
            try:
                out += getattr(plugin, name)()
            except (Exception, SystemExit) as e:
                raise _failed(getattr(plugin, "__name__", str(plugin)), hook, e) from e
    return out


def _failed(who: str, phase: str, e: BaseException) -> PluginError:
    why = str(e) if isinstance(e, TactixError) else f"{type(e).__name__}: {e}"
    do = "Build the plan again with a pack that needs no more than numpy and tactix"
    return PluginError(
        "a pack in the plan failed", who=who, why=f"{phase}: {why}", do=do, phase=phase
    )
