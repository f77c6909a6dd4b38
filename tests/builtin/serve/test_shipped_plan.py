"""Plans that arrive as bytes: checked, and read where they lie."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import (
    ConfigError,
    ExecutionError,
    InvalidArgument,
    PlanFormatError,
    UntrustedPlan,
)
from tactix.plan import container
from tactix_serve import ray as plans_on_ray
from tactix_serve.batching import BatchOptions
from tactix_serve.ray import PlanReplica, ReplicaOptions
from tactix_serve.shipped_plan import described, opened

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def bytes_of(plans: Any, name: str = "scaled") -> Any:
    """As an object store gives them: read-only."""
    content = np.fromfile(plans.path(name), np.uint8)
    content.flags.writeable = False
    return content


def unsigned(plans: Any) -> Any:
    plan = container.load(plans.path("scaled"))
    return np.frombuffer(container.dump(replace(plan, seal=None)), np.uint8)


def test_it_runs_and_its_weights_stay_where_they_are(
    plans: Any, expected: Callable[..., Any]
) -> None:
    content = bytes_of(plans)
    engine = opened(content, described(content, "scaled.plan"), threads=1)
    np.testing.assert_allclose(engine(X), expected(X), rtol=1e-5)
    start = content.__array_interface__["data"][0]
    weights = [b for b in engine.plan.blobs.values() if len(b) and b.contiguous]
    at = [np.frombuffer(b, np.uint8).__array_interface__["data"][0] for b in weights]
    assert any(start <= a < start + content.nbytes for a in at)


def test_another_plan_is_refused(plans: Any) -> None:
    shipped = described(bytes_of(plans), "scaled.plan")
    with pytest.raises(PlanFormatError, match=r"scaled\.plan: what arrived is another plan"):
        opened(bytes_of(plans, "twice"), shipped, threads=1)


@pytest.mark.parametrize("at", [100, -1])
def test_a_byte_that_changed_on_the_way_is_found(plans: Any, at: int) -> None:
    content = bytes_of(plans).copy()
    shipped = described(content, "scaled.plan")
    content[at] ^= 1
    with pytest.raises(PlanFormatError):
        opened(content, shipped, threads=1)
    with pytest.raises(PlanFormatError):
        described(content, "scaled.plan")


def test_bytes_that_end_early_are_no_plan(plans: Any) -> None:
    shipped = described(bytes_of(plans), "scaled.plan")
    with pytest.raises(PlanFormatError, match="another plan"):
        opened(bytes_of(plans)[:10], shipped, threads=1)


@pytest.mark.compiler
def test_code_that_nobody_here_trusts_is_refused(plans: Any, expected: Callable[..., Any]) -> None:
    content = unsigned(plans)
    shipped = described(content, "scaled.plan")
    with pytest.raises(UntrustedPlan, match="tactix keys trust"):
        opened(content, shipped, threads=1)
    allowed = opened(content, shipped, threads=1, on_untrusted="allow")
    np.testing.assert_allclose(allowed(X), expected(X), rtol=1e-5)


class FakeCluster:
    """What a replica asks of Ray: an actor by name, and references. ``content``: of the store;
    None for no actor.
    """

    ObjectRef = tuple

    def __init__(self, content: Any) -> None:
        self.holder, self.refusal = content, b""

    def get_actor(self, name: str, namespace: str) -> Any:
        if self.holder is None:
            raise ValueError(f"no actor {name}")
        note = SimpleNamespace(remote=self.note)
        return SimpleNamespace(content=SimpleNamespace(remote=lambda: [self.holder]), note=note)

    def note(self, refusal: bytes) -> None:
        self.refusal = refusal

    def get(self, what: Any) -> Any:
        return what


@pytest.fixture
def cluster(plans: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster(bytes_of(plans))
    monkeypatch.setattr(plans_on_ray, "ray_module", lambda name="ray": fake)
    return fake


FREE = ReplicaOptions(pin=False)


def test_a_replica_answers(plans: Any, cluster: FakeCluster, expected: Callable[..., Any]) -> None:
    shipped = described(bytes_of(plans), "scaled.plan")
    for options in (FREE, replace(FREE, batching=BatchOptions(max_batch=4))):
        replica = PlanReplica(shipped, options)
        given = X.copy()
        given.flags.writeable = False
        answer = asyncio.run(replica({"x": given}))
        np.testing.assert_allclose(answer["y"], expected(X), rtol=1e-5)
    assert cluster.refusal == b""


def test_a_replica_keeps_to_cores_of_its_own_or_says_that_it_cannot(
    plans: Any,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped, asked, occupied = described(bytes_of(plans), "scaled.plan"), [], []
    found = SimpleNamespace(occupy=lambda: occupied.append(True))
    monkeypatch.setattr(plans_on_ray, "lease", lambda count: asked.append(count) or found)
    PlanReplica(shipped, ReplicaOptions(threads=2, contexts=3))
    assert (asked, occupied) == ([6], [True])
    monkeypatch.setattr(plans_on_ray, "lease", lambda count: None)
    PlanReplica(shipped, ReplicaOptions())
    assert "a replica of scaled.plan shares cores" in capsys.readouterr().err


def test_inputs_without_names_are_an_error(plans: Any, cluster: FakeCluster) -> None:
    replica = PlanReplica(described(bytes_of(plans), "scaled.plan"), FREE)
    with pytest.raises(InvalidArgument, match="the inputs are a ndarray"):
        asyncio.run(replica(X))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no array for 'x'"):
        asyncio.run(replica({}))


def test_a_replica_leaves_word_why_it_did_not_start(plans: Any, cluster: FakeCluster) -> None:
    with pytest.raises(PlanFormatError):
        PlanReplica(described(bytes_of(plans, "twice"), "twice.plan"), FREE)
    assert isinstance(pickle.loads(cluster.refusal), PlanFormatError)


def test_bytes_that_nobody_holds_are_an_error(plans: Any, cluster: FakeCluster) -> None:
    cluster.holder = None
    with pytest.raises(ExecutionError, match="nobody holds the plan's bytes"):
        PlanReplica(described(bytes_of(plans), "scaled.plan"), FREE)


def test_deploying_without_ray_says_how_to_have_it(
    plans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray", "ray.serve"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'tactix\[ray\]'"):
        plans_on_ray.deployment(plans.path("scaled"))


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"contexts": 1.5}])
def test_numbers_out_of_range_are_an_error(plans: Any, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        plans_on_ray.deployment(plans.path("scaled"), **wrong)


def test_the_errors_of_requests_survive_the_way_back() -> None:
    error = InvalidArgument("what", who="who", why="why", do="do")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (InvalidArgument, str(error))
    assert isinstance(again, tactix.TactixError)
