"""Plans served by Ray Serve: replicas on the machines of a cluster, each with cores, or a GPU, of
its own.

    handle = tactix_serve.ray.run("model.plan", num_replicas=2, threads=1)
    outputs = handle.remote({"image": images}).result()

Ray is imported when one of these functions is called.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.arrays import Array
from tactix.base.errors import ExecutionError, InvalidArgument, TactixError
from tactix.base.logger import Logger
from tactix_cluster.core_lease import lease
from tactix_cluster.ray_library import ray_module
from tactix_serve.batching import BatchOptions
from tactix_serve.config import ModelConfig
from tactix_serve.served_model import warm
from tactix_serve.shipped_plan import ShippedPlan, described, opened

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.serve.deployment import Application
    from ray.serve.handle import DeploymentHandle

NAMESPACE = "tactix"
"""Of the actors that hold plans, which are found by name from every machine."""
AHEAD = 8
"""Requests that a replica may have for each that it can run. Ray's router looks away for 50 ms and
more where all replicas have as many as they may: with 2 two replicas were busy for 0.8 of the time.
"""


@dataclass(frozen=True)
class ReplicaOptions:
    """``threads``: of one inference. ``contexts``: requests of a replica that run at once.
    ``on_untrusted``: as for ``tactix.load``, asked where the replica runs. ``timeout``: seconds
    after which a request is given up; 0 for none. ``batching``: how requests go together, None for
    one by one. ``pin``: whether a replica keeps to cores that no other one has.
    """

    threads: int = 1
    contexts: int = 1
    on_untrusted: str = ""
    timeout: float = 0.0
    batching: BatchOptions | None = None
    pin: bool = True

    @property
    def cores(self) -> int:
        return self.threads * self.contexts

    @property
    def together(self) -> int:
        """Requests that a replica can have."""
        batch = self.batching.max_batch if self.batching is not None else 1
        return AHEAD * self.contexts * max(1, batch)


class PlanHolder:
    """An actor that owns a plan's bytes in the object store, so that replicas that start later find
    them when whoever deployed them is gone.
    """

    def __init__(self, content: Array) -> None:
        self._content = ray_module().put(content)
        self._refusal = b""

    def content(self) -> list[ObjectRef[Array]]:
        """In a list, as Ray hands over what a reference alone stands for."""
        return [self._content]

    def note(self, refusal: bytes) -> None:
        """Why a replica could not open it, pickled; empty: one could."""
        self._refusal = refusal

    def refusal(self) -> bytes:
        return self._refusal


class PlanReplica:
    """A deployment's class: one engine that answers requests."""

    def __init__(self, shipped: ShippedPlan, options: ReplicaOptions) -> None:
        ray, holder = ray_module(), _holder(shipped)
        (reference,) = ray.get(holder.content.remote())
        try:
            self._open(ray.get(reference), shipped, options)
        except TactixError as e:
            ray.get(holder.note.remote(pickle.dumps(e)))
            raise
        holder.note.remote(b"")

    def _open(self, content: Array, shipped: ShippedPlan, options: ReplicaOptions) -> None:
        if options.pin and shipped.device == "cpu":
            self._pin(shipped, options)
        engine = opened(content, shipped, options.threads, options.on_untrusted)
        config = ModelConfig(
            contexts=options.contexts,
            max_queue=max(64, options.together),
            threads=options.threads,
            timeout=options.timeout,
            batching=options.batching,
        )
        self._model = warm(engine, config)

    def _pin(self, shipped: ShippedPlan, options: ReplicaOptions) -> None:
        self._lease = lease(options.cores)
        if self._lease is not None:
            self._lease.occupy()
            return
        Logger().warning(
            f"a replica of {shipped.name} shares cores with others: this machine has no "
            f"{options.cores} more for it alone. Ask for less replicas, threads or contexts"
        )

    async def __call__(
        self, inputs: Mapping[str, Any], timeout: float | None = None
    ) -> dict[str, Array]:
        """Outputs by name. ``inputs``: arrays, or references to some in the object store, by name;
        those that lie in this machine's store are read there. ``timeout``: seconds. Raises as
        ``Engine.run_async``.
        """
        if not isinstance(inputs, Mapping):
            what = f"the inputs are a {type(inputs).__name__}"
            raise InvalidArgument(what, do="Give arrays by the names of the plan's inputs")
        reference = ray_module().ObjectRef
        feeds = {k: await x if isinstance(x, reference) else x for k, x in inputs.items()}
        return dict(await self._model.infer(feeds, timeout))


