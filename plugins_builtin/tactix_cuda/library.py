"""NVIDIA's libraries by ctypes: where they are, what their failures say. None of them is needed to
run cubins.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import ExecutionError, PlanCompatibilityError


@dataclass(frozen=True)
class LibraryDescription:
    """A library. ``name``: as people write it; ``file``: as cuda-pathfinder does; ``sonames``: for
    the loader.

    ``signatures``: C types of the arguments of every function that is called; ``explain``: the one
    that gives the text of a status; ``wheel``: what installs it.
    """

    name: str
    file: str
    sonames: tuple[str, ...]
    signatures: Mapping[str, tuple[Any, ...]]
    explain: str
    wheel: str


class LibraryFailure(ExecutionError):
    """A library's function that did not succeed. ``status``: its number for the reason."""

    def __init__(self, library: str, function: str, status: int, text: str) -> None:
        super().__init__(f"{function} of {library} failed", why=f"status {status}, {text}")
        self.library, self.function, self.status = library, function, status


class LoadedLibrary:
    """A library that is loaded. ``functions``: an object that has them by name."""

    def __init__(self, product: LibraryDescription, functions: Any) -> None:
        self.product, self.functions = product, functions

    def call(self, function: str, *args: Any) -> None:
        """Raises LibraryFailure if the status is not 0."""
        if status := self.status(function, *args):
            raise self.failure(function, status)

    def failure(self, function: str, status: int) -> LibraryFailure:
        """The error for a status, with the library's text for it."""
        text = getattr(self.functions, self.product.explain)(status)
        said = str(text, "ascii", "replace") if text else "of which the library says nothing"
        return LibraryFailure(self.product.name, function, status, said)

    def status(self, function: str, *args: Any) -> int:
        """What the function returns."""
        return int(getattr(self.functions, function)(*args))


def load(product: LibraryDescription) -> LoadedLibrary:
    """From NVIDIA's wheels or the system. Raises ExecutionError if it is nowhere or too old."""
    try:
        functions = ctypes.CDLL(_place(product) or _by_name(product))
        for name, types in product.signatures.items():
            getattr(functions, name).argtypes = types
    except (OSError, AttributeError) as e:
        do = f"`pip install {product.wheel}` installs it"
        raise ExecutionError(f"{product.name} is not here", why=str(e), do=do) from None
    getattr(functions, product.explain).restype = ctypes.c_char_p
    return LoadedLibrary(product, functions)


def _place(product: LibraryDescription) -> str:
    """The file that cuda-pathfinder finds; empty if it finds none, or is not there."""
    try:
        from cuda import pathfinder
    except ImportError:
        return ""
    try:
        return str(pathfinder.load_nvidia_dynamic_lib(product.file).abs_path or "")
    except (pathfinder.DynamicLibNotFoundError, RuntimeError):
        return ""


def _by_name(product: LibraryDescription) -> str:
    """The first name that the system's loader knows; the last where it knows none."""
    for name in product.sonames:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return product.sonames[-1]


def version_in(params: Mapping[str, object]) -> list[int]:
    """The version of the library that a step of a plan was made with. Raises KeyError, TypeError,
    ValueError.
    """
    if not isinstance(said := params["version"], (list, tuple)):
        raise TypeError(f"version {said!r}")
    return [int(x) for x in said]


def check_version(product: LibraryDescription, built: Sequence[int], here: Sequence[int]) -> None:
    """Raises PlanCompatibilityError unless a plan's version of the library is what is here."""
    if tuple(built) != tuple(here):
        was, is_ = (".".join(map(str, v)) for v in (built, here))
        raise PlanCompatibilityError(
            f"the plan has choices of {product.name} {was}",
            reasons=(f"here is {product.name} {is_}, which need not know them",),
            do="Build it here again, or with BuilderFlag.VERSION_COMPATIBLE "
            "(--version-compatible), so that it needs no such library",
        )
