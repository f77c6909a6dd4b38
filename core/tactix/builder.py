"""Builder: walks the floors in order. Model to network, fused network, bids, choice, plan, engine."""

from __future__ import annotations

import os
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tactix
from tactix.assemble import Assembler
from tactix.config import BuilderConfig, BuilderFlag, MemoryPoolType
from tactix.contracts.device import Device
from tactix.contracts.graph import Node
from tactix.contracts.launcher import LinkContext, Step
from tactix.contracts.tactic import CompileContext, Tactic
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix.plan.compat import device_facts
from tactix.plan.schema import Plan, Profile, Requirement
from tactix.plugins.session import Session
from tactix.profiles import ranges, with_unknown
from tactix.run.link import allocator_of, layer_keys
from tactix.select.bench import Bench
from tactix.select.choose import Choice, Chooser
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Bids, Candidate, Terms, bid
from tactix.select.measure import Measurer, estimate
from tactix.select.timing_cache import TimingCache, default_path
from tactix.words.dims import symbol_name
from tactix.words.error_recorder import ErrorRecorder
from tactix.words.errors import BuildCancelled, ConfigError, ModelImportError, NoTacticError
from tactix.words.logger import Logger
from tactix.words.progress import Quiet

if TYPE_CHECKING:
    from tactix.run.engine import Engine


@dataclass
class Stage:
    """What one build carries from floor to floor. ``here``: whether what is built for runs here, to be measured."""

    config: BuilderConfig
    device: Device
    context: CompileContext
    toolchain: Toolchain
    tactics: Sequence[Tactic]
    cache: TimingCache
    profiles: list[Profile]
    here: bool


