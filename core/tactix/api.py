"""The short way: build, load, load_or_build."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.config import PRECISIONS, BuilderConfig, OptimizationProfile
from tactix.words.errors import ConfigError, UntrustedPlan

if TYPE_CHECKING:
    from tactix.plugins.session import Session
    from tactix.run.engine import Engine
    from tactix.words.logger import Logger

Range = tuple[int, ...] | tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def configure(
    config: BuilderConfig | None = None, *, shapes: dict[str, Range] | None = None, enable: Iterable[str] = (),
    progress: Any = None, level: int | None = None, precision: str = "fp32", **fields: Any,
) -> BuilderConfig:  # fmt: skip
    """A configuration from keywords: fields of BuilderConfig, and ``shapes`` (opt, or (min, opt, max), by input name).

    ``precision``: ``tf32``, ``fp16`` or ``bf16`` sets the flag of that name. Raises ConfigError for a keyword that is
    none.
    """
    out = dataclasses.replace(config) if config else BuilderConfig()
    known = {"hardware_compatibility_level", *(f.name for f in dataclasses.fields(BuilderConfig))}
    for name, value in fields.items():
        if name not in known:
            raise ConfigError(f"no build option {name!r}", do=f"There are: {', '.join(sorted(known))}")
        setattr(out, name, value)
    if level is not None:
        out.builder_optimization_level = level
    if precision not in ("fp32", *(f.value for f in PRECISIONS)):
        raise ConfigError(f"no precision {precision!r}", do="Choose fp32, tf32, fp16 or bf16")
    out.flags = out.flags | {f for f in PRECISIONS if f.value == precision}
    if progress is not None:
        out.progress_monitor = progress
    if shapes:
        out.profiles = [*out.profiles, _profile(shapes)]
    out.enabled = {*out.enabled, *enable}
    return out


def _profile(shapes: dict[str, Range]) -> OptimizationProfile:
    profile = OptimizationProfile()
    for name, r in shapes.items():
        rows = r if r and isinstance(r[0], tuple) else (r, r, r)
        profile.set_shape(name, *rows)  # type: ignore[arg-type]
    return profile


def build(
    model: Any, *, config: BuilderConfig | None = None, session: Session | None = None, logger: Logger | None = None,
    **options: Any,
) -> Engine:  # fmt: skip
    """An engine for a model: a path, bytes, or an object that an importer knows. Options: see ``configure``.

    Raises ModelImportError, UnsupportedOperator, NoTacticError, CompilerError, ConfigError.
    """
    from tactix.builder import Builder

    builder = Builder(logger, session)
    settings = configure(config, **options)
    settings.progress_monitor.phase("import", 0)
    network = builder.import_model(model)
    settings.progress_monitor.finish("import")
    return builder.build(network, settings)


def load(plan: str | Path | bytes, *, verify: bool | None = None, **options: Any) -> Engine:
    """An engine from a plan file or its bytes. Options: those of ``Runtime``; ``verify``: see ``deserialize`` there.

    Raises PlanFormatError, PlanCompatibilityError, UntrustedPlan, PluginError.
    """
    from tactix.run.runtime import Runtime

    return Runtime(**options).deserialize(plan, verify=verify)


def load_or_build(model: str | Path, *, cache: str | Path, **options: Any) -> Engine:
    """The engine of a model file, from ``cache`` (a folder) if it was built before with the same options.

    The file name holds a digest of the model's content, the options and the version of tactix. A cached plan that
    nobody vouches for is built again.
    """
    import tactix
    from tactix.words.logger import Logger

    digest = hashlib.sha256(Path(model).read_bytes())
    shown = {k: v for k, v in sorted(options.items()) if k not in ("progress", "logger", "session", "config")}
    digest.update(repr((tactix.__version__, shown, options.get("config"))).encode())
    lock = options.get("frozen")
    digest.update(Path(lock).read_bytes() if isinstance(lock, (str, Path)) else b"")
    path = Path(cache) / f"{Path(model).stem}-{digest.hexdigest()[:16]}.plan"
    session, logger = options.get("session"), options.get("logger")
    if path.exists():
        try:
            return load(path, session=session, logger=logger, references=False)
        except UntrustedPlan as e:
            (logger or Logger()).warning(f"{path} is built again: {e.what}")
    engine = build(model, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine.save(path)
    return engine
