"""Random networks against the layers' references: the rules, whole engines, and every candidate of
every node.

HYPOTHESIS_PROFILE=thorough draws many more networks, other ones each time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import growers  # noqa: F401
import movers  # noqa: F401
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow import NARROW
from strategies import (
    BF16,
    EXACT,
    F16,
    F32,
    I32,
    RUNS,
    Array,
    Case,
    builder,
    disturbed,
    error,
    inside,
    networks,
    run,
    spread,
)

import tactix
from tactix.config import BuilderFlag
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import CompileContext
from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix.plan import container
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Bids, Candidate, Terms, bid
from tactix.select.timing_cache import Timing, TimingCache
from tactix_sdk.evaluate import evaluate
from tactix_sdk.show import show, show_node

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(count: int, thorough: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=thorough if THOROUGH else count,
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def rewritten(net: NetworkDefinition, exact: bool = False) -> NetworkDefinition:
    """The network after the rules that a build without flags, or with EXACT_NUMERICS, uses."""
    allowed = {"exact"} if exact else {"exact", "reassociates"}
    out, _ = fuse(net, [r for r in builder().session.active_rules() if r.numerics in allowed])
    verify(out, deep=True)
    return out


def oracle(net: NetworkDefinition, feed: Mapping[str, Array]) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        return evaluate(net, feed)


def compare(case: Case, index: int, got: Mapping[str, Array], where: str) -> None:
    want = oracle(case.net, case.feeds[index])
    assert list(got) == list(want)
    for k, y in want.items():
        off = error(np.asarray(got[k]), np.asarray(y), case.slack[index][k])
        assert off <= 1, (
            f"{k} is off by {off:.3g} at {case.envs[index]}\n{where}\ngot {got[k]}\nwant {y}"
        )


@examples(60, 3000)
@given(networks(), st.booleans())
def test_rules_keep_what_a_network_computes(case: Case, exact: bool) -> None:
    fused = rewritten(case.net, exact)
    for i, feed in enumerate(case.feeds):
        compare(case, i, oracle(fused, feed), show(fused))


# -- engines -------------------------------------------------------------------------------------


class Lottery(TimingCache):
    """Knows a time for every candidate, drawn by lot: any variant of any tactic may win, and
    nothing is measured.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def get(self, key: str) -> Timing:
        digest = hashlib.sha256(f"{self.seed} {key}".encode()).digest()
        return Timing(1e-6 + digest[0] * 1e-7, 0.0, 0.0)


def engine_of(net: NetworkDefinition, rules: str, threads: int, seed: int | None) -> Any:
    """An engine by estimates, or with ``seed`` by lot; ``rules``: ``all``, ``exact`` or ``none``."""
    flags = {BuilderFlag.DEBUG} | ({BuilderFlag.EXACT_NUMERICS} if rules == "exact" else set())
    config = tactix.BuilderConfig(
        flags=flags,
        builder_optimization_level=0 if seed is None else 5,
        timing_cache=False,
        threads=threads,
    )
    made, session = builder(), builder().session
    cache = TimingCache() if seed is None else Lottery(seed)
    active = [] if rules == "none" else session.active_rules()
    with (
        mock.patch("tactix.pipeline.prepare._open_cache", return_value=cache),
        mock.patch.object(session, "active_rules", return_value=active),
    ):
        return made.build(net, config)


@examples(16, 400)
@given(
    networks(5, 14), st.sampled_from(["all", "all", "exact", "none"]), st.integers(1, 2),
    st.one_of(st.none(), st.integers(0, 1000)),
)  # fmt: skip
def test_engines_compute_what_the_references_say(
    case: Case, rules: str, threads: int, seed: int | None
) -> None:
    engine = engine_of(case.net, rules, threads, seed)
    names = [o.name for o in engine.outputs]
    for i in (*range(len(case.feeds)), 0):
        y = engine(case.feeds[i])
        got = y if isinstance(y, dict) else {names[0]: y}
        steps = "\n".join(
            f"{s['name']}: {s['tactic']} [{s['variant']}]" for s in engine.inspect()["steps"]
        )
        compare(case, i, got, steps)


OF_16_BITS = tuple(
    networks(
        2,
        6,
        [*NARROW * 2, "unary", "binary", "where", "cast", "jump", "comparison"],
        (*(t,) * 8, F32, I32),
    )
    for t in (F16, BF16)
)
"""Networks that are float16, or bfloat16, almost everywhere, and whose roundings show."""


@examples(20, 400)
@given(st.one_of(*OF_16_BITS), st.sampled_from([1, 3]))
def test_networks_of_16_bits_are_measured_and_right(case: Case, level: int) -> None:
    """Candidates are judged as in any build, and one of each node passes."""
    config = tactix.BuilderConfig(builder_optimization_level=level, timing_cache=False)
    engine = builder().build(case.net, config)
    for i, feed in enumerate(case.feeds):
        y = engine(feed)
        got = y if isinstance(y, dict) else {engine.outputs[0].name: y}
        steps = "\n".join(
            f"{s['name']}: {s['tactic']} [{s['variant']}]" for s in engine.inspect()["steps"]
        )
        compare(case, i, got, steps)