class Builder:
    """Makes networks, configurations and engines. ``session``: the plugins; by default all that are installed."""

    def __init__(
        self,
        logger: Logger | None = None,
        session: Session | None = None,
        error_recorder: ErrorRecorder | None = None,
    ) -> None:
        self.logger = logger or Logger()
        self.session = session or Session(door="build", logger=self.logger)
        self.error_recorder = error_recorder

    def create_network(self, name: str = "") -> NetworkDefinition:
        """An empty network over the session's layers."""
        return NetworkDefinition(self.session.layers, name)

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig()

    def import_model(self, source: Any) -> NetworkDefinition:
        """The network of a model: a path, bytes, or what an importer claims.

        Raises ModelImportError, UnsupportedOperator.
        """
        if isinstance(source, (str, Path)) and not os.path.isfile(source):
            raise ModelImportError("no such file", who=str(source))
        for importer in self.session.importers.values():
            if importer.claims(source):
                name = Path(source).stem if isinstance(source, (str, Path)) else ""
                network = self.create_network(name)
                importer.load(source, network, self.session.converters)
                return network
        known = ", ".join(i.format for i in self.session.importers.values()) or "none"
        who = str(source) if isinstance(source, (str, Path)) else type(source).__name__
        raise ModelImportError("no importer knows this model", who=who, why=f"formats with an importer: {known}")

    def build(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Engine:
        """Plan and load. Raises what ``build_plan`` raises."""
        from tactix.run.runtime import Runtime

        plan = self.build_plan(network, config)
        return Runtime(logger=self.logger, session=self.session, max_threads=plan.meta["threads"]).load(plan)

    def build_plan(self, network: NetworkDefinition, config: BuilderConfig | None = None) -> Plan:
        """Fuse, select, assemble. Raises NetworkError, ConfigError, NoTacticError, CompilerError, BuildCancelled."""
        from tactix.words.error_recorder import recording

        with recording(self):
            return self._build_plan(network, config or BuilderConfig())

    def _build_plan(self, network: NetworkDefinition, config: BuilderConfig) -> Plan:
        config.check()
        verify(network, deep=BuilderFlag.DEBUG in config.flags)
        for pack in sorted(config.enabled):
            self.session.enable(pack)
        start = time.monotonic()
        stage = self._stage(network, config)
        plan = self._plan(network, stage, start)
        stage.cache.save()
        self.logger.info(
            f"built {network.name or 'network'}: {len(plan.steps)} steps in {time.monotonic() - start:.1f} s"
        )
        return plan

    def _plan(
        self, network: NetworkDefinition, stage: Stage, start: float, given: frozenset[str] = frozenset()
    ) -> Plan:
        """The plan of a network, or of a body inside one; ``given``: symbols of the network around it."""
        monitor = stage.config.progress_monitor
        fused, trace = self._fuse(network, stage.config)
        context = replace(stage.context, opt=with_unknown(fused, stage.context.opt))
        stage = replace(stage, context=context)
        bids = self._bid(fused, stage)
        self._measure(bids, stage, start)
        monitor.phase("choose", 0)
        options = {n: bids[n].candidates for n in fused.nodes}
        choice = Chooser(fused.nodes, options, fused.outputs, stage.context.opt).run()
        monitor.finish("choose")
        values = [*fused.inputs, *(v for n in fused.nodes for v in n.outputs)]
        known = {n for v in values for d in v.spec.shape if (n := symbol_name(d))}
        quiet = replace(stage.config, progress_monitor=Quiet(monitor))
        body = replace(stage, profiles=[Profile("body", {})], config=quiet)
        inner = partial(self._plan, stage=body, start=start, given=given | known)
        return self._assemble(fused, choice, stage, _ledger(bids, choice, trace, stage), inner, given)

    # -- stages ----------------------------------------------------------------------------------------------------

    def _stage(self, network: NetworkDefinition, config: BuilderConfig) -> Stage:
        device = self.session.devices[config.device]
        if not config.target and (why := device.available()):
            do = "Name a target to build without it"
            raise ConfigError(f"device {config.device} is not here", why=why, do=do)
        profiles = ranges(network, config)
        properties = device.target(config.target) if config.target else device.properties()
        here = not device.available() and properties.features <= device.properties().features
        opt = {name: r[1] for name, r in profiles[0].dims.items()}
        context = CompileContext(properties, opt, config.thread_count(properties.cores))
        tactics = self.session.active_tactics()
        if config.tactic_sources is not None:
            if unknown := config.tactic_sources - {t.source for t in tactics}:
                known = sorted({t.source for t in tactics})
                raise ConfigError(f"no tactic source {sorted(unknown)[0]!r}", do=f"There are: {', '.join(known)}")
            tactics = [t for t in tactics if t.source in config.tactic_sources]
        own = {key for key, launcher in self.session.launchers.items() if launcher.device == device.kind}
        toolchain = Toolchain(c for c in self.session.compilers.values() if c.launcher in own)
        for language, why in toolchain.missing.items():
            if language not in toolchain.by_language:
                self.logger.warning(
                    f"no compiler for {language}: {why}; layers without another tactic run on the reference"
                )
        return Stage(config, device, context, toolchain, tactics, _open_cache(config), profiles, here)

    def _fuse(self, network: NetworkDefinition, config: BuilderConfig) -> tuple[NetworkDefinition, Trace]:
        rules = [r for r in self.session.active_rules() if r.numerics in config.numerics]
        config.progress_monitor.phase("fuse", 0)
        fused, trace = fuse(network, rules, config.progress_monitor.cancelled)
        if config.progress_monitor.cancelled():
            raise BuildCancelled("the build was cancelled before any tactic was known")
        verify(fused, deep=BuilderFlag.DEBUG in config.flags)
        config.progress_monitor.finish("fuse")
        return fused, trace

    def _bid(self, fused: NetworkDefinition, stage: Stage) -> dict[Node, Bids]:
        """Bids of every node; nodes with one signature share them."""
        config, monitor = stage.config, stage.config.progress_monitor
        limit = config.memory_pool_limits.get(MemoryPoolType.WORKSPACE)
        terms = Terms(config.builder_optimization_level, limit, stage.toolchain.lacks)
        nodes = fused.nodes
        monitor.phase("bid", len(nodes))
        out: dict[Node, Bids] = {}
        known = {d for v in fused.inputs for d in v.spec.shape}
        for i, n in enumerate(nodes):
            told = any(d not in known for v in n.outputs for d in v.spec.shape if symbol_name(d))
            known.update(d for v in n.outputs for d in v.spec.shape)
            told = told or bool(n.layer.bodies(n.attrs)) or any(v.spec.dtype.on_host for v in (*n.given, *n.outputs))
            tactics = [t for t in stage.tactics if t.produces] if told else stage.tactics
            out[n] = bid(n, tactics, stage.context, terms)
            if BuilderFlag.NO_FALLBACK in config.flags and all(c.tactic.fallback for c in out[n].candidates):
                reasons = "; ".join(f"{k}: {why}" for k, why in out[n].rejections) or "no other tactic implements it"
                raise NoTacticError("only the reference could run it", who=f"{n.name} ({n.kind})", why=reasons)
            monitor.step("bid", i + 1, n.name)
        monitor.finish("bid")
        return out

    def _measure(self, bids: Mapping[Node, Bids], stage: Stage, start: float) -> None:
        config, monitor = stage.config, stage.config.progress_monitor
        unique: dict[str, Bids] = {}
        for b in bids.values():
            unique.setdefault(b.signature, b).names.append(b.node.name)
        context = LinkContext(stage.device, stage.context.threads, self.session.layers.__getitem__)
        bench = Bench(context, self.session.launchers, allocator_of(self.session, stage.device) if stage.here else None)
        deadline = start + config.budget if stage.here else 0.0
        Measurer(
            bench, stage.toolchain, stage.cache, stage.context.device, stage.context.opt, stage.context.threads,
            config.frozen, config.builder_optimization_level, deadline, monitor, self.logger.warning,
            frozenset(stage.context.opt) - stage.profiles[0].dims.keys(),
        ).run(list(unique.values()))  # fmt: skip
        for b in bids.values():
            _copy_results(unique[b.signature], b)

    def _assemble(
        self, fused: NetworkDefinition, choice: Choice, stage: Stage, ledger: dict[str, Any],
        inner: Callable[[Any], Plan], given: frozenset[str],
    ) -> Plan:  # fmt: skip
        monitor = stage.config.progress_monitor
        monitor.phase("assemble", 0)
        reformats = _Reformats(stage)
        draft = Assembler(fused, choice.candidates, reformats.candidate, inner).run()
        binaries = stage.toolchain.compile((s.artifact for s in draft.steps), stage.context.device)
        steps = [replace(s, artifact=with_binary(s.artifact, binaries)) for s in draft.steps]
        plan = Plan(
            name=fused.name,
            inputs=tuple(draft.inputs),
            outputs=tuple(draft.outputs),
            profiles=tuple(stage.profiles),
            given=given,
            buffers=tuple(draft.buffers),
            steps=tuple(steps),
            blobs=dict(ChainMap(draft.blobs, *(p.blobs for s in steps for p in s.plans))),
            ledger=ledger,
            requirements=self._requirements(steps),
            device={"key": stage.config.device, **device_facts(stage.context.device)},
            meta={"tactix": tactix.__version__, "threads": stage.context.threads, "registry": self.session.digest},
        )
        monitor.finish("assemble")
        return plan

    def _requirements(self, steps: Sequence[Step]) -> tuple[Requirement, ...]:
        """Launchers and reference layers that the plan needs at run time, and who provides them."""
        artifacts = [s.artifact for s in steps]
        launchers = {a.launcher for a in artifacts}
        layers = {k for a in artifacts for k in layer_keys(a.params)}
        host = {a.launcher for a in artifacts if a.host_code}
        found = [(k, self.session.launchers.provider(k), k in host) for k in sorted(launchers)]
        found += [(k, self.session.layers.provider(k), True) for k in sorted(layers)]
        own = [Requirement(k, p.dist, p.version, p.digest, False, host_code) for k, p, host_code in found]
        return tuple(dict.fromkeys((*own, *(r for s in steps for p in s.plans for r in p.requirements))))


class _Reformats:
    """The first candidate for a change of format, by estimate."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def candidate(self, node: Node) -> Candidate:
        terms = Terms(level=1, lacks=self.stage.toolchain.lacks)
        offered = bid(node, self.stage.tactics, self.stage.context, terms).candidates
        for c in offered:
            estimate(c)
        return min(offered, key=lambda c: (c.tactic.fallback, *c.order))


def _copy_results(source: Bids, target: Bids) -> None:
    for a, b in zip(source.candidates, target.candidates, strict=True):
        b.seconds, b.spread, b.error, b.status, b.reason = a.seconds, a.spread, a.error, a.status, a.reason


def _open_cache(config: BuilderConfig) -> TimingCache:
    where = config.timing_cache
    if where is False:
        return TimingCache()
    return TimingCache(default_path() if where is None or where is True else Path(where))


def _ledger(bids: Mapping[Node, Bids], choice: Choice, trace: Trace, stage: Stage) -> dict[str, Any]:
    """Every decision of the build, as JSON."""
    nodes = {}
    for n, b in bids.items():
        chosen = choice.candidates[n]
        rows = [_candidate_row(c, c is chosen) for c in sorted(b.candidates, key=lambda c: c.order)]
        nodes[n.name] = {
            "kind": n.kind,
            "origin": list(n.origin),
            "candidates": rows,
            "rejections": [{"tactic": k, "reason": why} for k, why in b.rejections],
        }
    return {
        "nodes": nodes,
        "fusion": trace.to_json(),
        "rules": trace.counts,
        "near_ties": [
            {"node": a, "chosen": b, "other": c}
            for a, b, c in choice.near_ties({n: b.candidates for n, b in bids.items()})
        ],
        "predicted_seconds": choice.seconds,
        "starts": choice.starts,
        "timing_cache": {"hits": stage.cache.hits, "misses": stage.cache.misses},
        "opt": dict(stage.context.opt),
    }


def _candidate_row(c: Candidate, chosen: bool) -> dict[str, Any]:
    finite = c.seconds != float("inf")
    row = {"tactic": c.tactic.key, "variant": str(c.variant), "status": c.status, "chosen": chosen}
    if finite:
        row |= {"seconds": c.seconds, "spread": round(c.spread, 4)}
    if c.error and c.error != float("inf"):
        row["error"] = c.error
    return row | ({"reason": c.reason} if c.reason else {})
