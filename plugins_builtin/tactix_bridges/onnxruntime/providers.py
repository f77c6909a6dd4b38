"""ONNX Runtime's execution providers as tactix's devices."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import TypeAlias

from tactix.plugins.session import Session
from tactix_bridges.onnxruntime.errors import InvalidArgument

PROCESSOR = "CPUExecutionProvider"
DEVICES = {"CUDAExecutionProvider": "cuda", PROCESSOR: "cpu"}
"""Kinds of devices; the first one that is there is the best."""

Provider: TypeAlias = str | tuple[str, dict[str, object]]


def get_available_providers() -> list[str]:
    """Those whose device is on this machine, the best one first."""
    return [name for name, kind in DEVICES.items() if kind in _kinds_here()]


@functools.cache
def _kinds_here() -> frozenset[str]:
    """Of devices: which are here stays as it is while a process runs."""
    devices = Session(group="runtime").devices.values()
    return frozenset(d.kind for d in devices if not d.available())


def get_device() -> str:
    """``GPU`` or ``CPU``."""
    return "CPU" if get_available_providers()[:1] == [PROCESSOR] else "GPU"


def chosen(providers: Sequence[Provider] | None) -> list[str]:
    """Those of the given ones that are there, in their order, and the processor where none is. Of
    others a warning tells, as ONNX Runtime does. Raises InvalidArgument for what is no list of
    names, or of pairs of a name and options.
    """
    asked = providers or [PROCESSOR]
    if isinstance(asked, str) or not all(isinstance(p, (str, tuple)) for p in asked):
        do = f"Give a list of names, as in [{PROCESSOR!r}]"
        raise InvalidArgument(f"providers are {providers!r}", do=do)
    names = [p if isinstance(p, str) else p[0] for p in asked]
    there = get_available_providers()
    if absent := [name for name in names if name not in there]:
        told = f"{', '.join(absent)}: not among the available providers ({', '.join(there)})"
        warnings.warn(told, UserWarning, stacklevel=3)
    return [name for name in names if name in there] or [PROCESSOR]
