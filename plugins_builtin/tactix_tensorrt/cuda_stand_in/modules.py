"""Puts the stand-in's modules where programs import CUDA's from, and takes them away again."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import importlib
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from tactix_tensorrt.cuda_stand_in import (
    driver,
    nvrtc,
    pycuda_autoinit,
    pycuda_compiler,
    pycuda_driver,
    pycuda_gpuarray,
    pycuda_tools,
    runtime,
)
from tactix_tensorrt.cuda_stand_in.cudart import CudartLibrary
from tactix_tensorrt.device import chosen
from tactix_tensorrt.libraries import opening

PYCUDA = {
    "pycuda.driver": pycuda_driver,
    "pycuda.autoinit": pycuda_autoinit,
    "pycuda.autoprimaryctx": pycuda_autoinit,
    "pycuda.compiler": pycuda_compiler,
    "pycuda.gpuarray": pycuda_gpuarray,
    "pycuda.tools": pycuda_tools,
}
CUDA_PYTHON = {
    "cuda.bindings.runtime": runtime,
    "cuda.bindings.driver": driver,
    "cuda.cudart": runtime,
    "cuda.cuda": driver,
}
"""Modules by the names under which programs import them: those of today, then the older ones."""

COMPILER = "cuda.bindings.nvrtc"

_ABSENT = object()


def is_cudart(name: object) -> bool:
    """Whether a library's name, or its path, is libcudart's."""
    if not isinstance(name, (str, bytes, os.PathLike)):
        return False
    base = os.path.basename(os.fsdecode(name))
    return base.startswith(("libcudart.so", "libcudart.dylib", "cudart64_"))


class StandInModules:
    """What is put in, and what was there before."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._undo = contextlib.ExitStack()
        self._names: tuple[str, ...] = ()

    def put_in(self, force: bool) -> tuple[str, ...]:
        """The names that lead to the stand-in now. Raises ConfigError, as ``chosen``."""
        with self._lock:
            if not self._names and (force or chosen() == "cpu"):
                self._names = self._put_all()
            return self._names

    def take_out(self) -> None:
        """What was there before is there again."""
        with self._lock:
            self._names = ()
            self._undo.close()

    def _put_all(self) -> tuple[str, ...]:
        modules = {**CUDA_PYTHON, **_compiler(), **PYCUDA}
        for package in ("cuda", "cuda.bindings"):
            self._package(package)
        self._put("pycuda", _empty_package("pycuda"))
        for name, module in modules.items():
            self._put(name, module)
        if COMPILER not in sys.modules:
            self._put(COMPILER, _InstalledCompiler(find_spec(COMPILER)))
        self._open_libraries()
        return tuple(sorted(modules))

    def _package(self, name: str) -> None:
        """NVIDIA's, whose other modules need no GPU, else an empty one."""
        if find_spec(name) is not None:
            importlib.import_module(name)
        else:
            self._put(name, _empty_package(name))

    def _put(self, name: str, module: ModuleType) -> None:
        before = sys.modules.get(name)
        if before is None:
            self._undo.callback(sys.modules.pop, name, None)
        else:
            self._undo.callback(sys.modules.__setitem__, name, before)
        sys.modules[name] = module
        package, _, last = name.rpartition(".")
        if package:
            self._set(sys.modules[package], last, module)

    def _set(self, owner: ModuleType, name: str, value: object) -> None:
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT:
            self._undo.callback(vars(owner).pop, name, None)
        else:
            self._undo.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    def _open_libraries(self) -> None:
        """``ctypes`` gives the stand-in for libcudart, under whatever path it is asked for."""
        library = CudartLibrary()
        loads = opening(ctypes.CDLL, lambda name: library if is_cudart(name) else None)
        finds, find = _finding, ctypes.util.find_library
        self._set(ctypes, "CDLL", loads)
        self._set(ctypes, "cdll", ctypes.LibraryLoader(loads))
        self._set(ctypes.util, "find_library", lambda name: finds(name) or find(name))


def _compiler() -> dict[str, ModuleType]:
    """NVIDIA's kernel compiler under its older name, if it is installed: loading it takes a
    program longer than all of this. Else the stand-in for it.
    """
    if not _has_nvrtc():
        return {COMPILER: nvrtc, "cuda.nvrtc": nvrtc}
    older = _empty_package("cuda.nvrtc")
    vars(older)["__getattr__"] = lambda name: getattr(importlib.import_module(COMPILER), name)
    return {"cuda.nvrtc": older}


class _InstalledCompiler(ModuleType):
    """NVIDIA's, which is imported when a program first uses it."""

    def __init__(self, spec: ModuleSpec | None) -> None:
        super().__init__(COMPILER)
        self.__spec__ = spec

    def __getattr__(self, name: str) -> object:
        return getattr(_installed_compiler(), name)


@functools.cache
def _installed_compiler() -> ModuleType:
    """Imported with NVIDIA's own driver module, of whose types it is made, in the place of the
    stand-in's.
    """
    put = {n: sys.modules.pop(n) for n in (COMPILER, "cuda.bindings.driver") if n in sys.modules}
    try:
        return importlib.import_module(COMPILER)
    finally:
        sys.modules.update(put)
        for name, module in put.items():
            setattr(sys.modules["cuda.bindings"], name.rpartition(".")[2], module)


def _has_nvrtc() -> bool:
    try:
        return find_spec(COMPILER) is not None
    except ImportError:  # of what it is in
        return False


def _finding(name: str) -> str:
    return "libcudart.so" if name == "cudart" else ""


def _empty_package(name: str) -> ModuleType:
    made = ModuleType(name, "A package of tactix's stand-in for CUDA.")
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    return made


MODULES = StandInModules()
"""This process's."""
