"""Lean runtimes as packages of their own in this process: each under a name with its digest, so any
number of them.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tactix.base import errors
from tactix.base.errors import ConfigError
from tactix.base.scratch import ScratchFolder
from tactix.contracts.flavour import TempfileControlFlag
from tactix.plan import wheels
from tactix_runtime.memory_importer import MemoryImporter

PACKAGE = "tactix_lean/"

_lock = threading.Lock()


def files_at(path: str | Path) -> dict[str, bytes]:
    """The files of the runtime at a path: a wheel, or the folder of an installed package. Raises
    ConfigError.
    """
    path = Path(path)
    try:
        if path.is_dir():
            found = {
                p.relative_to(path).as_posix(): p.read_bytes()
                for p in sorted(path.rglob("*"))
                if _belongs(p)
            }
        else:
            found = unpack(path.read_bytes(), str(path))
    except OSError as e:
        raise ConfigError("cannot read the lean runtime", who=str(path), why=str(e)) from None
    if "__init__.py" not in found:
        do = (
            "Give a wheel that `tactix lean-wheel` wrote, "
            "or the folder tactix_lean of an installed one"
        )
        raise ConfigError("no lean runtime", who=str(path), do=do)
    return found


def _belongs(path: Path) -> bool:
    """Whether it is of the package; until 0.2 a lean runtime had modules in a ``.bz2``, too."""
    return path.is_file() and path.suffix in (".py", ".bz2")


def unpack(wheel: bytes, who: str = "lean runtime") -> dict[str, bytes]:
    """The files of a wheel's package. Raises PlanFormatError."""
    found = wheels.unpack(wheel, who)
    return {
        path.removeprefix(PACKAGE): text for path, text in found.items() if path.startswith(PACKAGE)
    }


def admit(files: Mapping[str, bytes], flags: TempfileControlFlag, folder: str | None) -> ModuleType:
    """The package, imported once per process and content. Its errors are ours as well, class by
    class.

    ``flags``: whether it may be imported from memory, else from files in a new folder below
    ``folder``, which is removed when the process ends. Raises ConfigError where neither is allowed,
    and what importing it raises.
    """
    digest = hashlib.sha256(
        repr(sorted((p, hashlib.sha256(c).digest()) for p, c in files.items())).encode()
    )
    name = f"_tactix_lean_{digest.hexdigest()[:16]}"
    with _lock:
        if name not in sys.modules:
            _import(name, files, flags, folder)
        return sys.modules[name]


def _import(
    name: str, files: Mapping[str, bytes], flags: TempfileControlFlag, folder: str | None
) -> None:
    if TempfileControlFlag.ALLOW_IN_MEMORY_FILES in flags:
        sys.meta_path.append(MemoryImporter(name, lambda: files))  # type: ignore[arg-type]
        importlib.import_module(name)
    elif TempfileControlFlag.ALLOW_TEMPORARY_FILES in flags:
        _import_folder(name, _written(files, folder))
    else:
        why = "neither files in memory nor temporary ones are allowed"
        raise ConfigError(
            "the lean runtime cannot be loaded", why=why, do="Set tempfile_control_flags"
        )
    _adopt(_errors_of(name))


def _errors_of(name: str) -> ModuleType:
    """The errors of the lean runtime in a plan; ``base`` was named ``words`` until 0.2."""
    floor = "base" if importlib.util.find_spec(f"{name}.base") else "words"
    return importlib.import_module(f"{name}.{floor}.errors")


def _written(files: Mapping[str, bytes], folder: str | None) -> Path:
    try:
        made = ScratchFolder(folder)
        atexit.register(made.cleanup)
        root = Path(made.name)
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
    except OSError as e:
        raise ConfigError(
            "cannot write temporary files", why=str(e), do="Set temporary_directory"
        ) from None
    return root


def _import_folder(name: str, root: Path) -> None:
    here = [str(root)]
    spec: Any = importlib.util.spec_from_file_location(
        name, root / "__init__.py", submodule_search_locations=here
    )
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _adopt(theirs: ModuleType) -> None:
    """Let ``except tactix.TactixError`` and the others catch what a lean runtime raises.

    Making one of its errors makes one of a class that is both its and ours; bases of a class cannot
    be changed later.
    """
    base, both = theirs.TactixError, {}
    for name, cls in vars(theirs).items():
        ours = getattr(errors, name, None)
        if isinstance(cls, type) and issubclass(cls, base) and isinstance(ours, type):
            both[cls] = type(
                name, (cls, ours), {"__module__": cls.__module__, "__init__": _made_already}
            )

    def made(cls: Any, *args: Any, **more: Any) -> Any:
        out = Exception.__new__(cls, *args)
        if cls in both:  # its own __init__ does not know of our classes between it and Exception
            cls.__init__(out, *args, **more)
            found: Any = Exception.__new__(both[cls], *out.args)
            found.__dict__.update(vars(out))
            return found
        return out

    base.__new__ = made


def _made_already(self: Any, *args: Any, **more: Any) -> None: ...
