"""The BLAS that is here, by ctypes: OpenBLAS in numpy's own wheels, or one of the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

SYSTEM = ("openblas", "mkl_rt", "blis", "cblas", "blas")
DIALECTS = (
    ("scipy_cblas_", "64_", ctypes.c_int64),
    ("cblas_", "64_", ctypes.c_int64),
    ("cblas_", "", ctypes.c_int32),
)
"""Prefix and suffix of names, and the type of integers."""
ROW_MAJOR, NO_TRANSPOSE = 101, 111
LETTERS = {"f32": ("sgemm", ctypes.c_float), "f64": ("dgemm", ctypes.c_double)}

Gemm = Callable[[int, int, int, int, int, float, int], None]


def _files() -> Iterator[str]:
    import numpy

    package = Path(numpy.__file__).parent
    for folder in (package.with_name("numpy.libs"), package / ".dylibs"):
        yield from (str(p) for p in sorted(folder.glob("*openblas*")))
    yield from filter(None, map(find_library, SYSTEM))


@functools.cache
def gemm(dtype: str) -> Gemm | None:
    """``f(m, n, k, a, b, beta, c)``: c = a b + beta c at these addresses, row-major; None where no
    BLAS was found.
    """
    name, real = LETTERS[dtype]
    for file in _files():
        try:
            library: Any = ctypes.CDLL(file)
        except (
            OSError
        ):  # the system's is there for another architecture, or lacks a library of its own
            continue
        for prefix, suffix, integer in DIALECTS:
            if hasattr(library, f"{prefix}{name}{suffix}"):
                return _bound(library[f"{prefix}{name}{suffix}"], real, integer)
    return None


def _bound(function: Any, real: Any, integer: Any) -> Gemm:
    kind, pointer = ctypes.c_int, ctypes.c_void_p
    function.restype = None
    function.argtypes = [
        kind, kind, kind, integer, integer, integer, real, pointer, integer, pointer, integer, real, pointer, integer,
    ]  # fmt: skip

    def call(m: int, n: int, k: int, a: int, b: int, beta: float, c: int) -> None:
        function(
            ROW_MAJOR,
            NO_TRANSPOSE,
            NO_TRANSPOSE,
            m,
            n,
            k,
            1.0,
            a,
            max(k, 1),
            b,
            max(n, 1),
            beta,
            c,
            max(n, 1),
        )

    return call
