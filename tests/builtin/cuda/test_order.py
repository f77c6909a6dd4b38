"""The order of launches against all pairs of accesses, byte by byte, and graphs that run it as
unkindly as they may.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import asked
import fake_driver
import numpy as np
import pytest
from breadth_cases import recurrent
from cuda_steps import LAUNCHER, N, operand
from fake_driver import FakeApi, FakeKernel, fake_device

from tactix.base.errors import ExecutionError
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.launcher import LinkContext, Step
from tactix.contracts.tactic import CompileContext, Reject
from tactix.plan.memory import plan_memory
from tactix_codegen.cuda.target import target
from tactix_cuda.device import CudaDevice
from tactix_cuda.graph import CudaRun
from tactix_cuda.graph_dependencies import RESIDENT, Access, Follows, Regions, follows, in_lanes
from tactix_cuda.launcher import CubinLauncher


def random_accesses(
    rng: Any, launches: int, buffers: int
) -> tuple[list[Access], list[int], dict[int, int]]:
    """Launches over buffers that lie anywhere in little memory; some are empty, some launches touch
    nothing.
    """
    sizes = {b: int(rng.integers(0, 40)) * int(rng.random() < 0.9) for b in range(buffers)}
    addresses = [int(rng.integers(1, 300)) for _ in range(buffers)]
    some = [
        Access(
            frozenset(rng.integers(0, buffers, rng.integers(0, 4)).tolist()),
            frozenset(
                rng.integers(0, buffers, rng.integers(0, 3)).tolist()
                + [RESIDENT] * int(rng.random() < 0.1)
            ),
        )
        for _ in range(launches)
    ]
    return some, addresses, sizes


def conflicts(
    accesses: Sequence[Access], addresses: Sequence[int], sizes: dict[int, int]
) -> list[set[int]]:
    """By launch all earlier ones of which it must see, or must not disturb, a byte."""

    def touched(buffers: frozenset[int]) -> set[int]:
        ranges = [
            range(addresses[b], addresses[b] + sizes[b]) if b >= 0 else range(-1, 0)
            for b in buffers
        ]
        return {byte for r in ranges for byte in r}

    reads, writes = ([touched(getattr(a, name)) for a in accesses] for name in ("reads", "writes"))
    return [
        {i for i in range(j) if writes[i] & (reads[j] | writes[j]) or reads[i] & writes[j]}
        for j in range(len(accesses))
    ]


def closure(edges: Sequence[Any]) -> list[set[int]]:
    """All that a launch comes after."""
    out: list[set[int]] = []
    for before in edges:
        out.append(set(before).union(*(out[i] for i in before)))
    return out


def widest(edges: Follows) -> int:
    """The most launches of which none comes after another: Dilworth's theorem, by a matching."""
    after, match = closure(edges), dict[int, int]()

    def augment(j: int, seen: set[int]) -> bool:
        for i in after[j] - seen:
            seen.add(i)
            if i not in match or augment(match[i], seen):
                match[i] = j
                return True
        return False

    return len(edges) - sum(augment(j, set()) for j in range(len(edges)))


