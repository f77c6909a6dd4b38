"""Imports a package from sources in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class MemoryImporter:
    """On ``sys.meta_path``: finds and loads the modules of one package.

    ``read``: gives the files by path inside the package, ``base/dims.py``; called when one is
    first looked for. Thread-safe, as Python holds the lock of the module that it imports.
    """

    def __init__(self, package: str, read: Callable[[], Mapping[str, bytes]]) -> None:
        self.package, self._read = package, read
        self._files: Mapping[str, bytes] | None = None

    @property
    def files(self) -> Mapping[str, bytes]:
        if self._files is None:
            self._files = self._read()
        return self._files

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for what is not in the package."""
        if name != self.package and not name.startswith(f"{self.package}."):
            return None
        inside = name[len(self.package) + 1 :].replace(".", "/")
        for file in (f"{inside}/__init__.py".lstrip("/"), f"{inside}.py"):
            if file in self.files:
                at, outer = f"<{self.package}>/{file}", file.endswith("__init__.py")
                spec = ModuleSpec(name, self, origin=at, is_package=outer)  # type: ignore[arg-type]
                spec.has_location = True
                return spec
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own way."""

    def exec_module(self, module: ModuleType) -> None:
        """Raises what the module raises."""
        where = str(module.__file__)
        exec(compile(self.get_data(where), where, "exec", dont_inherit=True), module.__dict__)

    def get_data(self, path: str) -> bytes:
        """A file, for tracebacks, and for modules that ask their loader. Raises OSError."""
        try:
            return self.files[path.removeprefix(f"<{self.package}>/")]
        except KeyError:
            raise FileNotFoundError(path) from None

    def get_source(self, name: str) -> str | None:
        """Of a module, for tracebacks."""
        spec = self.find_spec(name)
        return self.get_data(str(spec.origin)).decode() if spec else None
