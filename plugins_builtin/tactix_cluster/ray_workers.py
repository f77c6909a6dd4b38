"""Workers as actors of Ray, each with cores or a GPU of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tactix.base.cores import usable_cores
from tactix.base.errors import ConfigError, DeviceLost, TactixError
from tactix.pipeline.delegate import ContestHost
from tactix.plugins.session import Session
from tactix.select.contest_pickle import loads
from tactix.select.contests import Conditions, ContestOutcome
from tactix_cluster.cluster_workers import ClusterWorkers, WorkerLost, WorkerRefused
from tactix_cluster.core_lease import lease
from tactix_cluster.ray_library import ray_module

if TYPE_CHECKING:
    from tactix_cluster.cluster_workers import ClusterWorker

LOCAL, ANY, REMOTE = "local", "ray", "ray://"
"""Where builds run: on a cluster of this machine's cores, on the one that there is or else such a
one, on the one at an address.
"""


class RayContestHost:
    """An actor's class: the process that holds contests."""

    def __init__(self) -> None:
        self._conditions: Conditions | None = None

    @cached_property
    def session(self) -> Session:
        return Session(group="build")

    def ready(self, conditions: Conditions) -> str:
        """Why it cannot hold contests under these conditions; empty if it can, and then it has
        cores of its own.
        """
        why = self._host(conditions).unlike()
        if why or conditions.properties.kind != "cpu":  # Ray gives each GPU to one actor
            return why
        self._lease = lease(conditions.threads)
        if self._lease is None:
            return f"its machine has no {conditions.threads} cores that no other worker has"
        self._lease.occupy()
        return ""

    def hold(self, conditions: Conditions, contests: Sequence[bytes]) -> list[ContestOutcome]:
        """Raises TactixError."""
        found = [loads(content, self.session) for content in contests]
        return self._host(conditions).hold(found)

    def _host(self, conditions: Conditions) -> ContestHost:
        if self._conditions != conditions:
            self._made, self._conditions = ContestHost(self.session, conditions), conditions
        return self._made


class RayWorker:
    """The build's end of an actor."""

    def __init__(self, ray: ModuleType, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def ready(self, conditions: Conditions) -> object:
        return self._actor.ready.remote(conditions)  # type: ignore[no-any-return]

    def hold(self, conditions: Conditions, contests: Sequence[bytes]) -> object:
        return self._actor.hold.remote(conditions, list(contests))  # type: ignore[no-any-return]

    def stop(self) -> None:
        with suppress(Exception):  # it is gone already, or the cluster is
            self._ray.kill(self._actor)


class RayCluster:
    """``ours``: whether to leave Ray at the end."""

    def __init__(self, ray: ModuleType, ours: bool) -> None:
        self._ray, self._ours = ray, ours

    def count(self, conditions: Conditions) -> int:
        free, (resource, each) = self._ray.available_resources(), _needs(conditions)
        return int(free.get(resource, 0.0) / each)

    def start(self, conditions: Conditions) -> ClusterWorker:
        resource, each = _needs(conditions)
        own = {"num_cpus": each} if resource == "CPU" else {"num_gpus": each}
        actor = self._ray.remote(RayContestHost)
        spread = {"scheduling_strategy": "SPREAD", "max_restarts": 0}
        return RayWorker(self._ray, actor.options(**own, **spread).remote())

    def done(self, tickets: Sequence[object], seconds: float) -> Sequence[object]:
        ready = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)[0]
        return [ticket for ticket in tickets if ticket in ready]

    def answer(self, ticket: object) -> Sequence[ContestOutcome]:
        try:
            found = self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as e:
            cause = e.as_instanceof_cause()
            if isinstance(cause, DeviceLost):  # nor can it time anything else any more
                raise WorkerLost(str(cause)) from None
            if isinstance(cause, TactixError):
                raise cause from None
            raise WorkerRefused(str(cause).strip().rpartition("\n")[2]) from e
        except self._ray.exceptions.RayError as e:
            raise WorkerLost(str(e).strip().partition("\n")[0]) from e
        if isinstance(found, str):
            if found:
                raise WorkerRefused(found)
            return []
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()


def _needs(conditions: Conditions) -> tuple[str, int]:
    """What Ray calls what a worker needs, and how many of it."""
    return ("CPU", conditions.threads) if conditions.properties.kind == "cpu" else ("GPU", 1)


@contextmanager
def ray_workers(where: str, most: int = 0) -> Iterator[ClusterWorkers]:
    """Workers for builds, until the block's end: ``local`` on cores of this machine, ``ray`` on the
    cluster that ``RAY_ADDRESS`` or a running ``ray start`` names, else as ``local``,
    ``ray://HOST:PORT`` on that one. ``most``: how many; 0 for as many as there is room for.

    Raises ConfigError where Ray is not installed, or nothing answers.
    """
    if where not in (LOCAL, ANY) and not where.startswith(REMOTE):
        do = f"Give {LOCAL}, {ANY} or {REMOTE}HOST:PORT"
        raise ConfigError(f"no cluster is called {where!r}", do=do)
    ray = ray_module()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, where)
    workers = ClusterWorkers(RayCluster(ray, ours), most)
    try:
        yield workers
    finally:
        workers.close()


def _connect(ray: ModuleType, where: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        if where.startswith(REMOTE):
            ray.init(where, **quiet)
            return
        if where == ANY:
            with suppress(ConnectionError):
                ray.init("auto", **quiet)
                return
        ray.init("local", num_cpus=usable_cores(), include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as e:
        do = "Start one there with `ray start --head --ray-client-server-port 10001`"
        raise ConfigError("no Ray cluster answers", who=where, why=str(e), do=do) from e
