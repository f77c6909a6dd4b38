"""What a plan keeps of the program's configuration, for its engines to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.base.dims import Shape
from tactix.plan.reader import Reader
from tactix_tensorrt.api import told_sizes
from tactix_tensorrt.api.enums import (
    HardwareCompatibilityLevel,
    ProfilingVerbosity,
    TensorFormat,
    WeightsRole,
)
from tactix_tensorrt.api.told_sizes import ToldSize

if TYPE_CHECKING:
    from tactix.plan.schema import Plan

KEY = "tensorrt"
"""In ``Plan.meta``."""

Ranges = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Lowest values of a shape tensor, those to tune for, highest."""


@dataclass(frozen=True)
class PlanFacts:
    """``profiling_verbosity``: what inspectors tell. ``values``: of the shape tensors that profiles
    name, profile by profile. Enumerations are kept by name, for their numbers are those of a level.
    ``formats``: of inputs and outputs that are not linear. ``debug``: names of tensors that
    listeners may be told of, ``unfused``: those that fusions left; ``hidden``: outputs of the plan
    that engines do not show; ``asserted``: of these what has to hold in each run, and what is said
    if it does not. ``sizes``: elements of inputs that are sizes, by symbol. ``roles``: names of
    weights, by layer and role. ``shapes``: what outputs hold that are marked for shapes.
    ``individual``: whether refits may change ``refittable`` alone.
    """

    profiling_verbosity: ProfilingVerbosity = ProfilingVerbosity.DETAILED
    hardware_compatibility_level: HardwareCompatibilityLevel = HardwareCompatibilityLevel.NONE
    tactic_sources: int = 0
    values: tuple[Mapping[str, Ranges], ...] = field(default_factory=tuple)
    formats: Mapping[str, TensorFormat] = field(default_factory=dict)
    debug: tuple[str, ...] = ()
    unfused: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    asserted: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, ToldSize] = field(default_factory=dict)
    roles: Mapping[str, Mapping[WeightsRole, str]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    individual: bool = False
    refittable: tuple[str, ...] = ()

    def entry(self) -> dict[str, object]:
        """Of ``Plan.meta``."""
        return {
            "profiling_verbosity": self.profiling_verbosity.name,
            "hardware_compatibility_level": self.hardware_compatibility_level.name,
            "tactic_sources": self.tactic_sources,
            "values": [{name: list(rows) for name, rows in p.items()} for p in self.values],
            "formats": {name: f.name for name, f in self.formats.items()},
            "debug": list(self.debug),
            "unfused": list(self.unfused),
            "hidden": list(self.hidden),
            "asserted": dict(self.asserted),
            "sizes": told_sizes.entry(self.sizes),
            "shapes": {n: [dims.to_json(d) for d in held] for n, held in self.shapes.items()},
            "individual": self.individual,
            "refittable": list(self.refittable),
            "roles": {n: {r.name: w for r, w in own.items()} for n, own in self.roles.items()},
        }


def of(plan: Plan) -> PlanFacts:
    """What a plan tells; the defaults where something else built it. Raises PlanFormatError."""
    if KEY not in plan.meta:
        return PlanFacts()
    r = Reader(plan.meta[KEY], f"meta.{KEY}")
    debug, unfused, hidden = (
        tuple(n.text() for n in r.at(k).items()) for k in ("debug", "unfused", "hidden")
    )
    return PlanFacts(
        ProfilingVerbosity[r.at("profiling_verbosity").text()],
        HardwareCompatibilityLevel[r.at("hardware_compatibility_level").text()],
        r.at("tactic_sources").integer(),
        tuple({name: _ranges(v) for name, v in p.fields().items()} for p in r.at("values").items()),
        {name: TensorFormat[f.text()] for name, f in r.at("formats").fields().items()},
        debug,
        unfused,
        hidden,
        {name: message.text() for name, message in r.at("asserted").fields().items()},
        {symbol: _size(size) for symbol, size in r.at("sizes").fields().items()},
        {name: _roles(own) for name, own in r.at("roles").fields().items()},
        {n: tuple(d.dim() for d in held.items()) for n, held in r.at("shapes").fields().items()},
        r.at("individual").flag(),
        tuple(n.text() for n in r.at("refittable").items()),
    )


def _size(r: Reader) -> ToldSize:
    name, index = r.row(2)
    return ToldSize(name.text(), index.integer())


def _roles(r: Reader) -> dict[WeightsRole, str]:
    return {WeightsRole[role]: name.text() for role, name in r.fields().items()}


def _ranges(r: Reader) -> Ranges:
    low, opt, high = (tuple(n.integer() for n in row.items()) for row in r.row(3))
    return low, opt, high
