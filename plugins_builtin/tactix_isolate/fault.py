"""Tells where a process stumbled: on a bad address one JSON line goes out before the process dies
of it. Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sys
from typing import Any

_SIGNALS = (signal.SIGSEGV, getattr(signal, "SIGBUS", signal.SIGSEGV))
_INFO, _NO_DEFER, _RESET = 0x4, 0x40000000, 0x80000000
"""SA_SIGINFO, SA_NODEFER, SA_RESETHAND."""
_CODE, _ADDRESS = 8, 16
"""Where siginfo_t of 64-bit Linux holds why, and the address."""
_ERROR, _WRITE = 40 + 19 * 8, 2
"""Where ucontext_t of x86-64 holds the page fault's error code, and its bit for writing."""

_handler_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_kept: list[Any] = []


class _Action(ctypes.Structure):
    """struct sigaction of Linux's C libraries."""

    _fields_ = (
        ("handler", _handler_type),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def watch(fd: int) -> None:
    """From now on a bad address is told on ``fd``: ``fault`` is the signal, ``code`` is si_code,
    ``write`` may be null.

    The handler runs Python where native code has failed, which may fail in turn: the process dies
    in any case.
    """
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return
    told = platform.machine() == "x86_64"

    def handler(number: int, info: int, context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _ADDRESS).value
        code = ctypes.c_int.from_address(info + _CODE).value
        write = (
            bool(ctypes.c_uint64.from_address(context + _ERROR).value & _WRITE) if told else None
        )
        os.write(
            fd,
            json.dumps({"fault": number, "address": address, "code": code, "write": write}).encode()
            + b"\n",
        )

    action = _Action(_handler_type(handler))
    action.flags = ctypes.c_int(_INFO | _NO_DEFER | _RESET).value
    _kept.append(action)
    for number in _SIGNALS:
        ctypes.CDLL(None).sigaction(int(number), ctypes.byref(action), None)
