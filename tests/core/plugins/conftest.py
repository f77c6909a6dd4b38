"""Distributions made on the fly: a package, its metadata, and a scan that sees nothing else.

What lies beside these tests is importable.
"""

from __future__ import annotations

import functools
import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kept_log import KeptLog

from tactix.base.logger import Severity
from tactix.plugins import loader
from tactix.plugins._metadata import metadata
from tactix.plugins.hookspecs import hookimpl

sys.path.insert(0, str(Path(__file__).parent))

HEAD = """
from plugin_things import Thing as O
from tactix.plugins.hookspecs import hookimpl
"""


class Site:
    """A folder like site-packages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: set[str] = set()

    def dist(self, name: str, version: str, groups: Mapping[str, Mapping[str, str]]) -> Path:
        """Metadata alone; ``groups``: entry points by group."""
        info = self.root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nWords.\n"
        )
        lines = [
            x
            for g, points in groups.items()
            for x in (f"[{g}]", *(f"{k} = {v}" for k, v in points.items()), "")
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        return info

    def module(self, name: str, body: str) -> None:
        """An importable module with the usual imports in front."""
        self.modules.add(name)
        (self.root / f"{name}.py").write_text(HEAD + textwrap.dedent(body))

    def pack(
        self,
        dist: str,
        version: str = "1.0",
        build: str | None = None,
        runtime: str | None = None,
        namespace: str = "",
        major: int = 1,
    ) -> None:
        """A distribution whose modules have these bodies; the namespace is the first word of its
        name by default.
        """
        namespace = namespace or dist.split("-")[0]
        groups = {}
        for group, body in (("build", build), ("runtime", runtime)):
            if body is not None:
                module = f"{dist.replace('-', '_')}_{group}"
                self.module(module, body)
                groups[f"tactix.{group}.v{major}"] = {namespace: module}
        self.dist(dist, version, groups)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The only place that distributions come from; no TACTIX_ variable is set."""
    for name in ("PLUGINS", "DISABLE", "NO_DISCOVERY", "STRICT_PLUGINS", "TRACE_PLUGINS"):
        monkeypatch.delenv(f"TACTIX_{name}", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        metadata, "distributions", functools.partial(metadata.distributions, path=[str(tmp_path)])
    )
    loader.reset_scan()
    importlib.invalidate_caches()
    out = Site(tmp_path)
    yield out
    loader.reset_scan()
    for name in out.modules:
        sys.modules.pop(name, None)


@pytest.fixture
def log() -> KeptLog:
    return KeptLog(Severity.VERBOSE)


class Given:
    """A pack in process: what its hooks give."""

    def __init__(self, **hooks: list[Any]) -> None:
        for name, objects in hooks.items():
            setattr(self, f"tactix_{name}", hookimpl(lambda objects=objects: list(objects)))


@pytest.fixture
def given() -> Callable[..., tuple[str, Given]]:
    """``given("acme", layers=["acme.A@1"])``: a namespace and a pack; keys stand for objects that
    have them.
    """

    def make(namespace: str, **hooks: list[Any]) -> tuple[str, Given]:
        from plugin_things import Thing

        made = {k: [Thing(key=o) if isinstance(o, str) else o for o in v] for k, v in hooks.items()}
        return namespace, Given(**made)

    return make
