"""Which thing, and whose: keys, ``namespace.Name@version``, and providers: distribution, version,
content digest.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tactix.base.errors import InvalidArgument, PluginError
from tactix.plugins.names import NAME, NAMESPACE, OWN, VERSION

T = TypeVar("T")
_KEY = re.compile(rf"({NAMESPACE})\.({NAME})@({VERSION})")


def own_first(things: Iterable[T], namespace: Callable[[T], str]) -> Iterator[T]:
    """Things in their order, those of tactix before those of packs. ``namespace``: whose a thing
    is.

    Those of tactix are given as they come: in a lean runtime the next one may be a module that is
    not loaded yet.
    """
    of_packs = []
    for thing in things:
        if namespace(thing) == OWN:
            yield thing
        else:
            of_packs.append(thing)
    yield from of_packs


@dataclass(frozen=True, order=True)
class Key:
    """``namespace.Name@version``; the version counts meanings: it rises when results may change."""

    namespace: str
    name: str
    version: int

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(str(self)):
            raise InvalidArgument(
                f"{str(self)!r} is no key", do="Write it namespace.Name@version, as in acme.Swish@1"
            )

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key in a text. Raises InvalidArgument."""
        found = _KEY.fullmatch(text)
        if not found:
            raise InvalidArgument(
                f"{text!r} is no key", do="Write it namespace.Name@version, as in acme.Swish@1"
            )
        return cls(found[1], found[2], int(found[3]))

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}@{self.version}"


def normal(dist: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", dist).lower()


def called(name: str, namespace: str, dist: str, part: str = "") -> bool:
    """Whether a name that a user wrote means a pack: its namespace, its distribution in any
    spelling, or its part.

    A part is called ``namespace.part``; one of tactix's own also by its bare name.
    """
    if part and name in (f"{namespace}.{part}", *([part] if namespace == OWN else [])):
        return True
    return name == namespace or (dist != "" and normal(name) == normal(dist))


File = tuple[str, Path]


@dataclass(frozen=True, order=True)
class Provider:
    """Who provides something: an installed distribution, or nobody (``dist`` empty) for what a
    program gave itself.
    """

    dist: str = ""
    version: str = ""
    files: Callable[[], Sequence[File]] | None = field(default=None, compare=False, repr=False)

    @functools.cached_property
    def digest(self) -> str:
        """sha256 over the installed files, read when first asked for; empty if nothing is
        installed.
        """
        found = self.files() if self.files else ()
        return content_digest(found) if found else ""

    def __str__(self) -> str:
        return f"{self.dist} {self.version}" if self.dist else "given in process"


def content_digest(files: Iterable[File]) -> str:
    """sha256 over sorted (path, sha256 of the file). Raises PluginError for a file that cannot be
    read.
    """
    rows = []
    for name, path in files:
        try:
            rows.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
        except OSError as e:
            raise PluginError(
                f"cannot read {name}", why=str(e), do="Install the distribution again"
            ) from e
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


def installed_files(dist: Any, module: str) -> list[File]:
    """The code files of a distribution; of an editable one or a source tree, of the package that
    holds ``module``.
    """
    recorded = (
        dist.files if dist.read_text("RECORD") else None
    )  # what a source tree lists is more than is installed
    listed = [(f.as_posix(), Path(dist.locate_file(f))) for f in recorded or ()]
    code = [(name, path) for name, path in listed if _is_code(name)]
    return code or package_files(re.split("[.:]", module)[0])


def _is_code(name: str) -> bool:
    top = name.split("/")[0]
    made = top.endswith((".dist-info", ".egg-info", ".pth")) or top.startswith("__editable__")
    return not (made or top == ".." or name.startswith("/") or name.endswith(".pyc"))


def package_files(package: str) -> list[File]:
    """The files of a top-level package or module, found without importing it."""
    from importlib.util import find_spec

    spec = find_spec(package)
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [(Path(spec.origin).name, Path(spec.origin))] if spec.origin else []
    roots = [Path(r) for r in spec.submodule_search_locations]
    found = [
        (p.relative_to(r.parent).as_posix(), p) for r in roots for p in r.rglob("*") if p.is_file()
    ]
    return [(name, path) for name, path in found if not name.endswith(".pyc")]