def deployment(
    plan: str | Path,
    *,
    num_replicas: int | str | None = None,
    options: ReplicaOptions | None = None,
    **more: Any,
) -> Application:
    """A plan's file as an application of Ray Serve, for ``ray.serve.run``.

    ``num_replicas``: as of Ray Serve, ``"auto"`` among it. ``more``: fields of ``ReplicaOptions``
    (``threads=2``), and of ``ray.serve.deployment`` (``autoscaling_config``,
    ``ray_actor_options``...). A replica asks Ray for as many CPUs as its contexts have threads, for
    a GPU's plan for one GPU, unless ``ray_actor_options`` says otherwise.

    Connects to Ray, or starts it here, where that has not been done. Raises ConfigError where Ray
    is not installed, InvalidArgument for an option that is none, PlanFormatError, OSError.
    """
    replicas = {} if num_replicas is None else {"num_replicas": num_replicas}
    chosen, given = _options(options, {**more, **replicas})
    content, shipped = _read(plan)
    made = _made(shipped, chosen, given)
    _hold(content, shipped)
    return made.bind(shipped, chosen)  # type: ignore[no-any-return]


def run(plan: str | Path, *, name: str = "", **more: Any) -> DeploymentHandle:
    """Deploy a plan, and wait until it serves: a handle, ``handle.remote(inputs).result()``; not
    over HTTP. ``name``: of the application, by default that of the plan's file. ``more``: as of
    ``deployment``.

    Raises as ``deployment``, and what a replica could not open the plan for: UntrustedPlan,
    PlanFormatError, PlanCompatibilityError; ExecutionError where none starts for another reason.
    """
    app, serve, path = deployment(plan, **more), ray_module("ray.serve"), Path(plan)
    try:
        handle: DeploymentHandle = serve.run(app, name=name or path.stem, route_prefix=None)
    except RuntimeError as e:
        refusal = _refusal(_read(plan)[1])
        if refusal is not None:
            raise refusal from None
        why = str(e).strip().rpartition("\n")[2]
        raise ExecutionError("the plan is not served", who=path.name, why=why) from e
    return handle


def forget(plan: str | Path) -> None:
    """Take a plan's bytes out of the object store: replicas that run keep them until they end, and
    none can start any more. Raises ConfigError, PlanFormatError, OSError.
    """
    shipped = _read(plan)[1]
    with suppress(ExecutionError):
        ray_module().kill(_holder(shipped))


def _read(plan: str | Path) -> tuple[Array, ShippedPlan]:
    """Raises PlanFormatError, OSError."""
    import numpy as np

    content = np.fromfile(plan, np.uint8)
    return content, described(content, Path(plan).name)


def _made(shipped: ShippedPlan, options: ReplicaOptions, given: Mapping[str, Any]) -> Any:
    """The class as a deployment of Ray Serve. Raises InvalidArgument."""
    serve, cpu = ray_module("ray.serve"), {"num_cpus": options.cores}
    own = {
        "name": Path(shipped.name).stem,
        "max_ongoing_requests": options.together,
        "max_constructor_retry_count": 2,  # a plan that is refused is refused again
        "ray_actor_options": cpu if shipped.device == "cpu" else {"num_gpus": 1},
    }
    try:
        return serve.deployment(**{**own, **given})(PlanReplica)
    except (TypeError, ValueError) as e:
        do = "Give fields of ReplicaOptions, and options of ray.serve.deployment"
        raise InvalidArgument("the deployment's options are wrong", why=str(e), do=do) from None


def _options(
    options: ReplicaOptions | None, more: Mapping[str, Any]
) -> tuple[ReplicaOptions, dict[str, Any]]:
    """A replica's, and Ray's. Raises InvalidArgument."""
    own = {f.name for f in fields(ReplicaOptions)}
    chosen = replace(options or ReplicaOptions(), **{k: x for k, x in more.items() if k in own})
    for name in ("threads", "contexts"):
        if type(n := getattr(chosen, name)) is not int or n < 1:
            raise InvalidArgument(f"{name} is {n!r}", do="Give an integer from 1 up")
    return chosen, {k: x for k, x in more.items() if k not in own}


def _holder_name(shipped: ShippedPlan) -> str:
    return f"plan {shipped.digest}"


def _holder(shipped: ShippedPlan) -> Any:
    """The actor that has a plan's bytes. Raises ExecutionError."""
    try:
        return ray_module().get_actor(_holder_name(shipped), NAMESPACE)
    except ValueError as e:
        what, do = "nobody holds the plan's bytes", "Deploy it again"
        raise ExecutionError(what, who=shipped.name, why=str(e), do=do) from None


def _hold(content: Array, shipped: ShippedPlan) -> None:
    """Put a plan's bytes where replicas find them; those that are there already stay."""
    ray = ray_module()
    if not ray.is_initialized():
        ray.init(namespace=NAMESPACE)
    actor = ray.remote(PlanHolder).options(
        name=_holder_name(shipped),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
    )
    ray.get(actor.remote(content).note.remote(b""))


def _refusal(shipped: ShippedPlan) -> TactixError | None:
    """What the last replica that could not open the plan raised."""
    found = ray_module().get(_holder(shipped).refusal.remote())
    return pickle.loads(found) if found else None
