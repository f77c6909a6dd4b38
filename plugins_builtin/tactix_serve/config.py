"""What a model's folder may say of how it is served: config.toml."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tactix.base.errors import ConfigError, InvalidArgument
from tactix.base.spelling import did_you_mean
from tactix_serve.batching import BatchOptions

CONFIG = "config.toml"
KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


@dataclass(frozen=True)
class ModelConfig:
    """``contexts``, ``max_queue``: see ``Engine.set_pool``. ``devices``: see ``tactix.load``, with
    commas; empty for the first that the plan is for. ``threads``: of one context; 0, the default,
    for all cores. ``level``: of the build of a model. ``on_untrusted``: see ``Runtime``.
    ``warm_up``: run zeros at the shapes of the profiles before the first request. ``timeout``:
    seconds after which a request is given up; 0 for none. ``batching``: None for none.
    """

    contexts: int = 0
    max_queue: int = 64
    devices: str = ""
    threads: int = 0
    level: int = 3
    on_untrusted: str = ""
    warm_up: bool = True
    timeout: float = 0.0
    batching: BatchOptions | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        if not 0 <= self.timeout < math.inf:
            what = f"timeout is {self.timeout:g}"
            raise InvalidArgument(what, do="Give seconds, or 0 for none")


def read_config(folder: Path) -> ModelConfig:
    """Of a model's folder; without a file all defaults. Raises ConfigError, OSError."""
    path = folder / CONFIG
    if not path.exists():
        return ModelConfig()
    try:
        given = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError("this is no TOML", who=str(path), why=str(e)) from None
    batching = given.pop("batching", None)
    try:
        options = None if batching is None else _batching(batching, path)
        return ModelConfig(**_checked(given, ModelConfig(), path), batching=options)
    except InvalidArgument as e:
        raise ConfigError(e.what, who=str(path), do=e.do) from None


def _batching(given: object, path: Path) -> BatchOptions:
    if not isinstance(given, dict):
        raise ConfigError("batching is no table", who=str(path), do="Write [batching]")
    pad, sizes = given.pop("pad", {}), given.pop("sizes", None)
    pads = _pads(pad, path)
    lengths = {name: {int(p["axis"]): p["sizes"]} for name, p in pad.items() if "sizes" in p}
    for asked in (sizes, *(n for axes in lengths.values() for n in axes.values())):
        if not isinstance(asked, list | None):
            raise ConfigError(f"sizes is {asked!r}", who=str(path), do="Write sizes = [1, 4, 16]")
    fields = _checked(given, BatchOptions(), path)
    return BatchOptions(**fields, pad=pads, sizes=sizes, pad_sizes=lengths)


PAD = {"axis": (int,), "value": (int, float, bool), "sizes": (list,)}
"""What a pad says, and of which kinds."""


def _pads(given: object, path: Path) -> dict[str, dict[int, float]]:
    do = "Write pad.ids = { axis = 1, value = 0 } for the input ids"
    if not isinstance(given, dict):
        raise ConfigError(f"pad is {given!r}", who=str(path), do=do)
    for name, pad in given.items():
        if not isinstance(pad, dict) or "axis" not in pad:
            raise ConfigError(f"pad.{name} is {pad!r}", who=str(path), do=do)
        for word, value in pad.items():
            if word not in PAD:
                known = did_you_mean(word, list(PAD), f"There are: {', '.join(PAD)}")
                raise ConfigError(f"no setting pad.{name}.{word}", who=str(path), do=known)
            if type(value) not in PAD[word]:
                raise ConfigError(f"pad.{name}.{word} is {value!r}", who=str(path), do=do)
    return {name: {pad["axis"]: pad.get("value", 0)} for name, pad in given.items()}


def _checked(given: Mapping[str, object], default: object, path: Path) -> dict[str, Any]:
    """Settings of the kinds that the defaults have. Raises ConfigError."""
    known = {f.name: getattr(default, f.name) for f in fields(default)}  # type: ignore[arg-type]
    scalar = {k: v for k, v in known.items() if isinstance(v, (bool, int, float, str))}
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in scalar:
            do = did_you_mean(name, list(scalar), f"There are: {', '.join(scalar)}")
            raise ConfigError(f"no setting {name!r}", who=str(path), do=do)
        wanted = type(scalar[name])
        number = float(value) if wanted is float and type(value) is int else value
        if type(number) is not wanted:
            what = f"{name} is {value!r}"
            raise ConfigError(what, who=str(path), do=f"Give {KINDS[wanted]}")
        out[name] = number
    return out
