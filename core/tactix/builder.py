"""Builder: walks the floors. Model to network, fused network, bids, choice, plan, engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Dim
from tactix.base.error_recorder import ErrorRecorder, Recorded, recorded
from tactix.base.errors import (
    InvalidArgument,
    ModelImportError,
    TactixError,
    punctuated,
)
from tactix.base.garbage import rarely_collected
from tactix.base.logger import LogEvent, Logger, Severity, checked_logger
from tactix.base.threads import threads_needed
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.importer import GIVE, Converter, Importer, check_source
from tactix.network.definition import NetworkDefinition, weight_bytes
from tactix.pipeline.assemble import assemble
from tactix.pipeline.by_profile import by_profile
from tactix.pipeline.constraints import demands
from tactix.pipeline.finish import finish
from tactix.pipeline.prepare import Prepared, begin, prepare
from tactix.pipeline.select import select
from tactix.pipeline.state import BuildState
from tactix.plan import states
from tactix.plan.demands import encoded
from tactix.plan.schema import Plan
from tactix.plugins.names import OWN
from tactix.plugins.session import Session
from tactix.run.memory_log import memory_told

if TYPE_CHECKING:
    from tactix.run.engine import Engine


class Builder(Recorded):
    """Makes networks, configurations and engines. ``session``: the plugins; by default all that are
    installed.

    Raises InvalidArgument for a logger that is none.
    """

    def __init__(
        self,
        logger: Logger | None = None,
        session: Session | None = None,
        error_recorder: ErrorRecorder | None = None,
    ) -> None:
        self.logger = checked_logger(logger)
        self.session = session or Session(group="build", logger=self.logger)
        self.error_recorder = error_recorder

    def create_network(self, name: str = "") -> NetworkDefinition:
        """An empty network over the session's layers, which reports to the builder's error
        recorder.

        Raises InvalidArgument for a name that is no text.
        """
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a network's name is {name!r}", do="Give a text; options belong to BuilderConfig"
            )
        network = NetworkDefinition(self.session.layers, name)
        network.inherit_recorder(self)
        network.presented = self.session.presented
        return network

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig()

    def begin(self, config: BuilderConfig) -> None:
        """Let compilers begin, beside the caller, what a build by this configuration takes whatever
        the model is: for who has the configuration before the network. ``build_plan`` does the same
        at its start.
        """
        begin(self.session, config)

    @recorded
    @rarely_collected
    def import_model(
        self,
        source: Any,
        enable: Iterable[str] = (),
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        converters: Sequence[Converter] = (),
        reshaped: Mapping[str, Sequence[Dim | str | None]] | None = None,
    ) -> NetworkDefinition:
        """The network of a model: a path, bytes, or what an importer claims.

        ``enable``: packs whose converters may take operators that others provide. ``shapes``: of
        inputs whose rank the model does not tell, and of vectors that may be shapes; None for open
        sizes. ``converters``: taken before those of packs. ``reshaped``: shapes of inputs in
        place of the model's, as ``NetworkDefinition`` has them. Raises ModelImportError,
        UnsupportedOperator, ConfigError for a pack that is not there.
        """
        for pack in sorted(enable):
            self.session.enable(pack)
        check_source(source)
        file = isinstance(source, (str, Path))
        if (importer := self.importer_of(source)) is None:
            who = str(source) if file else type(source).__name__
            raise self._unclaimed(who)
        name = os.fsencode(Path(source).stem).decode(errors="replace") if file else ""
        network = self.create_network(name)
        network.wanted = {k: tuple(s) for k, s in (shapes or {}).items()}
        network.reshaped = {k: tuple(s) for k, s in (reshaped or {}).items()}
        with self._blaming(importer):
            importer.load(source, network, [*converters, *self.session.active_converters()])
        for what, why in network.remarks.items():
            self.logger.warning(f"{what}: {why}")
        if self.logger.hears(Severity.INFO):
            self.logger.tell(Severity.INFO, _imported(network))
        return network

    def _unclaimed(self, who: str) -> ModelImportError:
        known = ", ".join(i.format for i in self.session.active_importers())
        why, do = f"formats with an importer: {known or 'none'}", GIVE
        if not known:
            reason, do = self.session.why_missing(OWN, "tactix_importers")
            why = punctuated((why, reason), "; ")
        return ModelImportError("no importer knows this model", who=who, why=why, do=do)

    def importer_of(self, source: Any) -> Importer | None:
        """The first importer in use that claims a model; None if there is none.

        Raises ModelImportError for a pack's importer that fails.
        """
        for importer in self.session.active_importers():
            with self._blaming(importer):
                if importer.claims(source):
                    return importer
        return None

    @contextmanager
    def _blaming(self, importer: Importer) -> Iterator[None]:
        """Errors of a pack's importer that are not typed name the pack."""
        try:
            yield
        except TactixError:
            raise
        except Exception as e:
            entry = self.session.importers.entry(importer.key)
            if entry.namespace == OWN:
                raise
            who, why = f"importer {entry.key} of {entry.source}", f"{type(e).__name__}: {e}"
            do = f"Report that to its author, or leave it out: TACTIX_DISABLE={entry.namespace}"
            raise ModelImportError("the importer failed", who=who, why=why, do=do) from e

    @recorded
    def build(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Engine:
        """Plan and load. The engine reports errors to the builder's recorder. Raises what
        ``build_plan`` raises.
        """
        return self._load(self.build_plan(network, config), config is None or config.sign)

    def _load(self, plan: Plan, sign: bool = True) -> Engine:
        from tactix.run.runtime import Runtime

        runtime = Runtime(
            self.logger,
            self.session,
            max_threads=plan.meta["threads"],
            sign=sign,
            error_recorder=self.error_recorder,
        )
        return runtime.attempt(plan)

    @recorded
    @threads_needed()
    @rarely_collected
    def build_plan(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Plan:
        """Fuse, select, assemble. Raises NetworkError, ConfigError, NoTacticError, CompilerError,
        AllocationError.

        Once its budget is spent, or its monitor says that it is cancelled, what is not known yet is
        chosen by estimate, and no more is compiled than the plan needs.
        """
        start = time.monotonic()
        prepared = prepare(
            self.session, network, config or BuilderConfig(), self.logger, self._load
        )
        state, name = prepared.state, network.name or "network"
        with memory_told(self.logger, f"build of {name}", state.device if state.here else None):
            with closing(state.bench):
                if state.has_no_times:
                    state.bench.begin()
                plan = _whole(prepared)
            plan = finish(plan, state)
        seconds = time.monotonic() - start
        text = f"built {name}: {len(plan.steps)} steps, {seconds:.1f} s"
        facts = {"network": network.name, "steps": len(plan.steps), "seconds": seconds}
        self.logger.tell(Severity.INFO, LogEvent("built", text, facts))
        return plan


def _imported(network: NetworkDefinition) -> LogEvent:
    count, size = len(network.nodes), weight_bytes(network)
    text = f"imported {network.name or 'a model'}: {count} nodes, {size} bytes of weights"
    return LogEvent("imported", text, {"network": network.name, "nodes": count, "bytes": size})


def _whole(prepared: Prepared) -> Plan:
    """The plan of the model's network, with kernels for each profile where that is asked for."""
    network, state = prepared.network, prepared.state
    at = partial(planned, network, given=network.told)
    if BuilderFlag.PROFILE_KERNELS in state.config.flags and len(state.profiles) > 1:
        return by_profile(network, state, at)
    return at(state)


def planned(
    network: NetworkDefinition, state: BuildState, given: frozenset[str] = frozenset()
) -> Plan:
    """The plan of a network, or of a body inside one; ``given``: symbols of the one around it, or
    that the caller tells.
    """

    complete = partial(assemble, planner=planned, given=given)
    plan: Plan = state.bench.fastest(select(network, state), complete, state.load)
    more = {**encoded(demands(network), plan.known), **states.encoded(network.states)}
    return replace(plan, meta={**plan.meta, **more})