@pytest.mark.parametrize("seed", range(60))
def test_every_edge_that_is_needed_and_no_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    accesses, addresses, sizes = random_accesses(
        rng, int(rng.integers(1, 40)), int(rng.integers(1, 25))
    )
    needed = conflicts(accesses, addresses, sizes)
    found = follows(accesses, Regions(addresses, sizes).spans())
    assert closure(found) == closure(needed)
    for j, before in enumerate(found):
        assert set(before) <= needed[j]
        for i in before:  # what another edge says already is left out
            assert not any(i in closure(found)[k] for k in before)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_lanes_keep_the_order_and_their_number(seed: int, most: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    accesses, addresses, sizes = random_accesses(rng, 24, int(rng.integers(4, 40)))
    needed = follows(accesses, Regions(addresses, sizes).spans())
    wide = (rng.random(24) < 0.3).tolist()
    found = in_lanes(needed, most, wide)
    assert all(a <= b for a, b in zip(closure(needed), closure(found), strict=True))
    assert widest(found) <= most
    big = [i for i in range(24) if wide[i]]
    assert all(
        a in closure(found)[b] for a, b in pairwise(big)
    )  # those that fill the device take turns
    if most == 1:
        assert found == [[i - 1] if i else [] for i in range(24)]


def test_lanes_are_used_where_they_help() -> None:
    fork = [[], [0], [0], [0], [1, 2, 3]]
    assert in_lanes(fork, 3, [False] * 5) == fork
    assert in_lanes(fork, 2, [False] * 5) == [[], [0], [0], [1], [2, 3]]
    assert widest(in_lanes([[] for _ in range(50)], 4, [False] * 50)) == 4


def sharing(addresses: Sequence[int], sizes: dict[int, int]) -> set[tuple[int, int]]:
    """Pairs of buffers that share a byte."""
    held = {b: set(range(addresses[b], addresses[b] + n)) for b, n in sizes.items()}
    return {(a, b) for a in held for b in held if held[a] & held[b]}


@pytest.mark.parametrize("seed", range(20))
def test_a_buffer_that_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, addresses, sizes = random_accesses(rng, 1, 12)
    regions = Regions(addresses, sizes)
    for _ in range(30):
        b, address = int(rng.integers(0, 12)), int(rng.integers(1, 300))
        before = sharing(addresses, sizes)
        addresses[b] = address
        changed = regions.move(b, address)
        assert regions.spans() == Regions(addresses, sizes).spans()
        assert changed == (sharing(addresses, sizes) != before)
    assert not regions.move(99, 1)


# -- runs ----------------------------------------------------------------------------------------

COUNT = 17


def words(address: int) -> Any:
    return np.frombuffer((ctypes.c_int32 * COUNT).from_address(address), np.int32)


def mix(grid: Sequence[int], x: int, y: int, z: int, n: int) -> None:
    words(z)[:] = words(x) * 3 + words(y) * 5 + 1


def save(grid: Sequence[int], x: int, w: int, n: int) -> None:
    words(w)[:] = words(x) + 7


def load(grid: Sequence[int], w: int, z: int, n: int) -> None:
    words(z)[:] = words(w) * 9


def mix_step(a: int, b: int, out: int, grid: int = 1) -> Step:
    args = (tensor_in(0), tensor_in(1), tensor_out(), scalar(N))
    artifact = KernelArtifact(LAUNCHER, (Launch(args, (grid,), (32,)),), Binary(b"m", "k_mix"))
    return Step(f"mix{out}", artifact, (operand(a), operand(b)), (operand(out),))


def pass_step(a: int, out: int, scratch: int) -> Step:
    """Through a workspace."""
    launches = (
        Launch((tensor_in(0), workspace(), scalar(N)), (1,), (32,)),
        Launch((workspace(), tensor_out(), scalar(N)), (1,), (32,), symbol="load"),
    )
    artifact = KernelArtifact(LAUNCHER, launches, Binary(b"p", "k_save"), workspace=4 * N)
    return Step(f"pass{out}", artifact, (operand(a),), (operand(out),), {}, scratch)


def here() -> tuple[CudaDevice, FakeApi]:
    return fake_device(
        {
            "k_mix": FakeKernel(4, mix),
            "k_save": FakeKernel(3, save),
            "k_save_load": FakeKernel(3, load),
        }
    )


def linked(
    device: CudaDevice, steps: Sequence[Step], aux: int, warn: Callable[[str], None] = print
) -> CudaRun:
    launcher = CubinLauncher()
    context = LinkContext(device, 1, lambda key: None, max_aux_streams=aux, warn=warn)  # type: ignore
    made = device.link(steps, {launcher.key: launcher}, context)
    assert isinstance(made, CudaRun)
    return made


def random_network(rng: Any, size: int) -> tuple[list[Step], list[tuple[int, int]]]:
    """Steps over buffers 0 and 1 (inputs) and one new buffer each, or two; lifetimes of buffers
    from 2 on.
    """
    steps: list[Step] = []
    made, lives = [0, 1], list[list[int]]()
    for k in range(size):
        recent = [*made[-6:], 0, 1]
        a, b = (int(rng.choice(recent)) for _ in range(2))
        out = 2 + len(lives)
        lives.append([k, k])
        if rng.random() < 0.3:
            lives.append([k, k])
            steps.append(pass_step(a, out, out + 1))
            b = a
        else:
            steps.append(mix_step(a, b, out))
        made.append(out)
        for x in (a, b):
            if x >= 2:
                lives[x - 2][1] = k
    lives[made[-1] - 2][1] = size
    return steps, [(a, b) for a, b in lives]


def expected(steps: Sequence[Step], inputs: Sequence[Any]) -> Any:
    held = dict(enumerate(inputs))
    for s in steps:
        x = [held[o.buffer] for o in s.inputs]
        held[s.outputs[0].buffer] = x[0] * 3 + x[1] * 5 + 1 if len(x) == 2 else (x[0] + 7) * 9
    return held[steps[-1].outputs[0].buffer]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("aux", [-1, 0, 1, 7, 99])
def test_random_networks_in_an_arena(seed: int, aux: int) -> None:
    rng = np.random.default_rng(seed)
    device, _api = here()
    steps, lives = random_network(rng, int(rng.integers(2, 40)))
    offsets, total = plan_memory([4 * COUNT] * len(lives), lives)
    arena = np.zeros(total, np.uint8)
    inputs = [rng.integers(0, 99, COUNT).astype(np.int32) for _ in range(2)]
    run = linked(device, steps, aux)
    run.bind(
        {"n": COUNT}, [*(x.ctypes.data for x in inputs), *(arena.ctypes.data + o for o in offsets)]
    )
    want = expected(steps, inputs)
    for times in (1, 1, 45):
        arena[:] = 0x5A
        if times == 1:
            run()
        else:
            run.repeat(times)
        last = arena.ctypes.data + offsets[steps[-1].outputs[0].buffer - 2]
        assert np.array_equal(words(last), want)
    chain = [[i - 1] if i else [] for i in range(len(run.nodes))]
    assert (run.order == chain) == (aux == 0 or widest(run.order) == 1)
    if aux >= 0:
        assert widest(run.order) <= aux + 1


def test_outputs_that_the_caller_puts_into_each_other() -> None:
    device, api = here()
    run = linked(device, [mix_step(0, 1, 2), mix_step(1, 1, 3)], 1)
    x, y, u, v = (np.arange(COUNT, dtype=np.int32) * k for k in (1, 2, 0, 0))
    run.bind({"n": COUNT}, [a.ctypes.data for a in (x, y, u, v)])
    run()
    assert run.order == [[], []]
    run.rebind(3, x.ctypes.data)  # the second overwrites what the first reads
    run()
    assert run.order == [[], [0]]
    assert np.array_equal(u, np.arange(COUNT) * 13 + 1)
    run.rebind(3, v.ctypes.data)
    api.log.clear()
    run()
    assert run.order == [[], []]
    run.rebind(2, np.zeros(COUNT, np.int32).ctypes.data)
    api.log.clear()
    run.rebind(2, u.ctypes.data)
    run()
    assert "cuGraphInstantiate" not in api.log


def test_launches_whose_blocks_wait_for_each_other_take_turns() -> None:
    device, _api = here()
    steps = [mix_step(0, 1, k) for k in (2, 3, 4)]
    steps[:2] = [
        replace(s, artifact=replace(s.artifact, params={"cooperative": True})) for s in steps[:2]
    ]
    run = linked(device, steps, 5)
    held = [np.zeros(COUNT, np.int32) for _ in range(5)]
    run.bind({"n": COUNT}, [a.ctypes.data for a in held])
    run()
    assert run.order == [[], [0], []]


@pytest.mark.parametrize(
    ("marked", "version", "capability", "early"),
    [
        ("0123", 13000, 9, [(0, 1), (1, 2)]),
        ("13", 13000, 9, [(0, 1)]),
        ("0123", 12030, 9, []),
        ("0123", 13000, 8, []),
    ],
)  # fmt: skip
def test_kernels_that_wait_themselves_begin_early(
    marked: str, version: int, capability: int, early: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one follows two others: those it waits for as all kernels do."""
    device, api = here()
    monkeypatch.setattr(api, "_cuDriverGetVersion", lambda: (version,), raising=False)
    monkeypatch.setitem(fake_driver.ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", capability)
    steps = [
        mix_step(0, 1, 2),
        mix_step(2, 1, 3),
        mix_step(3, 1, 4),
        mix_step(0, 1, 5),
        mix_step(4, 5, 6),
    ]
    for k in map(int, marked):
        i = k + (k == 3)
        steps[i] = replace(steps[i], artifact=replace(steps[i].artifact, params={"waits": True}))
    run = linked(device, steps, 1)
    held = [np.zeros(COUNT, np.int32) for _ in range(7)]
    run.bind({"n": COUNT}, [a.ctypes.data for a in held])
    run()
    assert run.order[-1] == [2, 3]
    assert [e for edges in api.early.values() for e in edges] == early


def test_without_a_number_large_launches_stay_in_one_lane() -> None:
    device, _api = here()
    held = [np.zeros(COUNT, np.int32) for _ in range(8)]
    for grid, order in ((1, [[], [], [], [], [0]]), (132, [[], [0], [1], [2], [3]])):
        run = linked(device, [mix_step(0, 1, k, grid) for k in range(2, 7)], -1)
        run.bind({"n": COUNT}, [a.ctypes.data for a in held])
        run()
        assert run.order == order


@pytest.mark.parametrize(
    "call", ["cuGraphCreate", "cuGraphInstantiate", "cuGraphAddKernelNode", "cuGraphLaunch"]
)
def test_where_there_can_be_no_graph(call: str) -> None:
    device, api = here()
    said: list[str] = []
    run = linked(device, [mix_step(0, 1, 2), mix_step(2, 1, 3)], -1, said.append)
    held = [np.full(COUNT, k, np.int32) for k in (1, 2, 0, 0)]
    run.bind({"n": COUNT}, [a.ctypes.data for a in held])
    api.fail[call] = 801
    run()
    assert np.array_equal(held[3], np.full(COUNT, 14 * 3 + 11))
    assert "CUDA_ERROR_NOT_SUPPORTED" in run.plain
    (told,) = said
    assert told.startswith(f"kernels are launched one by one, which takes longer: {run.plain}")
    run()
    run.repeat(50)
    assert len(said) == 1
    api.fail[call] = 1
    other = linked(device, [mix_step(0, 1, 2)], -1, said.append)
    other.bind({"n": COUNT}, [a.ctypes.data for a in held])
    with pytest.raises(ExecutionError, match="CUDA_ERROR_INVALID_VALUE"):
        other()
    assert len(said) == 1


def test_recurrent_layers_say_when_their_blocks_wait_for_each_other() -> None:
    case, device = recurrent("GRU", 2, 3, 4, 64), target("sm_90")
    offered = asked.variants(case.tactic, case.node, device)
    assert not isinstance(offered, Reject)
    told = {}
    for v in offered:
        made = asked.artifact(case.tactic, case.node, v, CompileContext(device, {}))
        told[int(v.knob("slices"))] = made.params.get("cooperative", False)
    assert told == {n: n > 1 for n in told}
    assert len(told) > 1
