"""How candidates are checked and timed on a CUDA device: few rows that come again, and constants in
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import harness as h
import numpy as np
import pytest
from fake_driver import FakeApi, FakeKernel, fake_device, view

from tactix.base.errors import AllocationError
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    Packed,
    constant,
    scalar,
    tensor_in,
    tensor_out,
)
from tactix.contracts.graph import Node
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import Variant
from tactix.select.bench import Expected
from tactix_cuda import bench as tuning
from tactix_cuda import row_twins
from tactix_cuda.bench import ROWS, CudaBench, Turns, rows_of
from tactix_cuda.launcher import CubinLauncher
from tactix_cuda.memory import RecyclingAllocator

F16, F32 = np.float16, np.float32
CODE = Binary(b"code", "k_x")


def zeros(*shape: int, dtype: Any = F32) -> Any:
    return np.zeros(shape, dtype)


def bench_of(body: Callable[..., None], arity: int) -> tuple[CudaBench, FakeApi]:
    device, api = fake_device({"k_x": FakeKernel(arity, body)})
    assert issubclass(device.bench, CudaBench)
    context = LinkContext(device, 1, lambda key: h.layer(key))
    return CudaBench(context, {CubinLauncher.key: CubinLauncher()}, RecyclingAllocator(device)), api


INDEPENDENT = {
    "sum": lambda: h.node("Add", [zeros(40, 3), zeros(40, 3)]),
    "broadcast": lambda: h.node("Mul", [zeros(40, 3), zeros(1, 3)]),
    "convolution": lambda: h.node(
        "Convolution", [zeros(16, 4, 5, 5, dtype=F16), np.ones((40, 4, 3, 3), F16)], [1]
    ),
    "symbolic": lambda: h.node("Softmax", [h.spec(zeros(1, 7), ("n", 7))], axis=1),
    "square": lambda: h.node("MatMul", [zeros(17, 17), np.ones((17, 17), F32)], [1]),
    "indices": lambda: h.node(
        "Gather", [np.ones((9, 2), F32), zeros(33, 2, dtype=np.int64)], [0], axis=0
    ),
    "resized": lambda: h.node("Resize", [zeros(16, 2, 3, 3)], sizes=(16, 2, 6, 5), mode="linear"),
    "split rows": lambda: h.node("Reshape", [zeros(16, 6)], shape=(16, 2, 3)),
    "fused": lambda: h.fused(
        [zeros(16, 6), zeros(16, 2, 3)],
        [("Reshape", (0,), {"shape": (16, 2, 3)}), ("Add", (2, 1), {})],
    ),
    "products": lambda: h.node("MatMul", [zeros(24, 3, 5), zeros(24, 5, 2)]),
}
TOGETHER = {
    "few": lambda: h.node("Add", [zeros(7, 3), zeros(7, 3)]),
    "scalar": lambda: h.node("Add", [zeros(), zeros()]),
    "softmax": lambda: h.node("Softmax", [zeros(40, 3)], axis=0),
    "running sum": lambda: h.node("CumSum", [zeros(40, 3)], axis=0),
    "normalization": lambda: h.node("Softmax", [zeros(32, 32)], axis=0),
    "inner extent": lambda: h.node("MatMul", [zeros(16, 16), zeros(16, 16)]),
    "tall": lambda: h.node("Transpose", [zeros(16, 16)], perm=(1, 0)),
    "reshaped": lambda: h.node("Reshape", [zeros(16, 4)], shape=(32, 2)),
    "added position": lambda: h.node("Add", [zeros(40, 3), np.ones((40, 3), F32)], [1]),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_are_treated_one_by_one_are_few(name: str) -> None:
    env = {"n": 50}
    node = INDEPENDENT[name]()
    found = rows_of(node, env)
    assert found is not None
    rows, arrays, want = found
    count = node.outputs[0].spec.at(env)[0]
    assert len(rows.index) == count
    assert set(rows.index) == set(range(ROWS))
    assert all(w.shape[0] == ROWS for w in want)
    whole = Expected(node, [rows.spread(i, a) for i, a in enumerate(arrays)], env)
    for got, few in zip(whole, want, strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), few[rows.index].astype(np.float64), rtol=1e-2, atol=1e-2
        )


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_depend_on_each_other_are_all_sampled(name: str) -> None:
    node = TOGETHER[name]()
    assert rows_of(node, {}) is None
    bench, _ = bench_of(lambda *args: None, 3)
    arrays, want = bench.trial(node, {})
    assert [w.shape for w in want] == [v.spec.shape for v in node.outputs]
    assert [a.shape for a in arrays] == [v.spec.shape for v in node.given]


COUNT, WIDTH = 5000, 33
ADD = KernelArtifact(
    "tactix.cuda.cubin@1", (Launch((tensor_in(0), tensor_in(1), tensor_out()), (1,), (1,)),), CODE
)


def add(spoil: Callable[[Any, Any], None]) -> Callable[..., None]:
    def body(grid: Any, x: int, y: int, z: int) -> None:
        a, b, c = (view(p, (COUNT, WIDTH), F16) for p in (x, y, z))
        made = a + b
        spoil(c, made)
        c[...] = made

    return body


def tolerable(c: Any, made: Any) -> None:
    made[7::9] = np.nextafter(made[7::9], F16(9))


def one_element(c: Any, made: Any) -> None:
    made[COUNT - 1, WIDTH - 1] += 1


def unwritten(c: Any, made: Any) -> None:
    made[2001] = c[2001]


def shifted(c: Any, made: Any) -> None:
    made[ROWS:] = np.roll(made[ROWS:], 1, 0)


def same_everywhere(c: Any, made: Any) -> None:
    made += F16(0.25)


def not_a_number(c: Any, made: Any) -> None:
    made[333, 3] = np.nan


@pytest.mark.parametrize("spoil", [lambda c, made: None, tolerable])
@pytest.mark.parametrize("few", [0, tuning.FEW, COUNT])
def test_right_rows_pass(spoil: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FEW", few)
    assert departure_of(spoil) <= 1


@pytest.mark.parametrize("row_bytes", [0, 1, 3, 4, 6, row_twins.PART * 4 + 4])
def test_rows_that_differ_from_their_twins(row_bytes: int) -> None:
    device, _ = fake_device()
    rng = np.random.default_rng(row_bytes)
    twins = np.uint32([0, 1, 0, 1, 1, 0, 0])
    rows = rng.integers(0, 256, (2, row_bytes), dtype=np.uint8)[twins]
    for row in (3, 6) if row_bytes else ():
        rows[row, rng.integers(row_bytes)] ^= 1
    differ = np.full(len(rows), 7, np.uint8)
    places = [a.ctypes.data for a in (rows, twins, differ)]
    found = row_twins.differing(device, *places, len(rows), row_bytes)
    assert list(found) == ([3, 6] if row_bytes else [])


@pytest.mark.parametrize("spoil", [one_element, unwritten, shifted, same_everywhere, not_a_number])
def test_a_wrong_row_anywhere_is_found(spoil: Any) -> None:
    assert departure_of(spoil) > 1


def departure_of(spoil: Callable[[Any, Any], None]) -> float:
    node = h.node("Add", [zeros(COUNT, WIDTH, dtype=F16), zeros(COUNT, WIDTH, dtype=F16)])
    bench, _ = bench_of(add(spoil), 3)
    arrays, want = bench.trial(node, {})
    assert all(len(a) == ROWS for a in arrays)
    runnable, got = bench.prepare(node, ADD, Variant(), arrays, {})
    runnable.repeat(1)
    return bench.check(node, Variant(), got, want)


def test_channels_last() -> None:
    shape = (20, 3, 4, 5)

    def body(grid: Any, x: int, z: int) -> None:
        view(z, (20, 4, 5, 3), F32)[...] = np.maximum(view(x, shape, F32), 0).transpose(0, 2, 3, 1)

    bench, _ = bench_of(body, 2)
    node, variant = h.node("Relu", [zeros(*shape)]), Variant((), (NHWC,))
    arrays, want = bench.trial(node, {})
    artifact = KernelArtifact(
        CubinLauncher.key, (Launch((tensor_in(0), tensor_out()), (1,), (1,)),), CODE
    )
    runnable, got = bench.prepare(node, artifact, variant, arrays, {})
    runnable()
    assert bench.check(node, variant, got, want) == 0


def with_constant(count: int) -> Node:
    return h.node("Add", [zeros(4, count), np.arange(count, dtype=F32)], [1])


RAW = KernelArtifact(
    "tactix.cuda.cubin@1",
    (Launch((tensor_in(0), tensor_in(1), tensor_out(), scalar(1)), (1,), (1,)),),
    CODE,
)
"""Reads the node's constant as it is."""
SCALED = KernelArtifact(
    "tactix.cuda.cubin@1", (Launch((tensor_in(0), constant("c"), tensor_out(), scalar(1)), (1,), (1,)),), CODE,
    constants=(("c", Packed(1)),),
)  # fmt: skip


