"""Runs machine code: shared objects in memory, one flat table of arguments, one native call for all
steps.

A library is loaded once per process and content, and unloaded when nothing has kernels of it any
more. The executor (executor/executor.c) is part of every library; the first one with the right ABI
runs them all, so that the process has one pool of worker threads. These threads never end, so the
executor's library stays.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import hashlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tactix.base.arithmetic import Evaluator, IntegerArithmetic, python
from tactix.base.dims import Dim, Env
from tactix.base.errors import DataError, ExecutionError, out_of_range
from tactix.base.formulas import Formulas
from tactix.contracts.artifact import Arg, Binary, Launch
from tactix.contracts.launcher import (
    BindableBody,
    Launcher,
    LinkContext,
    Runnable,
    Step,
    StepBody,
    TimedRunnable,
)
from tactix.contracts.program import ChangingSizes, NativeProgram, Part, PlacedPart
from tactix.run.arrays import address_of
from tactix_cpu.arithmetic import NativeEvaluator

ABI = 4

TRIALS = 16
"""First runs at a shape that are timed on one thread, then shared out, then in turns, to see which
launches are worth waking other threads for; with TACTIX_ALWAYS_PARALLEL=1 there are none, and all
are shared out, for tests. The least of 16 times is what counts, as other work only makes a run
longer; no measurement of their number is on record.
"""
TABLE_WORDS, GIVEN_WORDS = 18, 7
"""Of txe_table, 8 bytes each, and those of them that the launcher gives."""
NEAR, REMEMBERED = 2, 8
"""Shapes are near if no size is more than so many times that of the other; so many last ones are
remembered. No measurement of either is on record: a growing sequence passes a factor of 2 rarely.
"""

PYTHON = ("PyCapsule_GetPointer", "PyEval_SaveThread", "PyEval_RestoreThread", "PyBool_FromLong")
"""What builtin functions use of the interpreter, in the order of txe_python."""
BUILTIN = ("tx_call", "tx_call_profile", "tx_call_evaluate", "tx_call_bind", "tx_call_advance")
"""Entries that are builtin functions of Python over a capsule."""


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class SharedObject:
    """A loaded shared object: addresses of its kernels. It is unloaded with this object."""

    def __init__(self, content: bytes) -> None:
        try:
            self.handle = _load(content)
            self._unloading = weakref.finalize(self, _ctypes.dlclose, self.handle._handle)
            self._unloading.atexit = False  # nor does anything else end what may be running then
            self.abi = int(self.handle.tx_abi())
        except (OSError, AttributeError) as e:
            raise ExecutionError("machine code cannot be loaded", why=str(e)) from None
        if self.abi != ABI:
            raise ExecutionError(
                f"machine code with ABI {self.abi}",
                why=f"this launcher knows {ABI}",
                do="Build again",
            )
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Of a kernel. Raises AttributeError, or ValueError for what cannot be a name."""
        if symbol not in self._addresses:
            self._addresses[symbol] = ctypes.cast(self.handle[symbol], ctypes.c_void_p).value or 0
        return self._addresses[symbol]

    def keep(self) -> None:
        """Loaded for as long as the process lives."""
        self._unloading.detach()


