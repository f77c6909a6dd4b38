"""Builder: walks the floors in order. Model to network, fused network, bids, choice, plan, engine."""

from __future__ import annotations

import os
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tactix
from tactix.config import BuilderConfig, BuilderFlag, Locked
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.device import Device
from tactix.contracts.graph import Node
from tactix.contracts.importer import GIVE, Importer, check_source
from tactix.contracts.launcher import LinkContext, Step
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import CompileContext, Tactic
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix.pipeline import shortfall
from tactix.pipeline.assembler import Assembler, stored
from tactix.pipeline.constraints import demands
from tactix.pipeline.mixtures import Attempt, Mixtures, NotLowered
from tactix.pipeline.profiles import ranges, with_unknown
from tactix.pipeline.settle import Settler, holds_objects
from tactix.pipeline.shortfall import Shortfall
from tactix.pipeline.stages import Parts, joined
from tactix.plan.compat import device_facts
from tactix.plan.demands import encoded
from tactix.plan.schema import Plan, Profile, Requirement
from tactix.plugins.identity import OWN
from tactix.plugins.session import Session
from tactix.plugins.unresolved import unresolved
from tactix.run.link import allocator_of, device_of, layer_keys
from tactix.select.bench import Bench
from tactix.select.choose import Choice
from tactix.select.compile import COMPILED, Toolchain, compiled, with_binary
from tactix.select.enumerate import Bids, Candidate, Terms, bid, estimate, no_tactic
from tactix.select.precision import (
    LOCKED,
    LOWER,
    Lowering,
    Pair,
    Precisions,
    Stays,
    Times,
    told,
    without_kernel,
)
from tactix.select.timing_cache import TimingCache, default_path
from tactix.words.dims import symbol_name
from tactix.words.error_recorder import ErrorRecorder, Recorded, recorded
from tactix.words.errors import (
    CompilerError,
    ConfigError,
    InvalidArgument,
    ModelImportError,
    TactixError,
    TimingCacheError,
    ToolchainError,
    punctuated,
)
from tactix.words.logger import Logger, Once, checked_logger
from tactix.words.progress import Quiet

if TYPE_CHECKING:
    from tactix.run.engine import Engine


