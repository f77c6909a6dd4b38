"""The first step of a build: from a configuration to what the build is made by."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tactix.base.errors import ConfigError, TactixError, punctuated
from tactix.base.logger import Logger, Once
from tactix.config import BuilderConfig, BuilderFlag, Locked
from tactix.contracts.device import Device, DeviceProperties
from tactix.contracts.launcher import LinkContext
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import CompileContext, Tactic
from tactix.network.definition import NetworkDefinition, weight_bytes
from tactix.network.verify import verify
from tactix.pipeline.measuring import bench_of, toolchain_of
from tactix.pipeline.profiles import ranges
from tactix.pipeline.stages import joined
from tactix.pipeline.state import BuildState
from tactix.plan.schema import Plan, Profile
from tactix.plugins.names import OWN
from tactix.plugins.session import Session
from tactix.run.engine import Engine
from tactix.run.link import device_of
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain
from tactix.select.precision import LOWER, REASSOCIATES, Precisions
from tactix.select.timing_cache import TimingCache, default_path


@dataclass(frozen=True)
class Prepared:
    """What is built, as the build's stages have it, and what by."""

    network: NetworkDefinition
    state: BuildState


def prepare(
    session: Session,
    network: NetworkDefinition,
    config: BuilderConfig,
    logger: Logger,
    load: Callable[[Plan], Engine],
) -> Prepared:
    """Check the configuration and the network, and gather what takes part in the build.

    Raises ConfigError, NetworkError, TimingCacheError, and what the stages' ``settings`` raise.
    """
    start = time.monotonic()
    config.check()
    _enable(session, config)
    config, parts = joined(session, network, config)
    _enable(session, config)
    verify(network, deep=BuilderFlag.DEBUG in config.flags)
    _call_outputs(network)
    aim = _aim(session, config)
    profiles = ranges(network, config)
    opt = {name: sizes[1] for name, sizes in profiles[0].dims.items()}
    context = CompileContext(aim.properties, opt, config.thread_count(aim.properties.cores))
    wishes = (config.layer_precisions, config.preferred_precisions)
    precisions, once = Precisions(config.numerics, *wishes), Once(logger)
    toolchain = _toolchain(session, aim.device, config, logger)
    toolchain.begin(aim.properties)
    rules, tactics = _ways(session, config, precisions.kinds, aim.device.kind, logger)
    linked = LinkContext(aim.device, context.threads, session.layers.__getitem__, warn=once.warning)
    state = BuildState(
        session=session,
        load=load,
        config=config,
        device=aim.device,
        context=context,
        toolchain=toolchain,
        rules=parts.rules(rules),
        tactics=_of_sources(session, parts.tactics(tactics), config.tactic_sources),
        precisions=precisions,
        cache=_open_cache(config, logger.warning),
        profiles=profiles,
        here=aim.here,
        bench=_bench(session, aim, config, profiles, linked, weight_bytes(network)),
        parts=parts,
        deadline=start + config.budget,
        logger=once,
    )
    return Prepared(parts.network(network), state)


def begin(session: Session, config: BuilderConfig) -> None:
    """Let compilers begin what a build by this configuration takes, whatever the network is. What
    is wrong with it ``prepare`` tells.
    """
    with suppress(TactixError):
        aim = _aim(session, config)
        toolchain_of(session, aim.device, config.builder_optimization_level).begin(aim.properties)


def _call_outputs(network: NetworkDefinition) -> None:
    """Outputs of a network that was made by hand are the tensors that it has names for."""
    for name, v in zip(network.output_names, network.outputs, strict=True):
        if not v.called:
            network.call(v, name)


def _enable(session: Session, config: BuilderConfig) -> None:
    for pack in sorted(config.enabled):
        session.enable(pack)


@dataclass(frozen=True)
class _Aim:
    """What is built for. ``properties``: of the device that plans are for, which may be another
    than the one here; ``here``: whether the one here can run them.
    """

    device: Device
    properties: DeviceProperties
    here: bool


