"""From a calibration to the ranges of a network's tensors."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import BuildCancelled, ConfigError, InvalidArgument, punctuated
from tactix.base.progress import ProgressMonitor
from tactix.base.spelling import did_you_mean
from tactix.config import BuilderConfig
from tactix.contracts.calibrator import Calibration, Calibrator
from tactix.contracts.graph import Node, Value
from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.plugins.names import OWN
from tactix.plugins.session import Session
from tactix_ops.rules.conv import RULES
from tactix_quantize import feeds, kept
from tactix_quantize.names import names_of
from tactix_quantize.numbers import INTEGERS, NarrowNumbers, NarrowScale, is_usable, usable
from tactix_quantize.observe import Seen, Tensors
from tactix_quantize.points import Points, unusable

DEFAULT = "tactix.minmax"
PHASE = "calibrate"
Range = tuple[float, float]


@dataclass(frozen=True)
class Observer:
    """Who runs a network, and how: what a build hands on."""

    session: Session
    config: BuilderConfig

    @property
    def monitor(self) -> ProgressMonitor:
        return self.config.progress_monitor


def folded(network: NetworkDefinition) -> NetworkDefinition:
    """A copy whose convolutions hold what is constant around them, normalisations above all, and
    whose Gemms have no factors: weights are quantised as they are used.
    """
    net = fuse(network, RULES)[0]
    for node in net.nodes:
        if node.layer.name == "Gemm" and _is_scaled(node):
            x, w, *rest = node.inputs
            terms = [_times(net, v, node.attrs.beta) for v in rest]
            node.inputs = (x, _times(net, w, node.attrs.alpha), *terms)
            node.attrs = replace(node.attrs, alpha=1.0, beta=1.0)
    return net


def _is_scaled(node: Node) -> bool:
    """Whether factors can go into constants."""
    constants = [v for v in node.inputs[1:] if v is not None]
    known = all(v.const is not None and v.spec.dtype is DType.FP32 for v in constants)
    return known and (node.attrs.alpha, node.attrs.beta) != (1, 1)


def _times(network: NetworkDefinition, v: Value | None, factor: float) -> Value | None:
    if v is None or factor == 1:
        return v
    return network.add_constant((v.array * np.float32(factor)), f"{v.name}/scaled")


def tell_unusable(
    network: NetworkDefinition, by: Observer, numbers: NarrowNumbers = INTEGERS
) -> None:
    """Warn of layers that stay float for their weights."""
    for p, v in unusable(network, numbers):
        by.session.logger.warning(
            f"layer {p.node.name!r} stays float: {v.name!r} has values that are not finite. "
            "Give the model finite weights there"
        )


def scales_of(
    network: NetworkDefinition,
    places: Points,
    calibration: Calibration,
    by: Observer,
    numbers: NarrowNumbers = INTEGERS,
) -> dict[Value, NarrowScale]:
    """Of every tensor that becomes such numbers and whose range is known.

    Raises ConfigError for a calibration that tells nothing, InvalidArgument for bad data,
    BuildCancelled.
    """
    calibration = replace(calibration, symmetric=calibration.symmetric or numbers.symmetric)
    ranges = _ranges(network, places.observed, calibration, by)
    _tell_missing(places, ranges, by)
    found = {
        v: numbers.scale(low, high, calibration.symmetric) for v, (low, high) in ranges.items()
    }
    below = {v: found[u] for v, u in places.pooled.items() if u in found}
    return {**found, **below}


def _ranges(
    network: NetworkDefinition, values: Collection[Value], calibration: Calibration, by: Observer
) -> dict[Value, Range]:
    given = {name: _checked(name, r) for name, r in calibration.ranges.items()}
    _check_names(network, given)
    file = Path(calibration.cache) if calibration.cache else None
    if file is not None and file.exists():
        found = kept.read(file, network, calibration, by.session.logger)
        return _given(values, {**found, **given}, str(file))
    calibrator = calibrator_of(by.session, calibration.calibrator)
    if calibration.data is None and not calibration.calibrator:
        if not given:
            do = "Give it data, a calibrator that has some, a cache that is there, or ranges"
            raise ConfigError("the calibration tells no ranges", do=do)
        return _given(values, given)
    if file is not None:
        kept.check_folder(file)
    open_ones = [v for v in values if not given.keys() & set(names_of(v))]
    observe(network, open_ones, calibration.data, calibrator, by)
    found = usable(calibrator.ranges()) | given
    if file is not None:
        found = kept.write(file, found, calibrator.key)
        if not calibration.symmetric:
            by.session.logger.warning(
                f"{file}: a cache holds symmetric ranges only, so that this calibration is "
                "symmetric, too. Leave the cache out for ranges of two ends"
            )
    return _named(values, found)


def _given(
    values: Collection[Value],
    ranges: Mapping[str, Range],
    who: str = "",
) -> dict[Value, Range]:
    """Of tensors by names, as someone tells. Raises InvalidArgument where a tensor that
    is to be read as 8 bits has a range without a scale.
    """
    found = _named(values, ranges)
    if empty := [v.name for v, r in found.items() if not is_usable(*r)]:
        what, why = f"scale 0 for {kept.few(empty)}", "only zero is in such a range"
        raise InvalidArgument(what, who=who, why=why, do=kept.CURE)
    return found


def _tell_missing(places: Points, ranges: Collection[Value], by: Observer) -> None:
    """Warn of tensors that stay float."""
    missing = [v for v in places.observed if v not in ranges]
    if missing:
        names = kept.few([names_of(v)[0] for v in missing])
        by.session.logger.warning(
            f"{len(missing)} of {len(places.observed)} tensors that products read have no scale, "
            f"and stay float: {names}. Give samples that reach them, or ranges of your own"
        )


def _named(values: Collection[Value], ranges: Mapping[str, Range]) -> dict[Value, Range]:
    """Of those tensors whose range is known by one of their names."""
    known = {v: [n for n in names_of(v) if n in ranges] for v in values}
    return {v: ranges[found[0]] for v, found in known.items() if found}


def _checked(name: str, r: Range) -> Range:
    """Raises InvalidArgument for what is no range."""
    if len(r) != 2 or not (np.isfinite(r).all() and r[0] <= r[1]):
        do = "Give the lowest and the highest value"
        raise InvalidArgument(f"the range of tensor {name!r} is {r}", do=do)
    return float(r[0]), float(r[1])


def _check_names(network: NetworkDefinition, given: Mapping[str, Range]) -> None:
    """Raises InvalidArgument for ranges of tensors that there are not."""
    known = {n for v in network.values for n in names_of(v)} if given else set()
    for name in given:
        if name not in known:
            do = did_you_mean(name, known, "`tactix inspect MODEL` lists the layers")
            raise InvalidArgument(f"a range for {name!r}, which is no tensor of the model", do=do)


def calibrator_of(session: Session, asked: object) -> Calibrator:
    """One that nobody else has, for a key; or the one that was given. Raises ConfigError."""
    if isinstance(asked, Calibrator):
        return asked
    if not isinstance(asked, str):
        what = f"the calibrator is a {type(asked).__name__}"
        why = "a calibrator has key, batches, observe and ranges"
        do = "Give such an object, or the key of one, like 'entropy2'"
        raise ConfigError(what, why=why, do=do)
    key = asked or DEFAULT
    key = key if "." in key else f"{OWN}.{key}"
    if key not in session.calibrators:
        known = sorted(k.removeprefix(f"{OWN}.") for k in session.calibrators)
        listed = f"There are: {', '.join(known)}"
        do = punctuated((did_you_mean(key.removeprefix(f"{OWN}."), known), listed))
        raise ConfigError(f"no calibrator {asked!r}", do=do)
    return copy.deepcopy(session.calibrators[key])


def observe(
    network: NetworkDefinition,
    values: Collection[Value],
    data: object,
    calibrator: Calibrator,
    by: Observer,
) -> None:
    """Show a calibrator tensors of a network, under the first of their names; ``data``: see
    ``Calibration``. Raises InvalidArgument, BuildCancelled.
    """
    names = {v.name: names_of(v)[0] for v in values}
    tensors = Tensors(by.session, network, list(values), by.config)
    seen = Seen()
    source = calibrator.batches() if data is None else data
    by.monitor.phase(PHASE, feeds.count(source))
    for done, batch in enumerate(feeds.batches(source, network.inputs), 1):
        for name, found in tensors.of(batch):
            seen.add(names[name], found)
            calibrator.observe(names[name], found)
        by.monitor.step(PHASE, done)
        if by.monitor.cancelled():
            raise BuildCancelled("the calibration was stopped")
    by.monitor.finish(PHASE)
    seen.tell(by.session.logger)