@examples(12, 400)
@given(
    networks(5, 14), st.sampled_from(["all", "none"]), st.one_of(st.none(), st.integers(0, 1000))
)
def test_plans_without_their_host_code(case: Case, rules: str, seed: int | None) -> None:
    """Read from a file that is not trusted, with references in place of every kernel."""
    plan = engine_of(case.net, rules, 1, seed).plan
    quiet = tactix.Logger(tactix.Severity.INTERNAL_ERROR)
    engine = tactix.load(container.dump(plan), logger=quiet, on_untrusted="references")
    assert {s.artifact.launcher for s in engine.plan.steps} <= {
        "tactix.numpy@1",
        "tactix.control@1",
    }
    for i, feed in enumerate(case.feeds):
        y = engine(feed)
        compare(case, i, y if isinstance(y, dict) else {engine.outputs[0].name: y}, show(case.net))


# -- candidates ----------------------------------------------------------------------------------

FENCE = 64
FILL = 0xA5


class Fenced(Bench):
    """Every buffer lies between bytes that must stay as they are."""

    def prepare(self, *args: Any) -> Any:
        self._raw: list[tuple[Array, int, int]] = []
        return super().prepare(*args)

    def aligned(self, array: Any) -> Any:
        raw = np.full(array.nbytes + 3 * FENCE, FILL, np.uint8)
        start = 2 * FENCE - raw.__array_interface__["data"][0] % FENCE
        inner = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        inner[...] = array
        self._raw.append((raw, start, start + array.nbytes))
        return inner

    def intact(self) -> bool:
        return all((r[:a] == FILL).all() and (r[b:] == FILL).all() for r, a, b in self._raw)


def targets() -> list[DeviceProperties]:
    """This machine, and machines with shorter vectors that it can stand in for."""
    p = builder().session.devices["tactix.cpu@1"].properties()
    narrow = {256: ("avx2", "bmi1", "bmi2", "f16c", "fma", "sse4_2"), 128: ("sse4_2",)}
    fit = [(bits, f) for bits, f in narrow.items() if bits < p.vector_bits and p.has(*f)]
    return [p, *(replace(p, vector_bits=bits, features=frozenset(f)) for bits, f in fit)]


def rounding(node: Node, known: Mapping[Value, Array], env: dict[str, int]) -> list[float]:
    """What rounding may do to each output of the node; nothing if all its layers only move, choose
    or round.
    """
    if all(b.layer.name in EXACT for b in node.body.nodes):
        return [0.0] * len(node.outputs)
    rng = np.random.default_rng(0)
    runs = [[known[v] for v in node.outputs]]
    for _ in range(RUNS):
        runs.append(
            run(node, [None if v is None else disturbed(known[v], rng) for v in node.inputs], env)
        )
    return [spread(list(arrays)) for arrays in zip(*runs, strict=True)]


def check(
    bench: Fenced, node: Node, c: Candidate, known: Mapping[Value, Array], env: dict[str, int]
) -> None:
    """Run a candidate: its outputs, their padding lanes, and that it wrote nothing else."""
    given = [str(v.spec) for v in node.given]
    where = f"{c.title} threads={bench.context.threads} at {env}\n{show_node(node)}\n{given}"
    arrays = [known[v] for v in node.given]
    runnable, got = bench.prepare(node, c.artifact, c.variant, arrays, env)
    runnable()
    assert bench.intact(), f"wrote beside a buffer: {where}"
    for i, a in enumerate(arrays):
        packed = c.variant.input_format(i).pack(a)
        assert packed.tobytes() == bench.keep()[i].tobytes(), f"wrote to input {i}: {where}"
    slack = rounding(node, known, env)
    for i, (v, y) in enumerate(zip(node.outputs, got, strict=True)):
        fmt = c.variant.output_format(i)
        linear = fmt.unpack(y, v.spec.at(env))
        off = error(linear, known[v], slack[i])
        assert off <= 1, f"output {i} is off by {off:.3g}: {where}\ngot {linear}\nwant {known[v]}"
        lanes = y.size - linear.size
        assert np.count_nonzero(y) == np.count_nonzero(linear), (
            f"one of {lanes} padding lanes of output {i}: {where}"
        )


def bids_of(net: NetworkDefinition, device: DeviceProperties, threads: int) -> list[Bids]:
    """Every variant of every tactic for every node, compiled at once."""
    session = builder().session
    context = CompileContext(device, dict.fromkeys(net.symbols(), 3), threads)
    bids = [bid(n, session.active_tactics(), context, Terms(level=5)) for n in net.nodes]
    toolchain = Toolchain(session.compilers.values())
    candidates = [c for b in bids for c in b.candidates]
    binaries = toolchain.compile([c.artifact for c in candidates], device)
    for c in candidates:
        c.artifact = with_binary(c.artifact, binaries)
    return bids


@examples(16, 400)
@given(networks(1, 5), st.integers(1, 2), st.integers(0, 2))
def test_every_candidate_computes_what_the_reference_says(
    case: Case, threads: int, target: int
) -> None:
    session, found = builder().session, targets()
    net = rewritten(case.net)
    all_bids = bids_of(net, found[target % len(found)], threads)
    device = session.devices["tactix.cpu@1"]
    bench = Fenced(LinkContext(device, threads, session.layers.__getitem__), session.launchers)
    for env, feed in zip(case.envs, case.feeds, strict=True):
        known = inside(net, feed, env)
        for b in all_bids:
            for c in b.candidates:
                if not c.artifact.alias:
                    check(bench, b.node, c, known, env)
