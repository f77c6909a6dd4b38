"""Builder: networks and configurations, and engines of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import BuildCancelled, NetworkError, TactixError
from tactix.network.definition import ModelTensor
from tactix_tensorrt import device
from tactix_tensorrt.api import plan_facts, told_sizes
from tactix_tensorrt.api.callbacks import IProgressMonitor, IStreamWriter
from tactix_tensorrt.api.config import IBuilderConfig
from tactix_tensorrt.api.enums import NetworkDefinitionCreationFlag
from tactix_tensorrt.api.logger import Forwarding, Rooted, returns
from tactix_tensorrt.api.network import INetworkDefinition
from tactix_tensorrt.api.profile import IOptimizationProfile
from tactix_tensorrt.api.runtime import Runtime
from tactix_tensorrt.api.values import IHostMemory
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.builder import Builder as NativeBuilder
    from tactix.config import BuilderConfig
    from tactix.contracts.graph import Value
    from tactix.network.definition import NetworkDefinition
    from tactix.plan.schema import Plan
    from tactix_tensorrt.api.engine import ICudaEngine
    from tactix_tensorrt.api.plan_facts import PlanFacts

OPEN = (
    "Network has dynamic or shape inputs, but no optimization profile has been defined. "
    "Add one that has {name!r}"
)


class Progress:
    """tactix's view of a program's monitor: every phase has a step at least, as programs divide by
    their number, and who answers False has no plan.
    """

    def __init__(self, monitor: IProgressMonitor) -> None:
        self._monitor = monitor
        self._stopped = False
        self._uncounted: set[str] = set()

    def phase(self, name: str, total: int) -> None:
        if not total:
            self._uncounted.add(name)
        self._monitor.phase_start(name, None, max(1, total))

    def step(self, name: str, done: int, message: str = "") -> None:
        self._uncounted.discard(name)
        if self._monitor.step_complete(name, max(0, done - 1)) is False:
            self._stopped = True

    def finish(self, name: str) -> None:
        if name in self._uncounted:
            self.step(name, 1)
        self._monitor.phase_finish(name)
        self.check()

    def cancelled(self) -> bool:
        return self._stopped

    def check(self) -> None:
        """Raises BuildCancelled once the monitor has answered False."""
        if self._stopped:
            raise BuildCancelled("the progress monitor stopped the build: step_complete gave False")


@at_this_level
class Builder(Rooted):
    """Makes networks, configurations, and plans."""

    max_threads = 1
    max_batch_size = 1

    @cached_property
    def native(self) -> NativeBuilder:
        """tactix's, made when it is first needed: it looks for plugins."""
        from tactix.builder import Builder as NativeBuilder

        return NativeBuilder(Forwarding(self._logger))

    @property
    def max_DLA_batch_size(self) -> int:
        return 0

    @property
    def platform_has_fast_fp16(self) -> bool:
        """Whether FP16 changes anything: a processor computes float32 layers in BF16 or not at all
        in 16 bits.
        """
        return device.chosen() == "cuda"

    @property
    def platform_has_fast_int8(self) -> bool:
        return True

    @property
    def platform_has_tf32(self) -> bool:
        return device.chosen() == "cuda"

    def create_network(self, flags: int | NetworkDefinitionCreationFlag = 0) -> INetworkDefinition:
        """An empty network. ``flags``: a mask of NetworkDefinitionCreationFlag."""
        return INetworkDefinition(self, int(flags))

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self._logger)

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile(self._logger)

    def get_plugin_registry(self) -> object:
        from tactix_tensorrt.api.plugin_registry import get_plugin_registry

        return get_plugin_registry()

    def reset(self) -> None: ...

    # -- building ---------------------------------------------------------------------------------

    @returns(None)
    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        """The plan's bytes; None if it cannot be built, and the log tells why."""
        from tactix.config import ProfilingVerbosity
        from tactix.pipeline.verbosity import trimmed
        from tactix.plan import container
        from tactix.run.admission import signer_of
        from tactix_tensorrt.plugin_steps.launcher import building
        from tactix_tensorrt.plugin_steps.lowering import configure

        lowered = network.lowered()
        self._check_profiles(network, config)
        if network.is_strongly_typed:
            config.check_typed()
        with _cache_file(config) as cache:
            native = config.native(network.open_inputs(), network.precise_layers(config), cache)
            self._finish(native, config)
            self._ask_int8(native, network, lowered, config)
            native.selector = selection = config.selection()
            with building(configure(lowered, native.profiles)):
                plan = self.native.build_plan(lowered, native)
                unfused = unfused_values(lowered, plan) if network.tells_unfused else []
                if unfused:
                    plan = self.native.build_plan(_with_outputs(lowered, unfused), native)
        if selection is not None:
            selection.report(plan)
        facts = self._facts(network, config, [v.name for v in unfused])
        plan = trimmed(plan, ProfilingVerbosity[config.profiling_verbosity.name])
        plan = replace(plan, meta={**plan.meta, plan_facts.KEY: facts.entry()})
        return IHostMemory(container.dump(plan, signer_of(self.native.session)))

    @staticmethod
    def _ask_int8(
        native: BuilderConfig,
        network: INetworkDefinition,
        lowered: NetworkDefinition,
        config: IBuilderConfig,
    ) -> None:
        """Ranges for INT8 by the names that the program's tensors have. Raises ConfigError,
        InvalidArgument.
        """
        tensors = network.tensors()
        for tensor, value in tensors.items():
            if tensor.layer is not None and value.producer is not None:
                lowered.model_tensors[tensor.name] = ModelTensor(value.producer.name, value)
                lowered.call(value, tensor.name)
        config.ask_int8(native, lowered, list(tensors))

    @staticmethod
    def _facts(
        network: INetworkDefinition, config: IBuilderConfig, unfused: Sequence[str]
    ) -> PlanFacts:
        """What the plan keeps of the program."""
        marked = tuple(t.name for t in network.debug)
        hidden = (*(t.name for t in network.hidden), *unfused, *network.asserted)
        return replace(
            config.facts(),
            formats=network.formats(),
            debug=marked,
            unfused=tuple(unfused),
            hidden=hidden,
            asserted=dict(network.asserted),
            sizes=told_sizes.of(network.native),
            shapes=network.held_shapes(),
            individual="REFIT_INDIVIDUAL" in config.names(),
            refittable=tuple(sorted(network.refittable)),
            roles={
                n.name: network.roles[n.name] for n in network.layers if n.name in network.roles
            },
        )

    def _finish(self, native: BuilderConfig, config: IBuilderConfig) -> None:
        native.threads = 0
        if config.progress_monitor is not None:
            native.progress_monitor = Progress(config.progress_monitor)

    def build_serialized_network_to_stream(
        self, network: INetworkDefinition, config: IBuilderConfig, writer: IStreamWriter
    ) -> bool:
        """Hand the plan to a writer; False if that fails."""
        plan = self.build_serialized_network(network, config)
        if plan is None:
            return False
        written = writer.write(plan)
        if written != len(plan):
            what = f"the stream writer {type(writer).__name__} took {written} of {len(plan)} bytes"
            self.fail(f"{what}: Let its write give how many it took")
        return written == len(plan)

    def build_engine_with_config(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> ICudaEngine | None:
        """The engine; None if it cannot be built."""
        plan = self.build_serialized_network(network, config)
        if plan is None:
            return None
        runtime = Runtime(self._logger)
        runtime.gpu_allocator = self.gpu_allocator
        return runtime.deserialize_cuda_engine(plan)

    build_engine = build_engine_with_config

    def is_network_supported(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        """Whether the network is whole; tactics are not asked."""
        try:
            network.lowered()
        except TactixError:
            return False
        return True

    @staticmethod
    def _check_profiles(network: INetworkDefinition, config: IBuilderConfig) -> None:
        """Raises NetworkError for an open shape that a profile lacks."""
        for name in network.open_inputs():
            if not config.profiles:
                raise NetworkError(OPEN.format(name=name))
            for index, profile in enumerate(config.profiles):
                if name not in profile.shapes:
                    known = ", ".join(map(repr, profile.shapes)) or "none"
                    what = f"optimization profile {index} has no shapes for {name!r}"
                    raise NetworkError(what, why=f"it has {known}", do="Call its set_shape")


def unfused_values(network: NetworkDefinition, plan: Plan) -> list[Value]:
    """Tensors of a network that a plan of it stores, but for its outputs."""
    stored = {b.name for b in plan.buffers if b.kind == "arena"}
    values = (v for node in network.nodes for v in node.outputs)
    return [v for v in values if v.name in stored and not network.is_output(v)]


def _with_outputs(network: NetworkDefinition, values: Sequence[Value]) -> NetworkDefinition:
    """The network with these outputs as well, under their own names."""
    for value in values:
        network.mark_output(value)
    return network


@contextmanager
def _cache_file(config: IBuilderConfig) -> Iterator[Path | None]:
    """The program's timings in a file for the time of a build; None where it has none."""
    cache = config.get_timing_cache()
    if cache is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tactix-timings-") as folder:
        path = Path(folder) / "timings.json"
        path.write_bytes(cache.content)
        yield path
        cache.content = path.read_bytes()
