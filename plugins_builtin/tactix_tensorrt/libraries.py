"""TensorRT's libraries as programs open them by ``ctypes``: what is in them is here already."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

NAMES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


def opening(real: type[ctypes.CDLL], found: Callable[[object], object | None]) -> type[ctypes.CDLL]:
    """``real``, but for libraries that ``found`` has something for."""

    def new(
        cls: type[ctypes.CDLL], name: object = None, *args: object, **options: object
    ) -> object:
        own = found(name)
        if own is not None:
            return own
        make: Callable[..., object] = real.__new__
        if make is object.__new__:
            return make(cls)
        return make(cls, name, *args, **options)  # of what stands in for other libraries

    return type(real.__name__, (real,), {"__new__": new})


class TensorRTLibrary:
    """One of TensorRT's libraries, of which programs need that it registers plugins: that of the
    plugins does when it is opened.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        if "plugin" in name:
            _register(None, None)
        self.initLibNvInferPlugins = ctypes.CFUNCTYPE(
            ctypes.c_bool, ctypes.c_void_p, ctypes.c_char_p
        )(_register)

    def __getattr__(self, name: str) -> object:
        what = f"{self._name} is tactix's stand-in for TensorRT's: there is no function {name}"
        raise AttributeError(f"{what}. Use the module tensorrt")


def _register(logger: int | None, namespace: bytes | None) -> bool:
    from tactix_tensorrt.api.plugin_registry import init_libnvinfer_plugins

    return init_libnvinfer_plugins(None, (namespace or b"").decode())


def tensorrts(name: object) -> str:
    """A library's name if it is, or its path ends in, one of TensorRT's; else empty."""
    if not isinstance(name, (str, bytes, os.PathLike)):
        return ""
    base = os.path.basename(os.fsdecode(name))
    stem, _, rest = base.partition(".")
    known = {*NAMES, *(f"lib{n}" for n in NAMES), *(f"{n}_10" for n in NAMES)}
    return base if stem in known and rest.split(".")[0] in ("so", "dll", "dylib") else ""


@functools.cache
def stand_in() -> None:
    """Let ``ctypes`` give something for TensorRT's libraries where they cannot be opened."""
    real = ctypes.CDLL

    def found(name: object) -> object | None:
        own = tensorrts(name)
        if not own:
            return None
        try:
            return real(os.fsdecode(str(name)))
        except OSError:
            return TensorRTLibrary(own)

    loads = opening(real, found)
    vars(ctypes).update(CDLL=loads, cdll=ctypes.LibraryLoader(loads))
