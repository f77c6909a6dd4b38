"""Libraries that ``tactix export --c`` wrote, called as a program in C calls them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tactix.plan.schema import Plan
from tactix_ship.c_library.export import Library, export

OK = 0


class COptions(ctypes.Structure):
    """NAME_options; the last is of libraries for a GPU alone."""

    _fields_ = (
        ("threads", ctypes.c_int),
        ("skip_digest", ctypes.c_int),
        ("weights", ctypes.c_char_p),
        ("device", ctypes.c_int),
    )


class CLibraryError(Exception):
    """What a call returned and said: ``status``: without the name of the library."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class CLibrary:
    """A shared library."""

    def __init__(self, path: Path, name: str) -> None:
        self._loaded, self.name = ctypes.CDLL(str(path)), name
        for function in ("last_error", "status_name", "description"):
            self.function(function).restype = ctypes.c_char_p

    def function(self, name: str) -> Any:
        return getattr(self._loaded, f"{self.name}_{name}")

    def check(self, status: int, context: Any) -> None:
        """Raises CLibraryError."""
        if status != OK:
            name = self.function("status_name")(status).decode()
            text = self.function("last_error")(context).decode()
            raise CLibraryError(name.removeprefix(f"{self.name.upper()}_"), text)

    def create(self, **options: Any) -> CContext:
        """``threads``, ``skip_digest``, ``weights``, ``device``. Raises CLibraryError."""
        return CContext(self, COptions(**options))


class CContext:
    """A context, which is destroyed with this object."""

    def __init__(self, library: CLibrary, options: COptions) -> None:
        self._library, self.handle = library, ctypes.c_void_p()
        create = library.function("create")
        library.check(create(ctypes.byref(options), ctypes.byref(self.handle)), None)
        self._kept: dict[Any, Any] = {}

    def __del__(self) -> None:
        self._library.function("destroy")(self.handle)

    def call(self, function: str, *args: Any) -> None:
        """Integers are as wide as size_t. Raises CLibraryError."""
        given = [ctypes.c_size_t(a) if isinstance(a, int) else a for a in args]
        status = self._library.function(function)(self.handle, *given)
        self._library.check(status, self.handle)

    def shape(self, index: int, shape: Sequence[int]) -> None:
        self.call("set_input_shape", index, (ctypes.c_int64 * len(shape))(*shape), len(shape))

    def output_shape(self, index: int, rank: int) -> tuple[int, ...]:
        dims = (ctypes.c_int64 * rank)()
        self.call("output_shape", index, dims, rank)
        return tuple(dims)

    def bind(self, kind: str, index: int, array: Any, nbytes: int = -1) -> None:
        """``kind``: input or output."""
        self._kept[kind, index] = array
        size = array.nbytes if nbytes < 0 else nbytes
        self.call(f"bind_{kind}", index, ctypes.c_void_p(array.ctypes.data), size)

    def run(self) -> None:
        self.call("run")

    def infer(self, plan: Plan, feeds: Mapping[str, Any]) -> list[Any]:
        """Arrays in, new arrays out, in the plan's order."""
        for i, io in enumerate(plan.inputs):
            x = np.asarray(feeds[io.name], io.dtype.numpy, order="C")  # which keeps rank 0
            self.shape(i, x.shape)
            self.bind("input", i, x)
        outputs = []
        for i, io in enumerate(plan.outputs):
            y = np.empty(self.output_shape(i, len(io.shape)), io.dtype.numpy)
            self.bind("output", i, y)
            outputs.append(y)
        self.run()
        return outputs


def made(plan: Plan, folder: Path, name: str = "net", embedded: bool = True) -> CLibrary:
    """A shared library of a plan."""
    found = written(plan, folder, name, embedded)
    return CLibrary(found.libraries[0], name)


def written(plan: Plan, folder: Path, name: str = "net", embedded: bool = True) -> Library:
    return export(plan, folder, name, forms=("shared",), embedded=embedded)


def warnings_of(folder: Path, compiler: Sequence[str]) -> list[list[str]]:
    """Commands that compile every unit of a folder's sources with all warnings as errors."""
    src = folder / "src"
    options = re.search(r'KERNEL_OPTIONS "(.*?)"', (src / "CMakeLists.txt").read_text())
    assert options
    strict = [*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-std=gnu11"]
    host = [[*strict, "-O2", f"-I{folder / 'include'}", str(src / "context.c")]]
    own = options[1].split(";")
    return host + [[*strict, *own, str(unit)] for unit in sorted((src / "kernels").glob("*.c"))]
