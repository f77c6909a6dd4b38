"""Packs as they go into plans: from a wheel or an installed distribution, checked for what could
not be embedded.
"""

from __future__ import annotations

import ast
import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tactix.base.errors import ConfigError, PlanFormatError
from tactix.plan.wheels import GROUP, unpack
from tactix.plugins.identity import installed_files, normal

NATIVE = (".so", ".pyd", ".dll", ".dylib")

AT_HAND = frozenset({"tactix", "tactix-runtime", "numpy", "cuda-python", "cuda-bindings"})
"""Distributions that a pack may need, as whoever runs the plan has them."""


@dataclass(frozen=True)
class PackFiles:
    """A distribution with plugins. ``files``: its code by path. ``requires``: names of what it
    needs.
    """

    dist: str
    version: str
    files: Mapping[str, bytes]
    entry_points: tuple[tuple[str, str], ...]
    requires: frozenset[str]

    @property
    def title(self) -> str:
        return f"{self.dist} {self.version}"

    def check(self, beside: Iterable[str]) -> None:
        """Raises ConfigError for what cannot be imported from a plan. ``beside``: other packs in
        it.
        """
        if not self.entry_points:
            raise ConfigError(
                "it has no plugin to embed", who=self.title, why=f"no entry point in {GROUP}"
            )
        if native := [path for path in self.files if path.endswith(NATIVE) or ".so." in path]:
            why = f"{native[0]} is machine code, which cannot be imported from a plan"
            raise ConfigError(
                "it cannot be embedded",
                who=self.title,
                why=why,
                do="Have it installed where plans run",
            )
        if needs := sorted(self.requires - AT_HAND - {normal(name) for name in beside}):
            why = f"it needs {', '.join(needs)}, which may not be there where the plan runs"
            raise ConfigError(
                "it cannot be embedded", who=self.title, why=why, do="Have both installed there"
            )
        for path, text in self.files.items():
            if path.endswith(".py"):
                self._check_imports(path, text)

    def _check_imports(self, path: str, text: bytes) -> None:
        """Its own modules are found by import statements alone."""
        tops = {p.partition("/")[0].removesuffix(".py") for p in self.files}
        for call in (
            n for n in ast.walk(ast.parse(text, path)) if isinstance(n, ast.Call) and n.args
        ):
            first = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
            called = ast.unparse(call.func).endswith("import_module")
            if called and isinstance(first, str) and first.partition(".")[0] in tops:
                why = (
                    f"{path}, line {call.lineno}: import_module({first!r}) "
                    "would find an installed one, or none"
                )
                do = "Write an import statement, or a name relative to __package__"
                raise ConfigError("it cannot be embedded", who=self.title, why=why, do=do)


def pack_of(wanted: str | Path) -> PackFiles:
    """The pack in a wheel, or the installed distribution of that name. Raises ConfigError."""
    return _from_wheel(Path(wanted)) if str(wanted).endswith(".whl") else _installed(str(wanted))


def _from_wheel(path: Path) -> PackFiles:
    from tactix.plugins._metadata import metadata

    try:
        content = path.read_bytes()
        files = unpack(content, str(path))
        (info,) = {p.partition("/")[0] for p in files if p.partition("/")[0].endswith(".dist-info")}
        folder = zipfile.Path(io.BytesIO(content), f"{info}/")
        dist = metadata.PathDistribution(folder)  # type: ignore[arg-type]
        return _pack(dist, {p: text for p, text in files.items() if not p.startswith(f"{info}/")})
    except (OSError, PlanFormatError, ValueError, KeyError) as e:
        raise ConfigError("cannot read the wheel", who=str(path), why=str(e)) from None


def _installed(name: str) -> PackFiles:
    from tactix.plugins._metadata import metadata

    try:
        dist = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        do = "Name an installed distribution, or the file of a wheel (.whl)"
        raise ConfigError(f"no distribution {name!r} is installed", do=do) from None
    module = next((ep.value for ep in dist.entry_points if ep.group == GROUP), "")
    try:
        files = (
            {path: place.read_bytes() for path, place in installed_files(dist, module)}
            if module
            else {}
        )
    except OSError as e:
        raise ConfigError(
            "cannot read the distribution", who=name, why=str(e), do="Install it again"
        ) from None
    return _pack(dist, files)


def _pack(dist: Any, files: Mapping[str, bytes]) -> PackFiles:
    points = tuple(sorted((ep.name, ep.value) for ep in dist.entry_points if ep.group == GROUP))
    needs = [text for text in dist.requires or () if not re.search(r";.*\bextra\s*==", text)]
    names = [found[0] for text in needs if (found := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", text))]
    return PackFiles(
        str(dist.metadata["Name"]), str(dist.version), files, points, frozenset(map(normal, names))
    )
