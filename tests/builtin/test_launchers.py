"""Steps of machine code: tables, the executor and its pool, libraries; and engines of such steps."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tactix.base.arithmetic import COMPARISONS, OPERATIONS, ArithmeticWriter, python
from tactix.base.dims import Dim, ceildiv, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts import region
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    Source,
    constant,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.launcher import LinkContext, Operand, Runnable, Step
from tactix.contracts.layer import Layer, NoAttrs
from tactix.plan import container
from tactix.plan.schema import Buffer, Plan, TensorIO
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime
from tactix_cpu import allocators, devices, launchers
from tactix_cpu import launcher as elf
from tactix_cpu.compiler import executor_text
from tactix_cpu.device import CpuDevice
from tactix_cpu.launcher import (
    TABLE_WORDS,
    ElfLauncher,
    Executor,
    SharedObject,
    Timed,
    executor,
    library,
)
from tactix_ops import launchers as reference_launchers
from tactix_runtime import flavours

N = sym("n")
F32 = DType.FP32


def test_what_the_plugin_offers() -> None:
    assert [x.key for x in launchers()] == ["tactix.cpu.elf@1"]


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _context(threads: int = 1) -> LinkContext:
    return LinkContext(CpuDevice(), threads, {}.__getitem__)


KERNELS = """
#include <stdint.h>
/* out[i] = in[(i + shift) % n] + plus: reads what other threads wrote in the launch before */
void shift_add(const int64_t *a, int tid, int nt) {
    const float *in = (const float *)a[0];
    float *out = (float *)a[1];
    int64_t n = a[2], shift = a[3], plus = a[4];
    for (int64_t i = tid; i < n; i += nt) out[i] = in[(i + shift) % n] + (float)plus;
}
/* scratch gets in * weight; out = scratch[i] + scratch[n - 1 - i] in a second launch */
void scale(const int64_t *a, int tid, int nt) {
    for (int64_t i = tid; i < a[3]; i += nt) ((float *)a[2])[i] = ((const float *)a[0])[i] * ((const float *)a[1])[i];
}
void fold(const int64_t *a, int tid, int nt) {
    const float *s = (const float *)a[0];
    for (int64_t i = tid; i < a[2]; i += nt) ((float *)a[1])[i] = s[i] + s[a[2] - 1 - i];
}
void who(const int64_t *a, int tid, int nt) { ((int64_t *)a[0])[tid] = nt; }
/* Who made share tid, and how often it was made: a[0] holds 16 of the one, then 16 of the other. */
#include <pthread.h>
void made(const int64_t *a, int tid, int nt) {
    (void)nt;
    ((int64_t *)a[0])[tid] = (int64_t)pthread_self();
    ((int64_t *)a[0])[16 + tid]++;
}
/* Takes a[1] ns on one thread, a[2] on several. */
#include <time.h>
void take(const int64_t *a, int tid, int nt) {
    struct timespec t, u;
    who(a, tid, nt);
    clock_gettime(CLOCK_MONOTONIC, &t);
    do
        clock_gettime(CLOCK_MONOTONIC, &u);
    while ((u.tv_sec - t.tv_sec) * 1000000000 + u.tv_nsec - t.tv_nsec < a[nt > 1 ? 2 : 1]);
}
"""


@functools.cache
def _compiled(text: str = KERNELS, *options: str) -> bytes:
    """A shared object of kernels and executor."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "k.c"), Path(folder, "k.so")
        source.write_text(text + executor_text())
        flags = [
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-shared",
            "-o",
            str(out),
            str(source),
            *options,
            "-lpthread",
        ]
        subprocess.run([*command, *flags], check=True, capture_output=True)
        return out.read_bytes()