def _aim(session: Session, config: BuilderConfig) -> _Aim:
    """Ask the device once whether it is here and what it is.

    Raises ConfigError for one that is not here, unless a target stands for it.
    """
    device = device_of(session, config.device)
    if device.ordinal:
        what = f"builds measure on the first device, not on {device.label}"
        raise ConfigError(what, do=f"Build for {device.kind!r}; any such device runs the plan")
    why = device.available()
    if why and not config.target:
        what = f"device {device.key} is not here"
        raise ConfigError(what, why=why, do="Name a target to build without it")
    present = None if why else device.properties()
    if isinstance(config.frozen, Locked):
        properties = config.frozen.device
    elif config.target or present is None:
        properties = device.target(config.target)
    else:
        properties = present
    return _Aim(device, properties, present is not None and properties.features <= present.features)


def _ways(
    session: Session, config: BuilderConfig, kinds: frozenset[str], device: str, logger: Logger
) -> tuple[list[Rule], list[Tactic]]:
    """Rules and tactics that the configuration allows, and rules that tell of what it does not."""
    for text in session.unresolved():
        logger.warning(punctuated((text, "Report it to the author of the pack")))
    active = [r for r in session.active_rules() if r.device in ("", device)]
    available = session.active_tactics()
    rules = [r for r in active if r.numerics in {*kinds, REASSOCIATES}]
    tactics = [t for t in available if t.numerics in kinds]
    has = {r.numerics for r in active} | {t.numerics for t in available if t.device == device}
    for lower in sorted(LOWER & config.numerics - has):
        others = " or ".join(sorted(BuilderFlag(name).name for name in LOWER & has))
        cure = f"there are some for {others}: set that flag" if others else "leave that flag out"
        logger.warning(
            f"{config.device} has no kernels that compute float32 layers in {lower}, which stay "
            f"float32; {cure}"
        )
    return rules, tactics


def _of_sources(
    session: Session, tactics: Sequence[Tactic], wanted: Collection[str] | None
) -> list[Tactic]:
    """Those of the families that are wanted; all for None. Raises ConfigError for a family that
    there is not.
    """
    known = {t.source for t in tactics}
    if unknown := set(wanted or ()) - known:
        why, cure = session.why_missing(OWN, "tactix_tactics")
        do = punctuated((f"There are: {', '.join(sorted(known))}", cure))
        raise ConfigError(f"no tactic source {min(unknown)!r}", why=why, do=do)
    return [t for t in tactics if wanted is None or t.source in wanted]


def _toolchain(
    session: Session, device: Device, config: BuilderConfig, logger: Logger
) -> Toolchain:
    """Raises ConfigError if a language has no compiler, unless the reference could stand in on
    the device.
    """
    found = toolchain_of(session, device, config.builder_optimization_level)
    for language, why in found.missing.items():
        if language not in found.by_language and not device.host_memory:
            what = f"nothing can be compiled for {device.kind}"
            raise ConfigError(what, why=why, do="Or choose another device")
        if language not in found.by_language:
            logger.warning(f"no compiler for {language}: {why}; what is written in it does not bid")
    return found


def _bench(
    session: Session,
    aim: _Aim,
    config: BuilderConfig,
    profiles: Sequence[Profile],
    linked: LinkContext,
    weights: int,
) -> Bench:
    """What measures candidates in one build."""
    made = bench_of(session, linked, aim.here)
    made.apart, made.trial_budget, made.weights = True, config.trial_budget, weights
    made.least = {name: min(p.dims[name][0] for p in profiles) for name in profiles[0].dims}
    return made


def _open_cache(config: BuilderConfig, warn: Callable[[str], None]) -> TimingCache:
    """Where a file is named, whoever named it answers for what is in it."""
    where = config.timing_cache
    if isinstance(where, (str, Path)):
        return TimingCache(Path(where), warn=warn)
    return TimingCache(None if where is False else default_path(), private=True, warn=warn)
