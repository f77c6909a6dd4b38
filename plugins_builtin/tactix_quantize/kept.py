"""Ranges that a cache holds, for a network that it may not be of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.base.logger import Logger
from tactix.contracts.calibrator import Calibration
from tactix.network.definition import NetworkDefinition
from tactix_quantize import cache
from tactix_quantize.names import names_of

Range = tuple[float, float]
NAMELESS = "(Unnamed Layer*"
"""How TensorRT begins names that models do not have; they tell nothing of the model."""
CURE = "Remove it, and calibrate again"
SHOWN = 3
"""Names in a message."""


def few(names: Collection[str]) -> str:
    """The first names of many."""
    rest = ", ..." if len(names) > SHOWN else ""
    return ", ".join(list(names)[:SHOWN]) + rest


def read(
    file: Path, network: NetworkDefinition, calibration: Calibration, logger: Logger
) -> dict[str, Range]:
    """What the cache of a calibration holds. Tells of samples and of a calibrator that it takes the
    place of. Raises InvalidArgument for a file that is no cache, or one of another model.
    """
    text = file.read_bytes()
    found = ranges_of(text, str(file), network, logger.warning)
    if calibration.data is not None or not isinstance(calibration.calibrator, str):
        told = f"{file}: the cache is there, so that no samples are read"
        logger.warning(f"{told}. {CURE} to have them read")
    asked, wrote = _asked(calibration), cache.algorithm(text)
    if asked and asked != wrote:
        logger.warning(
            f"{file}: the cache is of {wrote}, not of the calibrator that was asked for ({asked}), "
            f"and is used as it is. {CURE} to use that one"
        )
    return found


def ranges_of(
    text: bytes, who: str, network: NetworkDefinition, warn: Callable[[str], None]
) -> dict[str, Range]:
    """What a cache's text holds; ``who``: its name, for errors. Raises InvalidArgument for what is
    none, or of another model.
    """
    found = cache.decode(text, who)
    _check_names(who, found, network, warn)
    return found


def write(file: Path, ranges: Mapping[str, Range], key: str) -> dict[str, Range]:
    """Keep ranges; gives what is read the next time."""
    text = cache.encode(ranges, key)
    with replacing(file) as f:
        f.write(text)
    return cache.decode(text)


def check_folder(file: Path) -> None:
    """Raises InvalidArgument where no cache can be kept."""
    if not file.parent.is_dir():
        why = f"there is no folder {str(file.parent)!r}"
        do = "Make it, or name another file"
        raise InvalidArgument("no cache can be written there", who=str(file), why=why, do=do)


def _asked(calibration: Calibration) -> str:
    """What a cache calls the calibrator that was named; empty for the default."""
    asked = calibration.calibrator
    if not isinstance(asked, str):
        return cache.algorithm_of(asked.key)
    return cache.algorithm_of(asked if "." in asked else f"tactix.{asked}") if asked else ""


def _check_names(
    who: str, found: Mapping[str, Range], network: NetworkDefinition, warn: Callable[[str], None]
) -> None:
    """Tells of names that no tensor has. Raises InvalidArgument where they are most of all."""
    known = {*network.model_tensors, *(n for v in network.values for n in names_of(v))}
    told = [name for name in found if not name.startswith(NAMELESS)]
    unknown = [name for name in told if name not in known]
    count = f"{len(unknown)} of {len(told)} names in it are no tensors of the model"
    if len(unknown) * 2 > len(told) or known.isdisjoint(found):
        what = "the calibration cache is of another model"
        why = f"{count}: {few(unknown)}" if unknown else "it names no tensor of the model"
        raise InvalidArgument(what, who=who, why=why, do=CURE)
    if unknown:
        warn(f"{who}: {count}: {few(unknown)}. If it is of another model: {CURE.lower()}")
