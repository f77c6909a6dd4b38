"""Builds whose candidates are timed by others: workers of a made-up cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import ExecutionError
from tactix.base.logger import Logger
from tactix.base.progress import SilentProgress
from tactix.pipeline import prepare
from tactix.pipeline.delegate import ContestHost
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.select.contest_pickle import loads
from tactix.select.contests import Conditions, ContestOutcome
from tactix_cluster.cluster_workers import ClusterWorkers, WorkerLost, WorkerRefused

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


@dataclass(frozen=True)
class Ticket:
    """``worker`` was asked to hold these; nothing: whether it is ready."""

    worker: FakeWorker
    conditions: Conditions
    contests: Sequence[bytes] = ()


@dataclass(eq=False)
class FakeWorker:
    """``held``: contests of each call. ``stopped``: whether it was ended."""

    cluster: FakeCluster
    number: int
    held: list[int] = field(default_factory=list)
    stopped: bool = False

    def ready(self, conditions: Conditions) -> object:
        return Ticket(self, conditions)

    def hold(self, conditions: Conditions, contests: Sequence[bytes]) -> object:
        return Ticket(self, conditions, contests)

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeCluster:
    """``room``: for so many workers. ``dying``: numbers of workers that end when they first hold
    something. ``refusing``: why none takes part. ``wrong``: the error of every call.
    """

    session: Session
    room: int = 2
    dying: frozenset[int] = frozenset()
    refusing: str = ""
    wrong: str = ""
    workers: list[FakeWorker] = field(default_factory=list)
    conditions: list[Conditions] = field(default_factory=list)

    def count(self, conditions: Conditions) -> int:
        return self.room

    def start(self, conditions: Conditions) -> FakeWorker:
        self.workers.append(FakeWorker(self, len(self.workers)))
        return self.workers[-1]

    def done(self, tickets: Sequence[object], seconds: float) -> Sequence[object]:
        return tickets[:1]

    def answer(self, ticket: object) -> Sequence[ContestOutcome]:
        assert isinstance(ticket, Ticket)
        host = ContestHost(self.session, ticket.conditions)
        self.conditions.append(ticket.conditions)
        if why := self.refusing or host.unlike():
            raise WorkerRefused(why)
        if not ticket.contests:
            return []
        if ticket.worker.number in self.dying:
            raise WorkerLost("killed")
        if self.wrong:
            raise ExecutionError(self.wrong)
        ticket.worker.held.append(len(ticket.contests))
        return host.hold([loads(content, self.session) for content in ticket.contests])

    def close(self) -> None:
        pass


class Kept(Logger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(group="build")


def network(builder: tactix.Builder, layers: int = 3) -> Any:
    """Products of different sizes, each with an activation whose attributes have a class that was
    made at run time.
    """
    net = builder.create_network("products")
    rng, x = np.random.default_rng(0), net.add_input("x", "f32", (4, 16))
    for i in range(layers):
        w = rng.standard_normal((16 + 8 * i, 24 + 8 * i), np.float32)
        (x,) = net.add_layer("tactix.MatMul", [x, net.add_constant(w)])
        (x,) = net.add_layer("tactix.LeakyRelu", [x], alpha=0.25)
    net.mark_output(x, "y")
    return net


@dataclass(frozen=True)
class Built:
    plan: Plan
    log: list[str]

    @property
    def said(self) -> str:
        return "\n".join(self.log)


def build(session: Session, cluster: FakeCluster | None, cache: Path, **options: Any) -> Built:
    logger = Kept()
    builder = tactix.Builder(logger, session)
    workers = None if cluster is None else ClusterWorkers(cluster)
    given = {"builder_optimization_level": 1, "threads": 1, "timing_cache": cache} | options
    config = tactix.BuilderConfig(workers=workers, **given)
    plan = builder.build_plan(network(builder), config)
    if workers is not None:
        workers.close()
    return Built(plan, logger.lines)


def content(plan: Plan) -> bytes:
    """All of a plan but how often its build asked the cache."""
    ledger = {k: x for k, x in plan.ledger.items() if k != "timing_cache"}
    return container.digest(replace(plan, ledger=ledger))


def states(plan: Plan) -> set[str]:
    rows = plan.ledger["nodes"].values()
    return {c["status"] for row in rows for c in row["candidates"]} - {"rejected"}


def test_the_plan_is_that_of_one_machine_with_the_same_timings(
    session: Session, tmp_path: Path
) -> None:
    cluster, cache = FakeCluster(session), tmp_path / "timings.json"
    built = build(session, cluster, cache)
    assert states(built.plan) == {"cached"}, "nothing was timed here"
    assert all(w.held for w in cluster.workers), "all took part"
    assert all(w.stopped for w in cluster.workers)
    alone = build(session, None, cache, frozen=True)
    assert content(built.plan) == content(alone.plan)


def test_a_worker_that_is_lost_costs_time_alone(session: Session, tmp_path: Path) -> None:
    cluster, cache = FakeCluster(session, dying=frozenset({0})), tmp_path / "timings.json"
    built = build(session, cluster, cache)
    assert states(built.plan) == {"cached"}
    assert "a worker was lost, and is replaced: killed" in built.said
    assert len(cluster.workers) == 3
    assert cluster.workers[0].stopped
    assert content(built.plan) == content(build(session, None, cache, frozen=True).plan)


def test_what_ends_every_worker_is_left_to_the_build(session: Session, tmp_path: Path) -> None:
    cluster = FakeCluster(session, dying=frozenset(range(100)))
    built = build(session, cluster, tmp_path / "timings.json")
    assert states(built.plan) == {"measured"}
    assert len(cluster.workers) < 20


@pytest.mark.parametrize("room", [0, 2])
def test_without_a_worker_that_will_do_the_build_goes_on_here(
    session: Session, tmp_path: Path, room: int
) -> None:
    cluster = FakeCluster(session, room=room, refusing="its cpu is another one")
    built = build(session, cluster, tmp_path / "timings.json")
    assert states(built.plan) == {"measured"}
    assert ("a worker does not take part: its cpu is another one" in built.said) == bool(room)
    assert "no worker is left; the build goes on here" in built.said


def test_what_a_worker_lacks_is_timed_here(session: Session, tmp_path: Path) -> None:
    built = build(session, FakeCluster(session, wrong="no pack"), tmp_path / "timings.json")
    assert states(built.plan) == {"measured"}
    assert "what a worker could not time is left to this build: no pack" in built.said


def test_what_is_built_for_need_not_be_here(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aim = prepare._aim
    monkeypatch.setattr(prepare, "_aim", lambda *given: replace(aim(*given), here=False))
    cache = tmp_path / "timings.json"
    assert states(build(session, None, cache).plan) == {"estimated"}
    built = build(session, FakeCluster(session), cache)
    assert states(built.plan) == {"cached"}
    assert content(built.plan) == content(build(session, None, cache).plan)


class Stopping(SilentProgress):
    """Ends the measuring after the first answer."""

    over = False

    def step(self, name: str, done: int, message: str = "") -> None:
        self.over = self.over or name == "measure"

    def cancelled(self) -> bool:
        return self.over


def test_a_build_that_is_stopped_ends_its_workers(session: Session, tmp_path: Path) -> None:
    cluster = FakeCluster(session, room=1)
    options = {"progress_monitor": Stopping()}
    build(session, cluster, tmp_path / "timings.json", **options)
    assert [len(w.held) for w in cluster.workers] == [1]
    assert all(w.stopped for w in cluster.workers)


@pytest.mark.compiler
def test_duels_are_fought_elsewhere_too(session: Session, tmp_path: Path) -> None:
    """A convolution and the pool behind it in one kernel, beside the two apart."""
    kinds: list[str] = []

    class Listing(ClusterWorkers):
        def hold(self, conditions: Any, contests: Any, *rest: Any) -> Iterator[Any]:
            kinds.extend(type(c).__name__ for c in contests)
            return super().hold(conditions, contests, *rest)

    def built(**options: Any) -> Plan:
        config = tactix.BuilderConfig(builder_optimization_level=1, threads=1, **options)
        return builder.build_plan(builder.import_model(DIGITS), config)

    builder, cache = tactix.Builder(session=session), tmp_path / "timings.json"
    plan = built(workers=Listing(FakeCluster(session)), timing_cache=cache)
    assert set(kinds) == {"Race", "Duel"}
    assert states(plan) == {"cached"}
    assert content(plan) == content(built(timing_cache=cache, frozen=True))


@pytest.fixture
def conditions(session: Session, tmp_path: Path) -> Conditions:
    cluster = FakeCluster(session, refusing="none")
    build(session, cluster, tmp_path / "asked.json")
    return cluster.conditions[0]


def test_a_worker_knows_whether_it_can_stand_for_the_device(
    session: Session, conditions: Conditions
) -> None:
    def unlike(**changed: Any) -> str:
        return ContestHost(session, replace(conditions, **changed)).unlike()

    device = conditions.properties
    other = replace(device, name="another processor")
    assert unlike() == ""
    assert "tactix is" in unlike(version="0.0.1")
    assert "no plugin provides device 'acme.npu'" in unlike(device="acme.npu")
    assert f"is another one: {device.name}" in unlike(properties=other)
    assert unlike(properties=other, exact=False) == ""
    more = replace(device, features=device.features | {"amx2"})
    assert "lacks amx2" in unlike(properties=more, exact=False)
    assert "compiler of c is" in unlike(compilers={"c": "other 1.0"})


def test_a_contest_takes_no_more_of_the_network_than_its_node(
    session: Session, tmp_path: Path
) -> None:
    sizes: list[int] = []

    class Weighing(ClusterWorkers):
        def hold(self, conditions: Any, contests: Any, *rest: Any) -> Iterator[Any]:
            from tactix.select.contest_pickle import dumps

            sizes.extend(len(dumps(c)) for c in contests)
            return super().hold(conditions, contests, *rest)

    builder = tactix.Builder(session=session)
    net = builder.create_network("large")
    x = net.add_input("x", "f32", (1, 512))
    for n in (512, 8):
        w = np.ones((512, n), np.float32)
        (x,) = net.add_layer("tactix.MatMul", [x, net.add_constant(w)])
    net.mark_output(x, "y")
    workers = Weighing(FakeCluster(session, refusing="none"))
    options = {"builder_optimization_level": 1, "threads": 1, "workers": workers}
    builder.build_plan(net, tactix.BuilderConfig(timing_cache=tmp_path / "t.json", **options))
    assert sum(size > 512 * 512 * 4 for size in sizes) == 1