class Executor:
    """The entries of a library that run tables of any. It is never unloaded: threads of its pool
    wait in its code, and Python may call its functions.

    Raises ExecutionError.
    """

    def __init__(self, library: SharedObject) -> None:
        self.library, self.handle = library, library.handle
        try:
            self._find(library)
        except AttributeError as e:
            raise ExecutionError("machine code cannot be loaded", why=str(e)) from None
        library.keep()

    def _find(self, library: SharedObject) -> None:
        self.run = self._entry("tx_run", ctypes.c_void_p)
        self.start = self._entry("tx_start", ctypes.c_void_p, ctypes.c_int64)
        self.move = self._later("tx_move", ctypes.c_void_p)
        self.advance = self._later("tx_advance", ctypes.c_void_p)
        parts = self._later("tx_parts")
        self.kinds_of_parts = int(parts()) if parts else 3
        self.evaluate = self._later("tx_evaluate", ctypes.c_void_p)
        self.bind = self._later("tx_bind", ctypes.c_void_p)
        self.profile = self._later("tx_profile", ctypes.c_void_p)
        self.repeat = self._entry("tx_repeat", ctypes.c_void_p, ctypes.c_int64)
        self.set_threads = self._entry("tx_set_threads", ctypes.c_int)
        self._methods = {}
        if sys.implementation.name == "cpython":
            self._give_python()
            self._methods = {
                entry: self._builtin(library, entry)
                for entry in BUILTIN
                if hasattr(self.handle, entry)
            }

    def _entry(self, name: str, *types: Any) -> Any:
        function = getattr(self.handle, name)
        function.argtypes, function.restype = types, ctypes.c_int
        return function

    def _later(self, name: str, *types: Any) -> Any:
        """An entry that plans of earlier versions do not have: None in these."""
        return self._entry(name, *types) if hasattr(self.handle, name) else None

    def _give_python(self) -> None:
        """What its builtin functions need of the interpreter, CPython."""
        found = [
            ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
            for name in PYTHON
        ]
        functions: Any = (ctypes.c_size_t * len(PYTHON)).in_dll(self.handle, "tx_python")
        functions[:] = found

    @staticmethod
    def _builtin(library: SharedObject, entry: str) -> _Method:
        no_arguments = 4  # METH_NOARGS
        return _Method(b"run", library.address(entry), no_arguments, None)

    def evaluator(self, arithmetic: IntegerArithmetic) -> Evaluator:
        """What runs the arithmetic of shapes; as Python does where these libraries cannot."""
        if self.evaluate is None:
            return python(arithmetic)
        caller = functools.partial(self._caller, "tx_call_evaluate", self.evaluate)
        try:
            return NativeEvaluator(caller, arithmetic)
        except OverflowError:
            return python(arithmetic)

    def runner(self, table: int) -> Callable[..., Any]:
        """Runs the table at that address."""
        return self._caller("tx_call", self.run, table)

    def stamper(self, stamps: int) -> Callable[..., Any] | None:
        """Runs a table with timestamps, by the txe_stamps at that address; None in plans of earlier
        versions.
        """
        return self._caller("tx_call_profile", self.profile, stamps) if self.profile else None

    def binder(self, binding: int) -> Callable[..., Any] | None:
        """Fills arguments by the txe_binding at that address; None where that is numpy's to do."""
        return self._caller("tx_call_bind", self.bind, binding) if self.bind else None

    def advancer(self, start: int) -> Callable[..., Any]:
        """Runs the program of the txe_start at that address, for a while: whether it is to be
        called again. Only where there is ``advance``.
        """
        return self._caller("tx_call_advance", self.advance, start)

    def _caller(self, entry: str, function: Callable[..., int], address: int) -> Callable[..., Any]:
        """The entry over that address: a builtin function, else, several times as slow to call, the
        one of ctypes.
        """
        if entry not in self._methods:
            return functools.partial(function, ctypes.c_void_p(address))
        method, capsule = ctypes.byref(self._methods[entry]), _new_capsule(address, None, None)
        return _new_function(method, capsule, None)  # type: ignore[no-any-return]


def _interpreter(name: str, *types: Any) -> Any:
    """A function of CPython that gives an object; one that is not there cannot be called."""
    function = getattr(getattr(ctypes, "pythonapi", None), name, None)
    if function is not None:
        function.argtypes, function.restype = types, ctypes.py_object
    return function


