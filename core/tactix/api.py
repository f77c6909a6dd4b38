"""The short way: build, load, load_or_build."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import reprlib
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tactix.base.errors import (
    ConfigError,
    InvalidArgument,
    PlanCompatibilityError,
    PlanFormatError,
    UntrustedPlan,
    punctuated,
)
from tactix.base.spelling import did_you_mean
from tactix.config import NAMED, BuilderConfig, OptimizationProfile
from tactix.contracts.calibrator import Calibration
from tactix.contracts.importer import check_source
from tactix.contracts.trust import OnUntrusted
from tactix.plan import container

if TYPE_CHECKING:
    from tactix.base.logger import Logger
    from tactix.builder import Builder
    from tactix.network.definition import NetworkDefinition
    from tactix.plan.schema import Plan
    from tactix.plugins.session import Session
    from tactix.run.engine import Engine
    from tactix.run.replicated_engine import ReplicatedEngine
    from tactix.run.runtime import Runtime

BUILT_FROM = "built_from"
"""In ``Plan.meta``: the digest of all that a plan in the cache of ``load_or_build`` was made of."""

Range = tuple[int, ...] | tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def configure(
    config: BuilderConfig | None = None,
    *,
    shapes: dict[str, Range] | None = None,
    enable: Iterable[str] = (),
    progress: Any = None,
    level: int | None = None,
    precision: str = "fp32",
    **fields: Any,
) -> BuilderConfig:
    """A configuration from keywords: fields of BuilderConfig, and ``shapes`` (opt, or (min, opt,
    max), by input name).

    ``precision``: ``tf32``, ``fp16``, ``bf16``, ``int8`` or ``fp8`` sets the flag of that name.
    ``calibration`` may be samples alone, as ``Calibration`` takes them. Raises
    ConfigError for a keyword that is none.
    """
    out = dataclasses.replace(config) if config else BuilderConfig()
    own = {"hardware_compatibility_level", *(f.name for f in dataclasses.fields(BuilderConfig))}
    known = sorted(own | {"shapes", "enable", "progress", "level", "precision"})
    for name, value in fields.items():
        if name not in known:
            raise ConfigError(f"no build option {name!r}", do=_spelling(name, known))
        setattr(out, name, _calibration(value) if name == "calibration" else value)
    if level is not None:
        out.builder_optimization_level = level
    if progress is not None:
        out.progress_monitor = progress
    out.check_types()
    if precision not in ("fp32", *(f.value for f in NAMED)):
        do = "Choose fp32, tf32, fp16, bf16, int8 or fp8"
        raise ConfigError(f"no precision {precision!r}", do=do)
    out.flags = out.flags | {f for f in NAMED if f.value == precision}
    out.check()
    if shapes:
        out.profiles = [*out.profiles, _profile(shapes)]
    out.enabled = {*out.enabled, *([enable] if isinstance(enable, str) else enable)}
    return out


def _calibration(given: Any) -> Calibration | None:
    """Samples alone are a calibration by default."""
    return given if given is None or isinstance(given, Calibration) else Calibration(given)


def _spelling(name: str, known: Sequence[str]) -> str:
    """What may have been meant: a precision that was given as a flag, a name that is near, or any
    of all.
    """
    if any(f.value == name for f in NAMED):
        return f"Write precision={name!r}"
    return did_you_mean(name, known, f"There are: {', '.join(known)}")


def _profile(shapes: dict[str, Range]) -> OptimizationProfile:
    profile = OptimizationProfile()
    if not isinstance(shapes, dict):
        raise ConfigError(
            f"shapes is {shapes!r}", do='Give them by input name, as in {"x": (1, 3, 224, 224)}'
        )
    for name, r in shapes.items():
        rows: Any = (
            r
            if isinstance(r, (tuple, list)) and r and isinstance(r[0], (tuple, list))
            else (r, r, r)
        )
        if len(rows) != 3:
            raise ConfigError(f"{len(rows)} shapes of {name!r}", do="Give one, or (min, opt, max)")
        profile.set_shape(name, *rows)
    return profile


def build(
    model: Any,
    *,
    config: BuilderConfig | None = None,
    session: Session | None = None,
    logger: Logger | None = None,
    **options: Any,
) -> Engine:
    """An engine for a model: a path, bytes, or an object that an importer knows. Options: see
    ``configure``.

    Raises ModelImportError, UnsupportedOperator, NoTacticError, CompilerError, ConfigError.
    """
    from tactix.builder import Builder

    builder = Builder(logger, session)
    settings = configure(config, **options)
    return builder.build(_imported(builder, model, settings), settings)


def _imported(builder: Builder, model: Any, settings: BuilderConfig) -> NetworkDefinition:
    settings.progress_monitor.phase("import", 0)
    builder.begin(settings)
    network = builder.import_model(model, settings.enabled, settings.input_shapes)
    settings.progress_monitor.finish("import")
    return network


@overload
def load(
    plan: str | Path | bytes, *, verify: bool | None = None, devices: str = "", **options: Any
) -> Engine: ...


@overload
def load(
    plan: str | Path | bytes,
    *,
    verify: bool | None = None,
    devices: list[str] | tuple[str, ...],
    **options: Any,
) -> ReplicatedEngine: ...


def load(
    plan: str | Path | bytes,
    *,
    verify: bool | None = None,
    devices: Sequence[str] = "",
    **options: Any,
) -> Engine | ReplicatedEngine:
    """An engine from a plan file or its bytes. Options: those of ``Runtime``; ``verify``: see
    ``deserialize`` there.

    ``devices``: several of one kind, as ``["cuda:0", "cuda:1"]``, or the same in a text with
    commas, or ``"all"``, for a replica on each.

    Raises PlanFormatError, PlanCompatibilityError, UntrustedPlan, PluginError.
    """
    from tactix.run.runtime import Runtime

    runtime = Runtime(**options)
    runtime.devices = devices  # type: ignore[assignment]  # the setter takes any names
    return runtime.deserialize(plan, verify=verify)


def load_or_build(
    model: str | Path,
    *,
    cache: str | Path,
    config: BuilderConfig | None = None,
    session: Session | None = None,
    logger: Logger | None = None,
    on_untrusted: str = "",
    devices: Sequence[str] = "",
    **options: Any,
) -> Engine:
    """The engine of a model file, from ``cache`` (a folder) if it was built before with the same
    options.

    A digest of the content of the model and of the files that its weights lie in, of the options
    and of the version of tactix is in the plan, and the file is named after it. A cached plan that
    is damaged, of something else, cannot run here, or that is not trusted, whether it brings code
    or not, is built again; the last is taken with ``on_untrusted="allow"``. A plan that cannot be
    kept in the end costs a warning. ``devices``: as of ``load``, which are those that it runs on;
    builds measure on the first. Raises as ``build``, and OSError for a folder that takes no files.
    """
    from tactix.base.logger import checked_logger
    from tactix.builder import Builder
    from tactix.plugins.session import Session
    from tactix.run.runtime import Runtime

    for what, path in (("cache", cache), ("model", model)):
        if not (isinstance(path, (str, Path)) and os.fspath(path)):
            told = f"the {what} is {reprlib.repr(path)}"
            raise InvalidArgument(told, do="Give paths of a file and a folder")
    check_source(model)
    logger = checked_logger(logger)
    session, settings = (
        session or Session(group="build", logger=logger),
        configure(config, **options),
    )
    digest = _digest(model, settings, session)
    path = Path(cache) / f"{Path(model).stem}-{digest[:16]}.plan"
    runtime = Runtime(
        logger, session, max_threads=settings.threads, sign=settings.sign, on_untrusted=on_untrusted
    )
    runtime.devices = devices  # type: ignore[assignment]  # the setter takes any names
    if path.exists():
        try:
            return runtime.attempt(_cached(path, digest, runtime), path)
        except (PlanCompatibilityError, PlanFormatError, UntrustedPlan) as e:
            do = e.do if isinstance(e, UntrustedPlan) else "The new plan takes its place"
            logger.warning(punctuated((f"{path} is built again: {e.what}", do)))
    path.parent.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(
        dir=path.parent
    ).close()  # a folder that takes no files is better known before the build
    builder = Builder(logger, session)
    plan = builder.build_plan(_imported(builder, model, settings), settings)
    runtime.max_threads = plan.meta["threads"]
    engine = runtime.load(dataclasses.replace(plan, meta={**plan.meta, BUILT_FROM: digest}))
    try:
        engine.save(path)
    except OSError as e:  # what was built is worth more
        told = f"{path} is not kept, so that it will be built again: {e}"
        logger.warning(punctuated((told, "Give a folder that takes the file as `cache`")))
    return engine


def _cached(path: Path, digest: str, runtime: Runtime) -> Plan:
    """The plan of a cache, if it was built from what has this digest.

    Raises PlanFormatError, UntrustedPlan, OSError.
    """
    plan = container.load(path, admit=runtime.session.trusted_by)
    assert plan.seal is not None
    if not runtime.session.trusted_by(plan.seal) and runtime.on_untrusted is not OnUntrusted.ALLOW:
        do = "on_untrusted='allow' takes it as it is"
        raise UntrustedPlan("the plan is not trusted", who=str(path), do=do)
    if plan.meta.get(BUILT_FROM) != digest:
        raise PlanFormatError("it was built from something else", who=str(path))
    return plan


def _digest(model: str | Path, config: BuilderConfig, session: Session) -> str:
    """sha256 of all that a plan is made of, but for packs."""
    import tactix

    said = {
        f.name: getattr(config, f.name)
        for f in dataclasses.fields(config)
        if f.name not in ("progress_monitor", "workers")
    }
    said |= {name: sorted(map(str, v)) for name, v in said.items() if isinstance(v, set)}
    out = hashlib.sha256(repr((tactix.__version__, said)).encode())
    files = [model, config.frozen] if isinstance(config.frozen, (str, Path)) else [model]
    files += [] if config.calibration is None else config.calibration.files()
    files += [f for i in session.active_importers() if i.claims(model) for f in i.files(model)]
    for file in files:
        with open(file, "rb") as f:
            out.update(hashlib.file_digest(f, "sha256").digest())
    return out.hexdigest()
