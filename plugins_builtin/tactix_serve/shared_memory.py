"""System shared memory that clients name: tensors lie there instead of in messages."""

from __future__ import annotations

import os
import re
import weakref
from dataclasses import dataclass
from pathlib import Path

from tactix.base.errors import ConfigError, InvalidArgument

HOME = Path("/dev/shm")
"""Where Linux has what shm_open opens."""
KEY = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class SharedObjectFile:
    """An open object. It is read and written by calls: a client that makes a mapped one smaller
    would end this process. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        weakref.finalize(self, os.close, self._fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        """As many bytes as are there."""
        return os.pread(self._fd, size, offset)

    def write(self, offset: int, content: bytes | memoryview) -> None:
        left = memoryview(content)
        while left.nbytes:
            done = os.pwrite(self._fd, left, offset)
            left, offset = left[done:], offset + done


@dataclass(frozen=True)
class RegionState:
    """``offset``, ``size``: bytes of the object ``key`` that clients may use."""

    name: str
    key: str
    offset: int
    size: int


@dataclass(frozen=True)
class SharedRegion:
    """A region and its object, which is open."""

    state: RegionState
    file: SharedObjectFile


@dataclass(frozen=True)
class RegionSlice:
    """Where a tensor lies in a region, in bytes."""

    region: str
    offset: int
    size: int


class SharedMemory:
    """``allowed``: whether clients may name any."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self._regions: dict[str, SharedRegion] = {}

    def register(self, state: RegionState) -> None:
        """Raises ConfigError where it is not allowed, InvalidArgument for what is not there."""
        if not self.allowed:
            raise ConfigError(
                "this server takes no shared memory", do="Start it with --shared-memory"
            )
        name, key, offset, size = state.name, state.key, state.offset, state.size
        if name in self._regions:
            raise InvalidArgument(f"region {name!r} is registered", do="Unregister it first")
        if not KEY.fullmatch(key):
            raise InvalidArgument(f"no shared memory can have the key {key!r}")
        try:
            file = SharedObjectFile(HOME / key.removeprefix("/"))
        except OSError as e:
            raise InvalidArgument(f"shared memory {key!r} cannot be opened", why=str(e)) from None
        if offset < 0 or size < 1 or offset + size > file.size:
            what = f"{size} bytes at {offset} of shared memory {key!r}"
            raise InvalidArgument(what, why=f"it has {file.size}")
        self._regions[name] = SharedRegion(state, file)

    def unregister(self, name: str = "") -> None:
        """One, or all. One that is not there is none afterwards."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def regions(self, name: str = "") -> list[RegionState]:
        """One, or all. Raises InvalidArgument for one that is not there."""
        found = [self._region(name)] if name else self._regions.values()
        return [region.state for region in found]

    def read(self, place: RegionSlice) -> memoryview:
        """What lies there now. Raises InvalidArgument."""
        region = self._checked(place)
        found = region.file.read(region.state.offset + place.offset, place.size)
        if len(found) < place.size:
            raise _smaller(place.region)
        return memoryview(found)

    def write(self, place: RegionSlice, content: bytes | memoryview) -> None:
        """Raises InvalidArgument where it does not fit."""
        region, size = self._checked(place), memoryview(content).nbytes
        if size > place.size:
            what = f"an output of {size} bytes does not fit in region {place.region!r}"
            raise InvalidArgument(what, why=f"the request names {place.size}")
        start = region.state.offset + place.offset
        if start + size > region.file.size:
            raise _smaller(place.region)
        region.file.write(start, content)

    def _checked(self, place: RegionSlice) -> SharedRegion:
        region = self._region(place.region)
        if place.offset < 0 or place.size < 0 or place.offset + place.size > region.state.size:
            what = f"{place.size} bytes at {place.offset} of region {place.region!r}"
            raise InvalidArgument(what, why=f"it has {region.state.size}")
        return region

    def _region(self, name: str) -> SharedRegion:
        if name not in self._regions:
            known = ", ".join(self._regions) or "none"
            raise InvalidArgument(f"no region {name!r} is registered", do=f"There are: {known}")
        return self._regions[name]


def _smaller(region: str) -> InvalidArgument:
    what = f"region {region!r} has become smaller"
    return InvalidArgument(what, do="Keep it until it is unregistered")