MOVED = 2 * 16000
"""Bytes of the input and the output."""


@pytest.mark.parametrize(
    ("cold", "copies"),
    [(100, 1), (MOVED + 4000, 1), (MOVED + 4001, 2), (MOVED + 4000 * 50, 50), (4000 * 900, 1)],
)
@pytest.mark.parametrize("artifact", [SCALED, RAW])
def test_constants_in_turns_until_no_cache_holds_them(
    artifact: KernelArtifact, cold: int, copies: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tuning, "COLD", cold)

    def body(grid: Any, x: int, c: int, z: int, one: int) -> None:
        view(z, (4, 1000), F32)[...] = view(x, (4, 1000), F32) + view(c, (1000,), F32)

    bench, api = bench_of(body, 4)
    node = with_constant(1000)
    arrays, want = bench.trial(node, {})
    runnable, got = bench.prepare(node, artifact, Variant(), arrays, {})
    runnable.repeat(1)
    assert bench.check(node, Variant(), got, want) == 0
    assert isinstance(runnable, Turns)
    assert len(api.ran) == 1
    for times, count in ((1, 1), (20, min(20, copies)), (300, copies)):
        api.ran.clear()
        # between two events of the fake, a second apart, lie as many whole turns as come nearest to
        # the times
        assert bench.measure(runnable, times) == pytest.approx(
            times / (max(1, round(times / count)) * count)
        )
        assert len({r.args[1] for r in api.ran}) == count
        assert len({(r.args[0], r.args[2]) for r in api.ran}) == 1
        assert bench.check(node, Variant(), got, want) == 0
    allocated = len(api.memory)
    again, _ = bench.prepare(node, artifact, Variant(), arrays, {})
    bench.measure(again, 300)
    assert len(api.memory) == allocated  # the next candidate uses them as well


def test_what_one_node_needed_is_given_back_for_the_next() -> None:
    bench, _ = bench_of(lambda *args: None, 4)
    first, second = with_constant(1000), with_constant(10)
    arrays, _ = bench.trial(first, {})
    runnable, _ = bench.prepare(first, SCALED, Variant(), arrays, {})
    held = bench.keep()
    assert len(held) == len({m.address for m in held}) == 2
    del runnable, held
    arrays, _ = bench.trial(second, {})
    bench.prepare(second, SCALED, Variant(), arrays, {})
    assert isinstance(bench.allocator, RecyclingAllocator)
    assert bench.allocator.trim() >= (4 * 2 + 1) * 4000


@pytest.mark.parametrize("shape", [("n", 2), ("n",)])
def test_samples_that_no_memory_holds(shape: Sequence[Any]) -> None:
    bench, _ = bench_of(lambda: None, 0)
    node = h.node("Relu", [h.spec(zeros(*(1 for _ in shape)), shape)])
    with pytest.raises(AllocationError, match="no host memory for its samples"):
        bench.trial(node, {"n": 1 << 50})
