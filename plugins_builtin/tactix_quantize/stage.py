"""The build stages of int8 and fp8: from sample data to mixtures of 8 bits and floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from tactix.base.errors import ConfigError
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.build_stage import Lowered
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part, Staged
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_quantize.calibrate import Observer, folded, scales_of, tell_unusable
from tactix_quantize.calibrated import CalibratedProducts
from tactix_quantize.numbers import FLOATS8, INTEGERS, NarrowNumbers
from tactix_quantize.outcome import QuantizedProducts
from tactix_quantize.points import Wishes, is_quantized, points


class EightBitStage(Staged):
    """Lets products of a float32 network read ``numbers`` of 8 bits where that is faster, in the
    ranges that a calibration gives.
    """

    numbers: ClassVar[NarrowNumbers]
    depth = 40

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return EightBitBuild(self.key, self.numbers, session, config)


class Int8Stage(EightBitStage):
    """Integers."""

    key, numbers = "tactix.int8", INTEGERS
    serves = frozenset({BuilderFlag.INT8.value})


class Float8Stage(EightBitStage):
    """float8 E4M3."""

    key, numbers = "tactix.fp8", FLOATS8
    serves = frozenset({BuilderFlag.FP8.value})


class EightBitBuild(Part):
    """One build; ``key``: its stage's. Raises ConfigError, InvalidArgument for bad data."""

    def __init__(
        self, key: str, numbers: NarrowNumbers, session: Session, config: BuilderConfig
    ) -> None:
        self._key, self._numbers = key, numbers
        self._observer, self._config = Observer(session, config), config
        wishes = (config.layer_precisions, config.preferred_precisions)
        self._wishes = Wishes(*wishes, narrow=numbers.name)
        self._products: CalibratedProducts | None = None

    def settings(self, config: BuilderConfig, network: NetworkDefinition) -> BuilderConfig:
        """Without wishes for 8 bits, which this stage fulfils."""
        rest = {k: v for k, v in config.layer_precisions.items() if v != self._numbers.name}
        preferred = frozenset(config.preferred_precisions & rest.keys())
        return replace(config, layer_precisions=rest, preferred_precisions=preferred)

    def network(self, network: NetworkDefinition) -> NetworkDefinition:
        """A copy as it is calibrated, in floats; one that has QuantizeLinear or DequantizeLinear
        layers stays.

        Raises ConfigError where nothing tells ranges, or a model that has its own is to be
        calibrated; BuildCancelled.
        """
        calibration = self._config.calibration
        if is_quantized(network):
            if calibration is not None:
                why = "its QuantizeLinear layers tell ranges already"
                do = "Leave the calibration out, or give the float32 model"
                raise ConfigError("the model is quantised", who=network.name, why=why, do=do)
            return network
        if calibration is None:
            do = (
                "Give calibration=tactix.Calibration(data=...) (--calibration), or a model with "
                "QuantizeLinear layers"
            )
            who = f"BuilderFlag.{self._numbers.name.upper()}"
            raise ConfigError(f"{who} without a calibration", why="no tensor has a range", do=do)
        self.lowering = self._key
        net = folded(network)
        tell_unusable(net, self._observer, self._numbers)
        places = points(net, self._wishes.against, self._numbers)
        self._wishes.check(places.products)
        asked = (places, calibration, self._observer, self._numbers)
        scales = scales_of(net, *asked) if places.products else {}
        known = places.known(scales)
        self._wishes.check(known.products)
        self._products = CalibratedProducts.of(known, scales, self._wishes, self._numbers)
        return net

    def lower(
        self, network: NetworkDefinition, stays: Callable[[str], str]
    ) -> Lowered[NetworkDefinition]:
        """With products that read 8 bits."""
        found = self._products
        return Lowered(network) if found is None else found.lowered(network, stays)

    def plan(self, plan: Plan) -> Plan:
        """The plan as it is. Tells how many products are of 8 bits, and why others are not."""
        if self._products is not None:
            logger = self._observer.session.logger
            QuantizedProducts.of(plan, self.lowering).tell(logger, self._numbers.name)
        return plan
