"""oneDNN's C interface, version 3.2 and later, as far as the pack needs it. Numbers are those of
``dnnl_types.h``.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from importlib import metadata
from typing import Any

from tactix_sdk import errors

WHEELS = ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn")
OLDEST, NEXT = (3, 2), (4,)
CPU, IN_ORDER = 1, 1
TYPES = {"f16": 1, "bf16": 2, "f32": 3}
SOURCE, RESULT, WEIGHTS, SCRATCHPAD = 1, 17, 33, 80
SCRATCHPAD_DESC, USERS = 136, 1
"""The query for it, and the mode in which it is the user's: the library's own is one for all
primitives of a thread.
"""
RELU, TANH, LOGISTIC, GELU_TANH, GELU_ERF = 0x20, 0x21, 0x29, 0x2B, 0x31
ADD, MULTIPLY = 0x1FFF0, 0x1FFF1


def operand_of(post: int) -> int:
    """The argument that is the second operand of post-operation ``post``."""
    return 32768 * (post + 1) | 2


class Argument(ctypes.Structure):
    """``dnnl_exec_arg_t``."""

    _fields_ = [("arg", ctypes.c_int), ("memory", ctypes.c_void_p)]


def _files() -> Iterator[str]:
    for wheel in WHEELS:
        try:
            found = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in found if f.name == f"libdnnl.so.{OLDEST[0]}")
    if system := find_library("dnnl"):
        yield system


@functools.cache
def library() -> OneDnn | None:
    """The first that is found; None where there is none of such a version."""
    for file in _files():
        try:
            found = OneDnn(ctypes.CDLL(file))
        except (
            OSError,
            AttributeError,
        ):  # it lacks a library of its own, or shares work by another than OpenMP
            continue
        if OLDEST <= found.version < NEXT:
            return found
    return None


class Handle(ctypes.c_void_p):
    """An object of the library's, destroyed with this one."""


class OneDnn:
    """An engine for the CPU."""

    def __init__(self, c: Any) -> None:
        class Version(ctypes.Structure):
            _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int)]

        self.c = c
        c.omp_get_max_threads  # noqa: B018  AttributeError where it was built without
        c.dnnl_version.restype = ctypes.POINTER(Version)
        found = c.dnnl_version().contents
        self.version = (found.major, found.minor, found.patch)
        c.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.engine = self.make("engine", "engine_create", CPU, ctypes.c_size_t(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Raises ExecutionError with the library's status."""
        if status := self.c[f"dnnl_{name}"](*arguments):
            raise errors.ExecutionError(f"dnnl_{name} failed", who="oneDNN", why=f"status {status}")

    def make(self, kind: str, name: str, *arguments: Any) -> Handle:
        """An object of a kind from a function that gives it by its first argument."""
        made = Handle()
        self.call(name, ctypes.byref(made), *arguments)
        weakref.finalize(
            made, self.c[f"dnnl_{kind}_destroy"], ctypes.c_void_p(made.value)
        ).atexit = False
        return made

    def desc(self, shape: Sequence[int], dtype: str) -> Handle:
        """A row-major tensor's descriptor."""
        dims = (ctypes.c_int64 * 12)(*shape)
        strides = (ctypes.c_int64 * 12)(
            *[functools.reduce(int.__mul__, shape[i + 1 :], 1) for i in range(len(shape))]
        )
        return self.make(
            "memory_desc",
            "memory_desc_create_with_strides",
            len(shape),
            dims,
            TYPES[dtype],
            strides,
        )

    def memory(self, desc: Handle) -> Handle:
        """Of no address yet."""
        return self.make("memory", "memory_create", desc, self.engine, None)

    def stream(self) -> Handle:
        """For one thread at a time."""
        return self.make("stream", "stream_create", self.engine, IN_ORDER)

    def place(self, memory: Handle, address: int) -> None:
        """Give it an address."""
        self.call("memory_set_data_handle", memory, ctypes.c_void_p(address))

    def post_ops(self, steps: Sequence[tuple[int, float, Handle | None]]) -> Handle:
        """Attributes with these: a binary one with the descriptor of its operand, or an elementwise
        one with alpha.
        """
        made = self.make("post_ops", "post_ops_create")
        for algorithm, alpha, desc in steps:
            if desc is None:
                self.call(
                    "post_ops_append_eltwise",
                    made,
                    algorithm,
                    ctypes.c_float(alpha),
                    ctypes.c_float(0),
                )
            else:
                self.call("post_ops_append_binary", made, algorithm, desc)
        attributes = self.make("primitive_attr", "primitive_attr_create")
        self.call("primitive_attr_set_post_ops", attributes, made)
        self.call("primitive_attr_set_scratchpad_mode", attributes, USERS)
        return attributes

    def matmul(self, a: Handle, b: Handle, y: Handle, attributes: Handle) -> tuple[Handle, Handle]:
        """A primitive and its scratchpad. Raises ExecutionError for what this processor has no
        implementation for.
        """
        described = self.make(
            "primitive_desc", "matmul_primitive_desc_create", self.engine, a, b, None, y, attributes
        )
        desc = ctypes.c_void_p(self.c.dnnl_primitive_desc_query_md(described, SCRATCHPAD_DESC, 0))
        scratchpad = self.make("memory", "memory_create", desc, self.engine, ctypes.c_void_p(-1))
        return self.make("primitive", "primitive_create", described), scratchpad

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """So many of OpenMP's, for what this thread does meanwhile; what other libraries have stays
        as it is.
        """
        before = self.c.omp_get_max_threads()
        self.c.omp_set_num_threads(count)
        try:
            yield
        finally:
            self.c.omp_set_num_threads(before)

    def execute(self, primitive: Handle, stream: Handle, memories: Mapping[int, Handle]) -> None:
        """Run it, and wait."""
        given = (Argument * len(memories))(*[Argument(a, m.value) for a, m in memories.items()])
        self.call("primitive_execute", primitive, stream, len(memories), given)
        self.call("stream_wait", stream)