@dataclass
class BuildState:
    """What one build carries from floor to floor.

    ``here``: whether what is built for runs here, to be measured. ``deadline``: when choosing ends,
    by the monotonic clock. ``logger``: tells each warning once in the build. ``compiling``: seconds
    that what plans need took to compile.
    """

    config: BuilderConfig
    device: Device
    context: CompileContext
    toolchain: Toolchain
    rules: Sequence[Rule]
    tactics: Sequence[Tactic]
    precisions: Precisions
    cache: TimingCache
    profiles: list[Profile]
    here: bool
    bench: Bench
    parts: Parts
    deadline: float
    logger: Logger
    compiling: list[float] = field(default_factory=list)

    @property
    def lowering(self) -> frozenset[str]:
        """Keys of the rules that lower precision."""
        return frozenset(r.key for r in self.rules if r.numerics in LOWER)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is measured: the budget is spent, or the build was stopped."""
        return self.config.progress_monitor.cancelled() or time.monotonic() > self.deadline

    def overrun(self, now: float) -> str:
        """What a build that is done has taken beyond its budget, in words; empty if nothing."""
        if not self.here or now <= self.deadline:
            return ""
        late = now - self.deadline
        compiling = min(late, sum(self.compiling))
        return (
            f"{late:.1f} s beyond the budget of {self.config.budget:g} s, "
            f"{compiling:.1f} s of them to compile what the plan needs"
        )


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
        return network

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig()

    @recorded
    def import_model(
        self,
        source: Any,
        enable: Iterable[str] = (),
        shapes: Mapping[str, Sequence[int | None]] | None = None,
    ) -> NetworkDefinition:
        """The network of a model: a path, bytes, or what an importer claims.

        ``enable``: packs whose converters may take operators that others provide. ``shapes``: of
        inputs whose rank the model does not tell, None for open sizes. Raises ModelImportError,
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
        with self._blaming(importer):
            importer.load(source, network, self.session.active_converters())
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

    def build(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Engine:
        """Plan and load. Raises what ``build_plan`` raises."""
        return self._load(self.build_plan(network, config), config is None or config.sign)

    def _load(self, plan: Plan, sign: bool = True) -> Engine:
        from tactix.run.runtime import Runtime

        return Runtime(self.logger, self.session, max_threads=plan.meta["threads"], sign=sign).load(
            plan
        )

    @recorded
    def build_plan(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Plan:
        """Fuse, select, assemble. Raises NetworkError, ConfigError, NoTacticError, CompilerError.

        Once its budget is spent, or its monitor says that it is cancelled, what is not known yet is
        chosen by estimate, and no more is compiled than the plan needs.
        """
        start = time.monotonic()
        config = config or BuilderConfig()
        config.check()
        self._enable(config)
        config, parts = joined(self.session, network, config)
        self._enable(config)
        verify(network, deep=BuilderFlag.DEBUG in config.flags)
        stage = self._stage(network, config, parts, start + config.budget)
        network, stage.rules = parts.network(network), parts.rules(stage.rules)
        with closing(stage.bench):
            plan = self._plan(network, stage)
        plan = replace(
            plan, ledger={**plan.ledger, shortfall.KEY: shortfall.of_plan(plan).to_json()}
        )
        plan = parts.plan(plan)
        stage.precisions.check()
        self._tell_precision(plan, stage)
        told = [Shortfall.read(plan.ledger).text, stage.overrun(time.monotonic())]
        if any(told):
            self.logger.warning("; ".join(filter(None, told)))
        try:
            stage.cache.save()
        except TimingCacheError as e:  # what was built is worth more
            self.logger.warning(str(e))
        seconds = time.monotonic() - start
        self.logger.info(
            f"built {network.name or 'network'}: {len(plan.steps)} steps, {seconds:.1f} s"
        )
        return plan

    def _enable(self, config: BuilderConfig) -> None:
        for pack in sorted(config.enabled):
            self.session.enable(pack)

    def _plan(
        self,
        network: NetworkDefinition,
        stage: BuildState,
        given: frozenset[str] = frozenset(),
    ) -> Plan:
        """The plan of a network, or of a body inside one; ``given``: symbols of the network around
        it.
        """
        complete = partial(self._complete, given=given)
        plan: Plan = stage.bench.final(self._tried(network, stage), complete, self._load)
        return replace(plan, meta={**plan.meta, **encoded(demands(network), plan.known)})

    def _complete(
        self,
        stage: BuildState,
        fused: NetworkDefinition,
        trace: Trace,
        bids: dict[Node, Bids],
        choice: Choice,
        given: frozenset[str],
    ) -> Plan:
        monitor = stage.config.progress_monitor
        values = [*fused.inputs, *(v for n in fused.nodes for v in n.outputs)]
        known = {n for v in values for d in v.spec.shape if (n := symbol_name(d))}
        quiet = replace(stage.config, progress_monitor=Quiet(monitor))
        body = replace(stage, profiles=[Profile("body", {})], config=quiet)
        inner = partial(self._plan, stage=body, given=given | known)
        settler = Settler(fused, trace, stage, bids)
        while True:
            try:
                return self._assemble(
                    fused, choice, stage, _ledger(bids, choice, trace, stage), inner, given
                )
            except CompilerError as e:
                if isinstance(e, ToolchainError) or not settler.drop_uncompilable(choice):
                    raise
                settler.fall_back()
                choice = settler.choice()

    def _tried(self, network: NetworkDefinition, stage: BuildState) -> list[Attempt]:
        """Where lower precision is allowed: with all nodes in it, none, or without those that it
        makes slower.
        """
        attempt = partial(self._attempt, network, stage)
        if isinstance(locked := stage.config.frozen, Locked):
            keeps = locked.enter()
            return [attempt(lambda name: LOCKED if keeps(name) else "")]
        stopped = stage.config.progress_monitor.cancelled
        return Mixtures(
            attempt,
            stage.lowering,
            stage.logger.warning,
            self._duel,
            stopped,
            lambda: stage.is_over,
        ).tried()

    def _duel(self, lowered: Attempt, wide: Attempt, found: Mapping[str, Pair]) -> dict[str, Times]:
        """Seconds of pairs of nodes, taken in turns; of those that are alike once."""
        measurer = Settler(wide.network, wide.trace, wide.stage, wide.bids).measurer

        def sides(pair: Pair) -> list[list[tuple[Bids, Candidate]]]:
            return [
                [(lowered.bids[n], c) for n, c in pair.lowered],
                [(wide.bids[n], c) for n, c in [pair.wide]],
            ]

        return {
            name: measurer.duel(*sides(pair)) or Times.apart(pair) for name, pair in found.items()
        }

    def _attempt(self, network: NetworkDefinition, stage: BuildState, stays: Stays) -> Attempt:
        """Raises NotLowered, and what ``build_plan`` raises."""
        monitor = stage.config.progress_monitor
        monitor.phase("fuse", 0)
        fused, trace = fuse(network, [stage.precisions.gated(r, stays) for r in stage.rules])
        verify(fused, deep=BuilderFlag.DEBUG in stage.config.flags)
        monitor.finish("fuse")
        stage = replace(
            stage, context=replace(stage.context, opt=with_unknown(fused, stage.context.opt))
        )
        settler = Settler(fused, trace, stage)
        with stage.parts.racing():
            settler.race()
            self._leave(settler)
            settler.fall_back()
        monitor.phase("choose", 0)
        choice = settler.choice()
        monitor.finish("choose")
        return Attempt(stage, fused, trace, settler.bids, choice)

    @staticmethod
    def _leave(settler: Settler) -> None:
        """Raises NotLowered if nodes without a kernel were lowered and can be left as they were."""
        stage = settler.stage
        if isinstance(stage.config.frozen, Locked) or stage.config.progress_monitor.cancelled():
            return
        whys = {n: without_kernel(b) for n, b in settler.bids.items()}
        lowering, fixed = Lowering(settler.trace, stage.lowering), stage.precisions.obeyed
        if lost := [x for n, why in whys.items() if why and (x := lowering.lost(n, why, fixed))]:
            raise NotLowered(lost)

    # -- stages -----------------------------------------------------------------------------------

    def _stage(
        self, network: NetworkDefinition, config: BuilderConfig, parts: Parts, deadline: float
    ) -> BuildState:
        device = device_of(self.session, config.device)
        if not config.target and (why := device.available()):
            raise ConfigError(
                f"device {device.key} is not here", why=why, do="Name a target to build without it"
            )
        profiles = ranges(network, config)
        properties = device.target(config.target) if config.target else device.properties()
        if isinstance(config.frozen, Locked):
            properties = config.frozen.device
        here = not device.available() and properties.features <= device.properties().features
        opt = {name: r[1] for name, r in profiles[0].dims.items()}
        context = CompileContext(properties, opt, config.thread_count(properties.cores))
        precisions = Precisions(config.numerics, config.layer_precisions)
        rules, tactics = self._ways(config, precisions.kinds, device.kind)
        tactics = self._of_sources(parts.tactics(tactics), config.tactic_sources)
        toolchain, cache = self._toolchain(device), _open_cache(config, self.logger.warning)
        logger = Once(self.logger)
        link = LinkContext(
            device, context.threads, self.session.layers.__getitem__, warn=logger.warning
        )
        allocator = allocator_of(self.session, device) if here else None
        bench = (device.bench or Bench)(
            link, self.session.launchers, allocator, self.session.strangers()
        )
        bench.trial_budget = config.trial_budget
        bench.least = {name: min(p.dims[name][0] for p in profiles) for name in profiles[0].dims}
        return BuildState(
            config,
            device,
            context,
            toolchain,
            rules,
            tactics,
            precisions,
            cache,
            profiles,
            here,
            bench,
            parts,
            deadline,
            logger,
        )

    def _ways(
        self, config: BuilderConfig, kinds: frozenset[str], device: str
    ) -> tuple[list[Rule], list[Tactic]]:
        """Rules and tactics that the configuration allows."""
        for text in unresolved(
            self.session.layers, self.session.active_rules(), self.session.active_tactics()
        ):
            self.logger.warning(text)
        rules = [
            r
            for r in self.session.active_rules()
            if r.numerics in kinds and r.device in ("", device)
        ]
        tactics = [t for t in self.session.active_tactics() if t.numerics in kinds]
        ways = {r.numerics for r in rules} | {t.numerics for t in tactics if t.device == device}
        for lower in sorted(LOWER & config.numerics - ways):
            self.logger.warning(
                f"{config.device} has no way to compute in {lower}: the flag changes nothing"
            )
        return rules, tactics

    def _of_sources(
        self, tactics: Sequence[Tactic], wanted: Collection[str] | None
    ) -> list[Tactic]:
        """Those of the families that are wanted; all for None. Raises ConfigError for a family that
        there is not.
        """
        known = {t.source for t in tactics}
        if unknown := set(wanted or ()) - known:
            why, cure = self.session.why_missing(OWN, "tactix_tactics")
            do = punctuated((f"There are: {', '.join(sorted(known))}", cure))
            raise ConfigError(f"no tactic source {min(unknown)!r}", why=why, do=do)
        return [t for t in tactics if wanted is None or t.source in wanted]

    def _tell_precision(self, plan: Plan, stage: BuildState) -> None:
        """Warn of a build in which nothing was lowered, though that was asked for."""
        asked = sorted(LOWER & stage.config.numerics & {r.numerics for r in stage.rules})
        found = [p.ledger.get("precision", {"lowered": [], "wide": {}}) for p in plan.nested()]
        if asked and not any(x["lowered"] for x in found):
            why = told(ChainMap(*(x["wide"] for x in found))) or "no layer of it can be"
            self.logger.warning(f"nothing is computed in {', '.join(asked)}: {why}")

    def _toolchain(self, device: Device) -> Toolchain:
        """Raises ConfigError if a language has no compiler, unless the reference could stand in on
        the device.
        """
        own = {
            key
            for key, launcher in self.session.launchers.items()
            if launcher.device == device.kind
        }
        found = Toolchain(c for c in self.session.active_compilers() if c.launcher in own)
        for language, why in found.missing.items():
            if language not in found.by_language and not device.host_memory:
                what = f"nothing can be compiled for {device.kind}"
                raise ConfigError(what, why=why, do="Or choose another device")
            if language not in found.by_language:
                self.logger.warning(
                    f"no compiler for {language}: {why}; what is written in it does not bid"
                )
        return found

    def _assemble(
        self,
        fused: NetworkDefinition,
        choice: Choice,
        stage: BuildState,
        ledger: dict[str, Any],
        inner: Callable[[Any], Plan],
        given: frozenset[str],
    ) -> Plan:
        monitor = stage.config.progress_monitor
        monitor.phase("assemble", 0)
        own = {
            k: found
            for k, found in self.session.launchers.items()
            if k not in stage.bench.strangers
        }
        draft = Assembler(
            fused,
            choice.candidates,
            partial(_reformat, stage),
            inner,
            own,
            stage.parts.constants(stored),
        ).run()
        binaries = self._compiled(draft.steps, stage)
        made_from = compiled((s.artifact for s in draft.steps), binaries, stage.toolchain)
        steps = [replace(s, artifact=with_binary(s.artifact, binaries)) for s in draft.steps]
        plan = Plan(
            fused.name,
            tuple(draft.inputs),
            tuple(draft.outputs),
            tuple(stage.profiles),
            tuple(draft.buffers),
            tuple(steps),
            given=given,
            ledger={**ledger, COMPILED: made_from},
            requirements=self._requirements(steps),
            blobs=dict(ChainMap(draft.blobs, *(p.blobs for s in steps for p in s.plans))),
            device={"key": stage.device.key, **device_facts(stage.context.device)},
            meta={
                "tactix": tactix.__version__,
                "threads": stage.context.threads,
                "max_aux_streams": stage.config.max_aux_streams,
                "references": self._referred(steps),
            },
        )
        monitor.finish("assemble")
        return plan

    @staticmethod
    def _compiled(steps: Sequence[Step], stage: BuildState) -> Mapping[str, Binary]:
        """Machine code of a plan's steps. Raises CompilerError."""
        texts = {s.artifact.code.digest for s in steps if isinstance(s.artifact.code, Source)}
        monitor = stage.config.progress_monitor
        monitor.phase("kernels", len(texts))
        start = time.monotonic()
        binaries = stage.toolchain.compile((s.artifact for s in steps), stage.context.device)
        stage.compiling.append(time.monotonic() - start)
        monitor.step("kernels", len(texts))
        monitor.finish("kernels")
        return binaries

    def _referred(self, steps: Sequence[Step]) -> dict[str, list[str]]:
        """Layers that references in place of host code would need, and the distribution of each
        with its version.
        """
        keys = sorted({k for s in steps for k in layer_keys(s.info.get("reference"))})
        return {k: [(p := self.session.layers.provider(k)).dist, p.version] for k in keys}

    def _requirements(self, steps: Sequence[Step]) -> tuple[Requirement, ...]:
        """Launchers and reference layers that the plan needs at run time, and who provides them."""
        artifacts = [s.artifact for s in steps]
        launchers = {a.launcher for a in artifacts}
        layers = {k for a in artifacts for k in layer_keys(a.params)}
        host = {a.launcher for a in artifacts if a.host_code}
        found = [(k, self.session.launchers.provider(k), k in host) for k in sorted(launchers)]
        found += [(k, self.session.layers.provider(k), True) for k in sorted(layers)]
        own = [
            Requirement(k, p.dist, p.version, p.digest, False, host_code)
            for k, p, host_code in found
        ]
        return tuple(
            dict.fromkeys((*own, *(r for s in steps for p in s.plans for r in p.requirements)))
        )


def _reformat(stage: BuildState, node: Node) -> Candidate:
    """The first candidate for a change of format or a copy, by estimate, so none of a stranger's."""
    objects = holds_objects(node)
    known = [
        t
        for t in stage.tactics
        if t.key not in stage.bench.strangers and (t.produces or not objects)
    ]
    offered = bid(node, known, stage.context, Terms(level=1, lacks=stage.toolchain.lacks))
    for c in offered.candidates:
        estimate(c)
    if not offered.candidates:
        raise no_tactic(offered, node, stage.context.device)
    return min(offered.candidates, key=lambda c: (c.tactic.fallback, *c.order))


def _open_cache(config: BuilderConfig, warn: Callable[[str], None]) -> TimingCache:
    """Where a file is named, whoever named it answers for what is in it."""
    where = config.timing_cache
    if isinstance(where, (str, Path)):
        return TimingCache(Path(where), warn=warn)
    return TimingCache(None if where is False else default_path(), private=True, warn=warn)


def _ledger(
    bids: Mapping[Node, Bids], choice: Choice, trace: Trace, stage: BuildState
) -> dict[str, Any]:
    """Every decision of the build, as JSON."""
    lowering = Lowering(trace, stage.lowering)
    times = {name: vars(t) for name, t in sorted(choice.duels.items())}
    precision = {"lowered": sorted(lowering.lowered), "wide": lowering.wide, "times": times}
    measured = stage.here and stage.config.builder_optimization_level > 0
    short = Shortfall.of(bids, choice, trace, len(lowering.wide) if stage.lowering else 0, measured)
    return {
        **({"precision": precision} if stage.lowering else {}),
        shortfall.KEY: short.to_json(),
        "nodes": {n.name: _node_row(n, bids[n], choice) for n in choice.candidates},
        "fusion": trace.to_json(),
        "rules": trace.counts,
        "predicted_seconds": choice.seconds,
        "timing_cache": {"hits": stage.cache.hits, "misses": stage.cache.misses},
        "opt": dict(stage.context.opt),
    }


def _node_row(n: Node, b: Bids, choice: Choice) -> dict[str, Any]:
    chosen, ties = choice.candidates[n], choice.ties.get(n, ())
    ranked = sorted(b.candidates, key=lambda c: c.order)
    rows = [
        _candidate_row(c, c is chosen) | ({"near_tie": True} if c.title in ties else {})
        for c in ranked
    ]
    rejections = [{"tactic": k, "reason": why} for k, why in b.rejections]
    return {"kind": n.kind, "origin": list(n.origin), "candidates": rows, "rejections": rejections}


def _candidate_row(c: Candidate, chosen: bool) -> dict[str, Any]:
    row = {"tactic": c.tactic.key, "variant": str(c.variant), "status": c.status, "chosen": chosen}
    if c.seconds != float("inf"):
        row |= {"seconds": c.seconds, "spread": round(c.spread, 4)}
    if c.error and c.error != float("inf"):
        row["error"] = c.error
    row |= {"id": c.variant.id, "digest": c.artifact.digest} if chosen else {}
    row |= {"crosses": True} if c.tactic.crosses else {}
    return row | ({"reason": c.reason} if c.reason else {})