_new_function = _interpreter(
    "PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)
_new_capsule = _interpreter("PyCapsule_New", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_libraries: weakref.WeakValueDictionary[str, SharedObject] = weakref.WeakValueDictionary()
_executors: dict[int, Executor] = {}
_tables: weakref.WeakValueDictionary[tuple[int, ...], ArgumentTable] = weakref.WeakValueDictionary()
_loading, _linking = threading.Lock(), threading.Lock()
_serial = count(1)


def library(content: bytes) -> SharedObject:
    """The library with that content. Raises ExecutionError."""
    digest = hashlib.sha256(content).hexdigest()
    with _loading:
        found = _libraries.get(digest)
        if found is None:
            found = _libraries[digest] = SharedObject(content)
        return found


def executor(lib: SharedObject) -> Executor:
    """The one that runs the kernels of that library. Raises ExecutionError."""
    with _loading:
        if lib.abi not in _executors:
            _executors[lib.abi] = Executor(lib)
        return _executors[lib.abi]


def _load(content: bytes) -> ctypes.CDLL:
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        return _load_memory(content)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tactix-") as folder:
        path = os.path.join(folder, f"plan-{next(_serial)}.so")
        with open(path, "xb") as f:
            f.write(content)
        return ctypes.CDLL(path)


def _load_memory(content: bytes) -> ctypes.CDLL:
    fd = os.memfd_create("tactix-plan")
    try:
        with open(fd, "wb", closefd=False) as f:
            f.write(content)
        # The loader takes a path that it has seen for the same library, and numbers of closed files
        # come again: so every load spells its path in another way, with "/" and "/." for the bits
        # of the inode's number, which no other file has as long as the library is there, whichever
        # copy of this module has loaded it.
        spelling = "".join("/." if bit == "1" else "/" for bit in f"{os.fstat(fd).st_ino:b}")
        return ctypes.CDLL(f"/proc/self/fd{spelling}/{fd}")
    finally:
        os.close(fd)


def evaluator(arithmetic: IntegerArithmetic, steps: Sequence[Step]) -> Evaluator:
    """What runs the arithmetic of shapes: the executor of the first step with machine code. Raises
    ExecutionError.
    """
    codes = (s.artifact.code for s in steps if s.artifact.launcher == ElfLauncher.key)
    code = next((c for c in codes if isinstance(c, Binary)), None)
    return executor(library(code.blob)).evaluator(arithmetic) if code else python(arithmetic)


class ElfLauncher(Launcher):
    """Steps whose code is a Binary and whose launches name its symbols."""

    key = "tactix.cpu.elf@1"
    device = "cpu"
    iterates = True
    nests = True

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for code that is missing, cannot be loaded, or lacks a kernel."""
        key = tuple(map(id, steps))
        with _linking:
            table = _tables.get(key)
            if table is None:
                table = _tables[key] = ArgumentTable(steps)
        return ElfRun(table, ctx.threads)

    def link_timed(self, steps: Sequence[Step], ctx: LinkContext) -> TimedRunnable | None:
        """None also where the executor is that of an earlier plan, which takes no timestamps."""
        from tactix_cpu.timestamps import StampedRun

        run = self.link(steps, ctx)
        assert isinstance(run, ElfRun)
        able = run.executor is not None and run.executor.profile is not None
        return StampedRun(run, steps, ctx.threads) if able else None

    def program(
        self,
        parts: Sequence[Part],
        addresses: Sequence[int],
        moving: Sequence[int],
        sizes: ChangingSizes | None = None,
    ) -> NativeProgram | None:
        """As ``Launcher.program``; None also where the executor is that of an earlier plan, which
        has no programs.
        """
        from tactix_cpu.programs import program

        return program(parts, addresses, moving, sizes)

    def told(self, step: Step) -> frozenset[str]:
        """As ``Launcher.told``: all sizes of a step that is produced."""
        from tactix_cpu.produced import told_by

        return frozenset(told_by(step))

    def part(
        self,
        step: Step,
        env: Env,
        expected: Env,
        bodies: Sequence[BindableBody],
        ctx: LinkContext,
    ) -> PlacedPart | None:
        """A step that tells sizes, at those that are expected; None where they are not known."""
        from tactix_cpu.produced import produced_step

        return produced_step(step).part({**env, **expected}, ctx.threads)

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """Kernels tell the sizes first (``artifact.told``). Raises ExecutionError, ShapeError,
        AllocationError.
        """
        from tactix_cpu.produced import produced_step

        return produced_step(step).run(env, values, ctx.threads)


@dataclass(frozen=True)
class Timed:
    """A run's state, of timed runs that began at a shape: ``times`` are its rows of txe_table,
    ``native`` the table.
    """

    env: Env
    threads: int
    times: Any
    native: Any

    def is_near(self, env: Env) -> bool:
        """Whether the choices may hold at other sizes."""
        pairs = [(self.env[k], env[k]) for k in env.keys() & self.env.keys()]
        near = all(a == b or 0 < max(a, b) <= NEAR * min(a, b) for a, b in pairs)
        return near and env.keys() == self.env.keys()


class ArgumentSlots:
    """Argument slots of all launches in a row, and what goes into each.

    ``starts``: the first slot of each launch. ``pointers``: slot, buffer, and index of what is
    added to its address; ``scalars``: slot, and index of the value: both in ``dims``. ``faults``:
    slot, and the step that reports what it refuses.
    """

    def __init__(self, launches: Iterable[tuple[Step, Launch]]) -> None:
        self.size = 0
        self.starts: list[int] = []
        self.faults: list[tuple[int, Step]] = []
        self.pointers: list[tuple[int, int, int]] = []
        self.scalars: list[tuple[int, int]] = []
        self._known: dict[Dim, int] = {}
        for step, launch in launches:
            self.starts.append(self.size)
            for arg in launch.args:
                self._add(step, arg)

    def _add(self, step: Step, arg: Arg) -> None:
        value = self._known.setdefault(arg.value, len(self._known))
        if arg.kind == "fault":
            self.faults.append((self.size, step))
        elif arg.kind == "scalar":
            self.scalars.append((self.size, value))
        else:
            self.pointers.append((self.size, _buffer(step, arg), value))
        self.size += 1

    @property
    def dims(self) -> Sequence[Dim]:
        return tuple(self._known)


class ArgumentTable:
    """The slots with the kernels that take them: what all runs of these steps share."""

    def __init__(self, steps: Sequence[Step]) -> None:
        import numpy as np

        self.steps = tuple(steps)  # their ids are the key of this table: they must live as long
        self.users: dict[int, list[tuple[int, int]]] = {}
        self.executor: Executor | None = None
        self.libraries: list[SharedObject] = []  # which would be unloaded without it
        self.timed: tuple[Timed, ...] = ()  # replaced, never changed: contexts begin side by side
        found = list(_kernels(steps))
        for _, _, lib, _ in found:
            if lib not in self.libraries:
                self.libraries.append(lib)
            self.executor = self.executor or executor(lib)
        slots = ArgumentSlots((step, launch) for step, launch, _, _ in found)
        self.size, self.starts, self.faults = slots.size, slots.starts, slots.faults
        for slot, buffer, offset in slots.pointers:
            self.users.setdefault(buffer, []).append((slot, offset))
        self.formulas = Formulas(slots.dims, self.executor.evaluator if self.executor else python)
        self.kernels = np.array([address for _, _, _, address in found], np.int64)
        rows = (
            np.array(slots.pointers, np.int64).reshape(-1, 3),
            np.array(slots.scalars, np.int64).reshape(-1, 2),
        )
        self.pointers, self.scalars = (r.T for r in rows)
        self.rows = [n for r in rows for n in (len(r), r.ctypes.data)]  # for txe_binding


def _buffer(step: Step, arg: Arg) -> int:
    if arg.kind == "constant":
        return step.constants[arg.name]
    if arg.kind == "workspace":
        return step.workspace
    return (step.inputs if arg.kind == "input" else step.outputs)[arg.index].buffer


def _kernels(steps: Sequence[Step]) -> Iterator[tuple[Step, Launch, SharedObject, int]]:
    """Every launch with the address of its kernel."""
    known: dict[
        int, SharedObject
    ] = {}  # by identity: hashing the same bytes for every step would take long
    for s in steps:
        code = s.artifact.code
        if not isinstance(code, Binary):
            raise ExecutionError(
                "it has no machine code", who=s.name, do="Compile it when the plan is built"
            )
        lib = known.get(id(code.blob)) or known.setdefault(id(code.blob), library(code.blob))
        for launch in s.artifact.launches:
            symbol = launch.symbol or code.symbol
            try:
                yield s, launch, lib, lib.address(symbol)
            except (AttributeError, ValueError):
                raise ExecutionError(
                    f"its machine code has no kernel {symbol!r}", who=s.name
                ) from None


class Faults:
    """What the kernels of a run report of inputs that they refuse: a record each, see
    ``artifact.fault``.

    ``flag``: its only element is not 0 once there is something in a record; at ``address``.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        import numpy as np

        self._steps = steps
        words = self._words = np.zeros((1 + len(steps), 4), np.int64)
        words[1:, 3] = words.ctypes.data
        self.flag = memoryview(words[0, :1].data)
        self.address = words.ctypes.data
        self.addresses = words.ctypes.data + words.strides[0] * np.arange(1, 1 + len(steps))

    def fail(self) -> None:
        """Raises DataError for the first step that reported something; nothing is reported then."""
        first = int((self._words[1:, 0] != 0).argmax())
        reason, a, b, _ = self._words[1 + first].tolist()
        self._words[0] = 0
        self._words[1:, :3] = 0
        step = self._steps[first]
        if reason == 1:
            raise out_of_range(a, b, step.name)
        what, cure = step.artifact.refusals[reason - 2]
        raise DataError(what.format(a, b), who=step.name, do=cure)


def _reporting(run: Callable[..., Any], faults: Faults) -> Callable[..., Any]:
    """The call, and the error for what was reported meanwhile."""
    flag = faults.flag

    def reporting(*args: Any) -> None:
        run(*args)
        if flag[0]:
            faults.fail()

    return reporting


class ElfRun(functools.partial[None]):
    """All launches as one native call. A partial, so that calling it costs no Python frame where
    nothing is watched.
    """

    _args: Any
    _slots: Any
    _table: Any
    _times: Any
    _address: Any
    _faults: Faults | None

    def __new__(cls, table: ArgumentTable, threads: int) -> ElfRun:
        import numpy as np

        slots = np.zeros(max(1, table.size), np.int64)
        args = np.array(table.starts, np.int64) * 8 + slots.ctypes.data
        count = len(table.kernels)
        times = np.zeros((3, max(1, count)), np.int64)
        native = np.zeros(TABLE_WORDS, np.int64)
        native[:4] = count, threads, table.kernels.ctypes.data, args.ctypes.data
        native[4:7] = [row.ctypes.data for row in times]
        address = native.ctypes.data
        run = table.executor.runner(address) if table.executor else _nothing
        faults = Faults([step for _, step in table.faults]) if table.faults else None
        self = super().__new__(cls, _reporting(run, faults) if faults else run)
        self._faults = faults
        self._slots, self._table, self._times, self._args, self._address = (
            slots,
            native,
            times,
            args,
            address,
        )
        return self

    def __init__(self, table: ArgumentTable, threads: int) -> None:
        import numpy as np

        self._shared, self._users = table, table.users
        self._threads, self._begun = threads, False
        self._view = memoryview(self._slots.data)
        self._values: Sequence[int] = (0,) * len(table.formulas.dims)
        self._start: Any = table.executor.start if table.executor else _nothing
        self._move: Any = table.executor.move if table.executor else None
        self._repeat: Any = table.executor.repeat if table.executor else _nothing
        binding = np.array([self._slots.ctypes.data, *table.rows, 0, 0], np.int64)
        self._binding = memoryview(binding.data)
        self._bind = table.executor.binder(binding.ctypes.data) if table.executor else None
        if self._faults:
            self._repeat = _reporting(self._repeat, self._faults)
            self._slots[[slot for slot, _ in table.faults]] = self._faults.addresses

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        import numpy as np

        self._values = self._shared.formulas.at(env)
        values, where = (np.asarray(x, np.int64) for x in (self._values, addresses))
        if self._bind:
            self._binding[5], self._binding[6] = address_of(where), address_of(values)
            self._bind()
        else:
            slots, buffers, offsets = self._shared.pointers
            self._slots[slots] = where[buffers] + values[offsets]
            slots, scalars = self._shared.scalars
            self._slots[slots] = values[scalars]
        if self._threads > 1 or not self._begun:
            self._begin(dict(env))

    def _begin(self, env: Env) -> None:
        """Time the first runs at a shape; at one that is near another begin with what was chosen
        there.
        """
        self._begun = True
        if os.environ.get("TACTIX_ALWAYS_PARALLEL") == "1":
            self._start(self._address, 0)
            return
        known = self._shared.timed
        found = next(
            (t for t in reversed(known) if t.threads == self._threads and t.is_near(env)), None
        )
        if found is None or self._move is None:
            self._start(self._address, TRIALS)
            found = Timed(env, self._threads, self._times, self._table)
        elif found.native is not self._table:
            self._times[:], self._table[GIVEN_WORDS:] = found.times, found.native[GIVEN_WORDS:]
            self._move(self._address)
        fresh = Timed(found.env, self._threads, self._times, self._table)
        self._shared.timed = (*self._shared.timed, fresh)[-REMEMBERED:]

    def rebind(self, buffer: int, address: int) -> None:
        view, values = self._view, self._values
        for slot, offset in self._users.get(buffer, ()):
            view[slot] = address + values[offset]

    def repeat(self, times: int) -> None:
        self._repeat(self._address, times)

    # -- for programs, once it is bound -----------------------------------------------------------

    @property
    def executor(self) -> Executor | None:
        """None where there are no launches."""
        return self._shared.executor

    @property
    def faults(self) -> Faults | None:
        """None where no kernel refuses anything."""
        return self._faults

    @property
    def formulas(self) -> Sequence[Dim]:
        """What arguments are worked out from."""
        return self._shared.formulas.dims

    @property
    def threads(self) -> int:
        return self._threads

    def binding(self, addresses: int, values: int) -> list[int]:
        """A txe_binding: the arguments by addresses of buffers and values of the formulas, which
        lie there.
        """
        return [self._binding[0], *self._shared.rows, addresses, values]

    @property
    def table(self) -> int:
        """Address of the txe_table."""
        return int(self._address)

    def slots(self) -> dict[int, list[tuple[int, int]]]:
        """For each buffer the addresses of the arguments that point into it, and how many bytes
        behind its start they do.
        """
        first = address_of(self._slots)
        return {
            buffer: [(first + 8 * slot, self._values[offset]) for slot, offset in users]
            for buffer, users in self._users.items()
        }


def _nothing(*_: Any) -> None: ...