@pytest.mark.parametrize("builtin", [True, False])
def test_a_run_is_a_builtin_function_where_python_can_make_one_and_goes_through_ctypes_elsewhere(
    builtin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if builtin and sys.implementation.name != "cpython":
        pytest.skip("no CPython")
    own = Executor(library(_compiled()))
    monkeypatch.setattr(elf, "_executors", {elf.ABI: own})
    if not builtin:
        monkeypatch.setattr(own, "_methods", {})
    run = ElfLauncher().link(_chain(2), _context())
    assert (type(run.func) is type(len)) == builtin  # type: ignore[attr-defined]
    memory = [np.arange(5, dtype=np.float32), *np.zeros((2, 5), np.float32)]
    run.bind({"n": 5}, [_address(m) for m in memory])
    before = sys.getrefcount(True)
    for _ in range(1000):
        run()
    assert abs(sys.getrefcount(True) - before) < 500  # neither lost nor kept
    np.testing.assert_array_equal(memory[2], _expected(memory[0], 2, 1))


@pytest.mark.parametrize("left_out", [{}, {"evaluate": None, "bind": None}, {"_methods": {}}])
def test_arguments_at_each_shape_are_the_same_by_every_executor(
    left_out: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of earlier versions have no arithmetic, and not every Python has builtins of theirs."""
    own = Executor(library(_compiled()))
    monkeypatch.setattr(elf, "_executors", {elf.ABI: own})
    for name, value in left_out.items():
        monkeypatch.setattr(own, name, value)
    run = ElfLauncher().link(_chain(2, N * 3), _context())
    for n in (5, 7, 4, 9, 1, 6):
        memory = [np.arange(n, dtype=np.float32), *np.zeros((2, n), np.float32)]
        run.bind({"n": n}, [_address(m) for m in memory])
        run()
        np.testing.assert_array_equal(memory[2], _expected(memory[0], 2, n * 3))


PLACES = st.integers(0, 5)
VALUES = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-4, 4)


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), PLACES, PLACES), max_size=8), VALUES, VALUES)
@settings(max_examples=200, deadline=None)
def test_native_arithmetic_is_that_of_python_within_64_bits(
    rows: list[tuple[str, int, int]], a: int, b: int
) -> None:
    writer = ArithmeticWriter(["a", "b"])
    places = [0, 1, *map(writer.constant, (0, 1, -7, 1 << 40))]
    for kind, left, right in rows:
        made = writer.operation(kind, places[left], places[right])
        if kind not in COMPARISONS:
            places = [made, *places]
    arithmetic = writer.arithmetic(places)
    wanted = python(arithmetic)([a, b])
    wide = wanted is not None and any(not -(1 << 63) <= x < 1 << 63 for x in wanted)
    found = executor(library(_compiled())).evaluator(arithmetic)([a, b])
    assert (None if found is None else [*found]) == (None if wanted is None or wide else [*wanted])


def test_native_arithmetic_refuses_what_has_more_than_64_bits() -> None:
    pool = executor(library(_compiled()))
    writer = ArithmeticWriter(["a"])
    doubled = writer.arithmetic([writer.operation("+", 0, 0)])
    assert pool.evaluator(doubled)([1 << 63]) is None
    wide = writer.arithmetic([writer.operation("max", 0, writer.constant(1 << 64))])
    assert list(pool.evaluator(wide)([3]) or ()) == [1 << 64]


def _native(
    symbol: str, launches: Sequence[Launch], content: bytes | None = None
) -> KernelArtifact:
    code = Binary(content or _compiled(), symbol)
    return KernelArtifact(ElfLauncher.key, tuple(launches), code)


def _vector(buffer: int) -> Operand:
    return Operand(buffer, TensorSpec(F32, (N,)), LINEAR)


def _chain(length: int, plus: Dim = 1) -> list[Step]:
    """Buffer 0 to 1, then back and forth between 1 and 2."""
    steps = []
    for i in range(length):
        source, target = (0, 1) if i == 0 else (2 - i % 2, 1 + i % 2)
        args = (tensor_in(0), tensor_out(0), scalar(N), scalar(ceildiv(N, 2)), scalar(plus))
        steps.append(
            Step(
                f"s{i}",
                _native("shift_add", [Launch(args)]),
                (_vector(source),),
                (_vector(target),),
            )
        )
    return steps


def _expected(x: Any, length: int, plus: int) -> Any:
    for _ in range(length):
        x = np.roll(x, -((len(x) + 1) // 2)) + np.float32(plus)
    return x


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [1, 2, 33])
def test_a_chain_of_launches(threads: int, length: int) -> None:
    run = ElfLauncher().link(_chain(length, N * 3 - 2), _context(threads))
    for n in (1, 2, 5, 1000, 2):
        memory = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for _ in range(3)]
        run.bind({"n": n}, [_address(m) for m in memory])
        run()
        np.testing.assert_allclose(
            memory[2 - length % 2], _expected(memory[0], length, n * 3 - 2), rtol=1e-4, atol=1e-4
        )


def test_rebinding_moves_one_buffer() -> None:
    run = ElfLauncher().link(_chain(4), _context(2))
    memory = [np.zeros(9, np.float32) for _ in range(5)]
    memory[0][:] = np.arange(9)
    memory[3][:] = np.arange(9) * 5
    run.bind({"n": 9}, [_address(m) for m in memory[:3]])
    run()
    np.testing.assert_array_equal(memory[2], _expected(memory[0], 4, 1))
    kept = memory[2].copy()
    run.rebind(0, _address(memory[3]))
    run.rebind(2, _address(memory[4]))
    run()
    np.testing.assert_array_equal(memory[4], _expected(memory[3], 4, 1))
    np.testing.assert_array_equal(memory[2], kept)


def test_a_run_that_begins_while_another_looks_for_what_was_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contexts of one engine share what was timed, and bind their shapes in threads of their own."""
    monkeypatch.delenv("TACTIX_ALWAYS_PARALLEL", raising=False)
    steps = _chain(2)
    memory = [np.arange(9, dtype=np.float32) for _ in range(3)]
    addresses = [_address(m) for m in memory]
    first, second, other = (ElfLauncher().link(steps, _context(2)) for _ in range(3))
    for n in (9, 3):
        first.bind({"n": n}, addresses)
    meanwhile = [other]

    def is_near(self: Timed, env: Mapping[str, int]) -> bool:
        while meanwhile:
            meanwhile.pop().bind({"n": 9}, addresses)
        return False

    monkeypatch.setattr(Timed, "is_near", is_near)
    second.bind({"n": 9}, addresses)
    second()
    np.testing.assert_array_equal(memory[2], _expected(memory[0], 2, 1))


def test_constants_workspace_with_offsets_and_several_launches_of_one_artifact() -> None:
    scratch = workspace(N * 4 + 64)
    launches = [
        Launch((tensor_in(0), constant("w"), scratch, scalar(N))),
        Launch((scratch, tensor_out(0), scalar(N)), symbol="fold"),
    ]
    step = Step("fold", _native("scale", launches), (_vector(0),), (_vector(1),), {"w": 2}, 3)
    rng = np.random.default_rng(1)
    for n in (1, 6, 501):
        x, w = rng.standard_normal((2, n)).astype(np.float32)
        out, room = np.zeros(n, np.float32), np.full(2 * n + 16, np.nan, np.float32)
        run = ElfLauncher().link([step], _context(2))
        run.bind({"n": n}, [0, 0, 0, _address(room)])
        for buffer, array in ((0, x), (1, out), (2, w)):
            run.rebind(buffer, _address(array))
        run.rebind(3, _address(room))
        run()
        np.testing.assert_array_equal(out, x * w + (x * w)[::-1])
        assert np.isnan(room[: n + 16]).all()


def test_repeat_runs_so_many_times() -> None:
    step = Step("add", _native("shift_add", [Launch((tensor_in(0), tensor_in(0), scalar(N), scalar(0), scalar(2)))]),
                (_vector(0),), ())  # fmt: skip
    run = ElfLauncher().link([step], _context(2))
    x = np.zeros(50, np.float32)
    run.bind({"n": 50}, [_address(x)])
    run.repeat(11)
    assert (x == 22).all()
    run.repeat(0)
    assert (x == 22).all()


def test_no_steps_and_no_launches() -> None:
    for steps in ([], [Step("nothing", _native("who", []), (), ())]):
        run = ElfLauncher().link(steps, _context(2))
        run.bind({}, [])
        run()
        run.repeat(3)


REST, PATIENCE = 16, 17
"""Runs until others are timed, and twice how many those were at first: words of txe_table."""
SETTLED = 3
"""The kind of runs that are not timed, of txe_table."""


@functools.cache
def _pool_of(lib: SharedObject) -> Executor:
    """The one in that library, also where another runs those of engines."""
    return Executor(lib)


class NativeTable:
    """Launches of a kernel that tells who runs it, one for each row of ``told``, without a
    launcher.

    ``fields`` is the txe_table, of which ``END`` and so on are indices. ``take``: nanoseconds that
    each launch takes alone and shared, which may be changed.
    """

    END, BARRIERS, KIND, TRIALS, ALONE = 7, 8, 9, 10, 13

    def __init__(
        self,
        told: Any,
        threads: int,
        tries: int = 0,
        take: Any = None,
        lib: Any = None,
        kernel: str = "who",
    ) -> None:
        lib = lib or library(_compiled())
        self.pool = _pool_of(lib)
        count = len(told)
        rows = np.zeros((count, 3), np.int64)
        rows[:, 0] = [_address(row) for row in told]
        rows[:, 1:] = 0 if take is None else take
        self.take = rows[:, 1:]
        args = np.array([_address(row) for row in rows], np.int64)
        kernels = np.full(count, lib.address(kernel if take is None else "take"), np.int64)
        self.alone, self.shared, self.single = times = np.zeros((3, count), np.int64)
        arrays = [_address(a) for a in (kernels, args, *times)]
        self.fields = np.array([count, threads, *arrays, *[0] * 11], np.int64)
        assert len(self.fields) == TABLE_WORDS
        self.told = told
        self._held = rows, args, kernels, times
        self.pool.start(_address(self.fields), tries)

    def run(self) -> int:
        return int(self.pool.run(_address(self.fields)))

    def be_patient(self) -> None:
        """No run is taken for slow from now on, whoever else has the machine."""
        self.fields[[self.ALONE, self.ALONE + 1]] = 1 << 39


@pytest.mark.parametrize("option", ["-O2", "-DTXE_NO_FUTEX"])
def test_sleeping_workers_wake_up(option: str) -> None:
    """With the system's futex, and with a condition variable."""
    told = np.zeros((1, 8), np.int64)
    table = NativeTable(told, 3, lib=library(_compiled(KERNELS, option)))
    for i in range(60):
        told[:] = 0
        assert table.run() == 3
        assert told[0].tolist() == [3, 3, 3, 0, 0, 0, 0, 0]
        time.sleep(0.0005 * (i % 4))


def test_a_share_whose_thread_does_not_come_is_made_by_another() -> None:
    """Workers sleep between these runs, and waking them takes longer than all there is to do."""
    told = np.zeros((4, 32), np.int64)
    table = NativeTable(told, 4, kernel="made")
    for _ in range(1000):
        assert table.run() == 4
        if any(len(set(row[:4].tolist())) < 4 for row in told):
            return
        time.sleep(0.001)
    raise AssertionError("nobody made the share of a thread that was late")


@pytest.mark.parametrize("launches", [1, 40])
def test_every_share_is_made_once_whoever_makes_it(launches: int) -> None:
    """Jobs of many sizes in turns, on more threads than there are cores: workers that are late for
    one meet the next.
    """
    tables = [
        NativeTable(np.zeros((launches, 32), np.int64), threads, kernel="made")
        for threads in (16, 2, 5, 16, 3)
    ]
    runs = 150
    for i in range(runs):
        for table in tables:
            table.run()
        if i % 50 == 0:
            time.sleep(0.001)
    for table in tables:
        told, threads = table.told, int(table.fields[1])
        assert (told[:, 16 : 16 + threads] == runs).all()
        assert (told[:, 16 + threads :] == 0).all()


@pytest.mark.parametrize("n", [1, 9, 5000])
def test_runs_on_any_number_of_threads_equal_a_run_alone(n: int) -> None:
    """Each launch reads what all shares of the one before wrote; several contexts run at once."""
    steps = _chain(12)

    def differing(threads: int) -> int:
        memory = [np.zeros(n, np.float32) for _ in range(3)]
        run = ElfLauncher().link(steps, _context(threads))
        run.bind({"n": n}, [_address(m) for m in memory])
        wrong = 0
        for i in range(60):
            memory[0][:] = np.arange(n) + i
            run()
            wrong += not np.array_equal(memory[2], _expected(memory[0], 12, 1))
        return wrong

    for threads in (1, 2, 3, 7, 16):
        assert differing(threads) == 0
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(differing, (16, 2, 5, 16))) == [0] * 4


def _who(threads: int, runs: int = 1) -> set[int]:
    """Thread counts that the threads of the last run were told."""
    told = np.zeros(64, np.int64)
    step = Step("who", _native("who", [Launch((tensor_in(0),))]), (_vector(0),), ())
    run = ElfLauncher().link([step], _context(threads))
    run.bind({"n": 1}, [_address(told)])
    for _ in range(runs):
        told[:] = 0
        run()
    count = int((told > 0).sum())
    return {count, *told[:count].tolist()}


@pytest.fixture(autouse=True)
def _always_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests run is small."""
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "1")


def test_small_work_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "0")
    assert _who(4, runs=20) == {1}


def test_rows_of_single_launches_are_the_callers_work() -> None:
    """Between launches that are shared out; nobody starts before what stands before is done."""
    told = np.zeros((6, 8), np.int64)
    table = NativeTable(told, 3)
    table.single[:] = 1, 0, 1, 1, 0, 1
    table.fields[[table.END, table.BARRIERS]] = 5, 4
    for _ in range(50):
        told[:] = 0
        assert table.run() == 3
        assert told.astype(bool).sum(1).tolist() == [1, 3, 1, 1, 3, 1]
        assert told[:, 0].tolist() == [1, 3, 1, 1, 3, 1]


def test_first_runs_time_every_launch_and_small_work_stays_alone() -> None:
    told = np.zeros((2, 8), np.int64)
    table = NativeTable(told, 3, tries=3)
    for _ in range(10):
        assert table.run() == 1
    assert (table.alone < 1 << 39).all()
    assert table.fields[table.ALONE] >= table.alone.sum()
    assert table.fields[table.END] == 0


def test_what_takes_less_than_waking_workers_is_shared_out_in_rows_of_calls() -> None:
    """Whether workers sleep, and how far apart calls are, hangs on who else has the machine."""
    told = np.zeros((2, 8), np.int64)
    table = NativeTable(told, 3, tries=3, take=[[5_000, 500]] * 2)
    while table.fields[table.KIND] != SETTLED:
        table.run()
    table.fields[[REST, table.END, table.ALONE]] = 1 << 40, 2, 10_000
    table.single[:] = 0
    assert any(table.run() == 3 for _ in range(1000))
    for _ in range(1000):
        time.sleep(0.002)
        if table.run() == 1:
            return
    raise AssertionError("workers were woken for what takes less")


def test_what_is_shared_out_is_the_cheapest_choice() -> None:
    """Against all choices, with 200 ns from a single launch to a shared one; times are given, not
    measured.
    """
    rng = np.random.default_rng(3)
    for launches in (1, 2, 5, 8):
        for _ in range(5):
            told = np.zeros((launches, 8), np.int64)
            table = NativeTable(told, 3, tries=1, take=60_000)
            table.run()
            assert table.fields[table.KIND] == 1
            alone, shared = rng.integers(0, 1000, (2, launches))
            table.alone[:], table.shared[:] = alone, shared
            assert table.run() == 3

            def cost(single: Sequence[int], alone: Any = alone, shared: Any = shared) -> int:
                changes = sum(not b and a for a, b in zip((1, *single), single, strict=False))
                return int(np.where(single, alone, shared).sum()) + 200 * (
                    changes - (not single[0])
                )

            least = min(map(cost, itertools.product((0, 1), repeat=launches)))
            assert cost(table.single.tolist()) == least
            wanted = [1 if s else 3 for s in table.single]
            told[:] = 0
            if (
                table.fields[table.KIND] == 3
            ):  # it was clearly faster than alone: nothing more is tried
                assert table.run() == (3 if table.fields[table.END] else 1)
                assert told.astype(bool).sum(1).tolist() == wanted


@pytest.mark.parametrize(("alone", "shared"), [(100_000, 20_000_000), (100_000_000, 100_000)])
def test_sharing_that_does_not_gain_is_given_up(alone: int, shared: int) -> None:
    told = np.zeros((3, 8), np.int64)
    take = np.array([[1, 1], [alone, shared], [1, 1]])
    table = NativeTable(told, 2, tries=4, take=take)
    for _ in range(16):
        table.run()
    assert table.fields[table.KIND] == 3
    told[:] = 0
    assert table.run() == (1 if alone < shared else 2)
    assert told[1].astype(bool).sum() == (1 if alone < shared else 2)


def test_a_choice_that_looked_cheap_is_compared_with_a_run_alone() -> None:
    told = np.zeros((2, 8), np.int64)
    table = NativeTable(told, 3, tries=4, take=[100_000, 20_000_000])
    table.shared[:] = 0
    kinds = []
    while (kind := table.fields[table.KIND]) != 3:
        kinds.append(int(kind))
        table.run()
    # Each kind ends after its tries, or earlier where other work made them last: not before 2, 3, 4.
    assert kinds == sorted(kinds)
    assert 2 <= kinds.count(0) <= 4
    assert 3 <= kinds.count(1) <= 4
    assert kinds.count(2) >= 4
    assert table.single.tolist() == [0, 0]
    assert table.run() == 1


@pytest.mark.parametrize("shared", [100_000, 20_000_000])
def test_a_long_first_run_goes_on_shared(shared: int) -> None:
    """Nobody waits for a whole run alone; one is made later, and soon where sharing seems to lose."""
    told = np.zeros((4, 8), np.int64)
    table = NativeTable(told, 3, tries=4, take=[4_000_000, shared])
    assert table.run() == 3
    made = told.astype(bool).sum(1).tolist()  # two alone, or fewer where other work delayed them
    assert made in ([1, 1, 3, 3], [1, 3, 3, 3])
    assert table.fields[table.KIND] == 1
    while table.fields[table.KIND] != 3:
        assert table.run() == 3
    rest = int(table.fields[REST])
    assert rest == (256 if shared < 1_000_000 else 16)
    table.fields[REST] = 0
    table.run()
    assert table.run() == 1, "all is timed anew, alone first"


def test_choices_are_looked_at_again() -> None:
    told = np.zeros((1, 8), np.int64)
    table = NativeTable(told, 3, tries=2, take=[60_000, 20_000_000])
    assert [table.run() for _ in range(4)] == [1, 1, 3, 3]
    assert table.fields[table.KIND] == 3
    rest = int(table.fields[REST])  # less where other work delayed some of the timed runs
    assert rest <= 256
    table.be_patient()
    assert [table.run() for _ in range(rest)] == [1] * rest
    table.run()
    assert table.run() == 3, "shared out is timed again"


def test_choices_are_made_anew_soon_where_runs_have_become_slow() -> None:
    """As where a processor slows one thread down, and not several; else that takes 256 runs."""
    told = np.zeros((1, 8), np.int64)
    table = NativeTable(told, 2, tries=2, take=[200_000, 20_000_000])
    while table.fields[table.KIND] != SETTLED:
        table.run()
    assert table.fields[table.END] == 0
    table.fields[[REST, PATIENCE]] = 256, 512
    table.take[:] = 20_000_000, 200_000
    made = 0
    while table.fields[table.KIND] == SETTLED:
        assert table.run() == 1
        made += 1
    assert 64 <= made < 256
    while table.fields[table.KIND] != SETTLED:
        table.run()
    assert table.fields[table.END] == 1
    assert table.run() == 2


@pytest.mark.parametrize("is_fresh", [False, True])
def test_launches_that_were_faster_when_they_were_timed_alone_are_timed_again(
    is_fresh: bool,
) -> None:
    """But for those that were timed just before: these differ by noise."""
    told = np.zeros((2, 8), np.int64)
    table = NativeTable(told, 2, tries=4, take=200_000)
    table.alone[:], table.shared[:], compared = 1000, 200_000, 2
    untimed = 1 << 40
    table.fields[[table.KIND, table.TRIALS, REST, table.END, table.BARRIERS]] = (
        compared,
        0,
        is_fresh,
        2,
        2,
    )
    table.fields[[table.ALONE, table.ALONE + 1]] = untimed
    while table.fields[table.KIND] == compared:
        table.run()
    assert table.fields[table.KIND] == (SETTLED if is_fresh else 0)


def test_choices_are_never_kept_for_long() -> None:
    """Whoever had the machine when runs were timed may be gone."""
    table = NativeTable(np.zeros((1, 8), np.int64), 2, tries=2, take=[20_000_000, 60_000])
    for _ in range(4):
        table.run()
    assert table.fields[table.KIND] == 3
    table.fields[[REST, PATIENCE]] = 0, 1 << 40
    table.run()
    assert table.fields[table.KIND] == 1
    while table.fields[table.KIND] != 3:
        table.run()
    assert table.fields[REST] <= 2048


def test_choices_stay_at_a_near_shape_and_are_made_anew_later() -> None:
    told = np.zeros((1, 8), np.int64)
    table = NativeTable(told, 3, tries=2, take=[20_000_000, 60_000])
    for _ in range(4):
        table.run()
    assert table.fields[table.KIND] == 3
    assert table.fields[table.END] == 1
    table.pool.move(_address(table.fields))
    table.be_patient()
    rest = int(table.fields[REST])
    assert [table.run() for _ in range(rest)] == [3] * rest, "shared out at once"
    table.run()
    assert table.run() == 1, "all is timed again, alone first"


@pytest.mark.parametrize("noisy", [True, False])
def test_where_times_differ_much_others_are_timed_soon(noisy: bool) -> None:
    told = np.zeros((1, 8), np.int64)
    table = NativeTable(told, 3, tries=4, take=[20_000_000, 1_000_000])
    while table.fields[table.KIND] != 1:
        table.run()
    spent, least = 12, 14
    table.fields[[table.TRIALS, spent, least]] = (
        3,
        10**9 if noisy else -(10**12),
        1000,
    )  # not as measured here
    table.run()
    assert table.fields[table.KIND] == 3
    assert (table.fields[REST] < 100) == noisy


def _sums(sizes: Sequence[int], threads: int = 2) -> list[int]:
    """Kinds of the timed runs after one run at each size, of one runnable for each, as contexts
    make them.
    """
    steps = [_step()]
    kinds, kept = [], []
    for n in sizes:
        run = ElfLauncher().link(steps, _context(threads))
        told = np.zeros(max(64, n), np.int64)
        run.bind({"n": n}, [_address(told)])
        run()
        kept.append((run, told))
        kinds.append(int(run._table[NativeTable.TRIALS]))
    return kinds


def _step() -> Step:
    return Step("who", _native("who", [Launch((tensor_in(0),))]), (_vector(0),), ())


def test_a_growing_sequence_goes_on_with_its_timed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "0")
    assert _sums([100, 101, 102, 103]) == [1, 2, 3, 4]
    assert _sums([100, 150, 200, 201, 202]) == [1, 2, 3, 1, 2], "too far from where they began"
    assert _sums([100, 10, 101, 11]) == [1, 1, 2, 2], "two sequences in turns"


def test_every_thread_takes_part() -> None:
    for threads in (1, 2, 5, 3, 1, 4):
        assert _who(threads) == {threads}
    pool = executor(library(_compiled()))
    assert pool.set_threads(6) == 6
    assert pool.set_threads(1000) == 255


def test_many_libraries_at_once_are_told_apart() -> None:
    """Each is loaded from a file descriptor with a number that another one had before."""
    for value in range(6):
        body = f"(void)nt; if (!tid) *(int64_t *)a[0] = {value};"
        text = f"#include <stdint.h>\nvoid give(const int64_t *a, int tid, int nt) {{ {body} }}\n"
        got = np.full(1, -1, np.int64)
        step = Step(
            "give", _native("give", [Launch((tensor_in(0),))], _compiled(text)), (_vector(0),), ()
        )
        run = ElfLauncher().link([step], _context(2))
        run.bind({"n": 1}, [_address(got)])
        run()
        assert got[0] == value
    lib = library(_compiled())
    assert library(bytes(bytearray(_compiled()))) is lib


def _giving(value: int, text: str) -> tuple[Runnable, Any]:
    """What writes that value, with code of its own, and where it writes it."""
    got = np.full(1, -1, np.int64)
    step = Step(
        "give",
        _native("give", [Launch((tensor_in(0),))], _other(_compiled(text), value)),
        (_vector(0),),
        (),
    )
    run = ElfLauncher().link([step], _context(2))
    run.bind({"n": 1}, [_address(got)])
    return run, got


def _other(content: bytes, value: int) -> bytes:
    """The same shared object with another number in it."""
    old = struct.pack("<q", PATTERN)
    assert content.count(old) == 1
    return content.replace(old, struct.pack("<q", value))


PATTERN = 0x7AC71C5EED5EED01
GIVING = f"""#include <stdint.h>
const volatile int64_t tx_value = {PATTERN};
void give(const int64_t *a, int tid, int nt) {{ (void)nt; if (!tid) *(int64_t *)a[0] = tx_value; }}
"""


def _mapped() -> int:
    """Parts of libraries that are in the memory of this process."""
    return sum("tactix-plan" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc to look into")
def test_libraries_are_unloaded_with_the_last_that_runs_them() -> None:
    """Not those of engines that are kept, nor the one whose threads run them all."""
    kept = [_giving(value, GIVING) for value in (1, 2, 3)]
    gc.collect()
    before = _mapped()
    for value in range(10, 310):
        run, got = _giving(value, GIVING)
        run()
        assert got[0] == value
        del run
    gc.collect()
    assert _mapped() <= before
    for value, (run, got) in enumerate(kept, 1):
        run()
        assert got[0] == value
    kept.clear()
    del run
    gc.collect()
    assert _mapped() < before
    again, got = _giving(1, GIVING)
    again()
    assert got[0] == 1


@pytest.mark.parametrize("content", [b"", b"not an object", b"\x7fELF" + bytes(100)])
def test_what_cannot_be_loaded(content: bytes) -> None:
    step = Step("bad", KernelArtifact(ElfLauncher.key, (Launch(()),), Binary(content, "f")), (), ())
    with pytest.raises(ExecutionError, match="loaded"):
        ElfLauncher().link([step], _context())


def test_missing_kernels_and_missing_code_name_the_step() -> None:
    with pytest.raises(ExecutionError, match=r"lost: .*no kernel 'nobody'"):
        ElfLauncher().link([Step("lost", _native("nobody", [Launch(())]), (), ())], _context())
    for code in (None, Source("c", "text")):
        step = Step("lost", KernelArtifact(ElfLauncher.key, (Launch(()),), code), (), ())
        with pytest.raises(ExecutionError, match="lost: it has no machine code"):
            ElfLauncher().link([step], _context())


def _in_four_threads(work: Callable[[int], None]) -> None:
    """``work(seed)``, all at once; what any of them raises is raised."""
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result()


def test_runs_in_many_threads_give_right_answers() -> None:
    """One of them gets the pool, the others run alone."""

    def work(seed: int) -> None:
        run: Runnable = ElfLauncher().link(_chain(12, 2), _context(1 + seed % 3))
        for i in range(200):
            n = 1 + (seed * 31 + i * 7) % 300
            memory = [
                np.random.default_rng(i).standard_normal(n).astype(np.float32) for _ in range(3)
            ]
            run.bind({"n": n}, [_address(m) for m in memory])
            run()
            np.testing.assert_allclose(memory[2], _expected(memory[0], 12, 2), rtol=1e-4)

    _in_four_threads(work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_pool_of_its_own() -> None:
    assert _who(3) == {3}
    child = os.fork()
    if not child:
        os._exit(0 if _who(3) == {3} and _who(2) == {2} else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert _who(3) == {3}


def test_the_interpreter_exits_cleanly_with_workers_awake_and_asleep(tmp_path: Path) -> None:
    """Whatever the pool and the streams are doing."""
    (tmp_path / "k.so").write_bytes(_compiled())
    program = textwrap.dedent("""
        import sys, time
        import numpy as np
        from tactix_cpu.launcher import executor, library
        from tactix_cpu.device import CpuDevice
        lib = library(open(sys.argv[1], "rb").read())
        told = np.zeros(8, np.int64)
        args = np.array([told.ctypes.data], np.int64)
        pointers = np.array([args.ctypes.data], np.int64)
        kernels = np.array([lib.address("who")], np.int64)
        times = np.zeros(3, np.int64)
        addresses = [a.ctypes.data for a in (kernels, pointers, times, times[1:], times[2:])]
        table = np.array([1, 4, *addresses, *[0] * 11], np.int64)
        pool = executor(lib)
        pool.start(table.ctypes.data, 0)
        assert pool.run(table.ctypes.data) == 4
        stream = CpuDevice().create_stream()
        stream.submit(lambda: pool.repeat(table.ctypes.data, 1000))
        time.sleep(float(sys.argv[2]))
        print("done")
    """)
    for pause in ("0", "0.01"):
        command = [sys.executable, "-c", program, str(tmp_path / "k.so"), pause]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# -- engines -------------------------------------------------------------------------------------


class _Double(Layer):
    key = "test.Double@1"

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0] * np.float32(2),)


def _plan(length: int) -> Plan:
    """The chain over x, doubled half-way by a numpy step; from an arena of two alternating buffers
    to y.
    """
    spec = TensorSpec(F32, (N,))
    params = region.encode(_Double(), NoAttrs())
    steps = _chain(length, 2)
    middle = length // 2
    double = Step(
        "double",
        KernelArtifact("tactix.numpy@1", params=params),
        steps[middle].inputs,
        steps[middle].outputs,
    )
    last = replace(steps[-1], outputs=(_vector(3),))
    buffers = [Buffer("input", "x", F32, (N,), LINEAR, N * 4)]
    buffers += [Buffer("arena", f"t{i}", F32, (N,), LINEAR, N * 4, 0, length - 1) for i in range(2)]
    buffers += [Buffer("output", "y", F32, (N,), LINEAR, N * 4)]
    return Plan(
        "chain",
        (TensorIO("x", 0, F32, spec.shape),),
        (TensorIO("y", 3, F32, spec.shape),),
        (),
        tuple(buffers),
        (*steps[:middle], double, *steps[middle + 1 : -1], last),
    )


def _engine(path: Path, threads: int) -> Engine:
    objects: dict[str, list[Any]] = {
        "launchers": [*launchers(), *reference_launchers()],
        "devices": devices(), "allocators": allocators(), "flavours": flavours(),
        "layers": [_Double()],
    }  # fmt: skip
    objects |= {"trust_stores": []}
    registries = {name: {o.key: o for o in found} for name, found in objects.items()}
    session: Any = SimpleNamespace(**registries, trusted_by=lambda seal: False)
    return Runtime(session=session, max_threads=threads, on_untrusted="allow").deserialize(path)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_engine_of_native_and_numpy_steps_in_four_threads(threads: int, tmp_path: Path) -> None:
    path, length = tmp_path / "m.plan", 13
    container.save(_plan(length), path)
    engine = _engine(path, threads)
    shared = engine.create_execution_context()

    def work(seed: int) -> None:
        for i in range(200):
            x = (
                np.random.default_rng(seed * 1000 + i)
                .standard_normal(1 + (seed + 3 * i) % 97)
                .astype(np.float32)
            )
            y = shared.run({"x": x})["y"] if seed == 0 else engine(x)
            half = _expected(x, length // 2, 2) * np.float32(2)
            np.testing.assert_allclose(
                y, _expected(half, length - length // 2 - 1, 2), rtol=1e-4, atol=1e-4
            )

    _in_four_threads(work)
