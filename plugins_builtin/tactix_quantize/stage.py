"""The build stage of int8: from sample data to mixtures of integers and floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tactix.base.errors import ConfigError
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.build_stage import Lowered
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part, Staged
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_quantize.calibrate import Observer, folded, scales_of, tell_unusable
from tactix_quantize.calibrated import CalibratedProducts
from tactix_quantize.outcome import QuantizedProducts
from tactix_quantize.points import INT8, Wishes, is_quantized, points

WHO = "BuilderFlag.INT8"


class Int8Stage(Staged):
    """Lets products of a float32 network read integers where that is faster, in the ranges that a
    calibration gives.
    """

    key = "tactix.int8"
    serves = frozenset({BuilderFlag.INT8.value})
    depth = 40

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return Int8Build(session, config)


class Int8Build(Part):
    """One build. Raises ConfigError, InvalidArgument for bad data."""

    def __init__(self, session: Session, config: BuilderConfig) -> None:
        self._observer, self._config = Observer(session, config), config
        self._wishes = Wishes(config.layer_precisions, config.preferred_precisions)
        self._products: CalibratedProducts | None = None

    def settings(self, config: BuilderConfig, network: NetworkDefinition) -> BuilderConfig:
        """Without wishes for int8, which this stage fulfils."""
        rest = {k: v for k, v in config.layer_precisions.items() if v != INT8}
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
                "Give calibration=tactix.Calibration(data=...), or a model with QuantizeLinear "
                "layers"
            )
            raise ConfigError(f"{WHO} without a calibration", why="no tensor has a range", do=do)
        self.lowering = Int8Stage.key
        net = folded(network)
        tell_unusable(net, self._observer)
        places = points(net, self._wishes.against)
        self._wishes.check(places.products)
        scales = scales_of(net, places, calibration, self._observer) if places.products else {}
        known = places.known(scales)
        self._wishes.check(known.products)
        self._products = CalibratedProducts.of(known, scales, self._wishes)
        return net

    def lower(
        self, network: NetworkDefinition, stays: Callable[[str], str]
    ) -> Lowered[NetworkDefinition]:
        """With products that read integers."""
        found = self._products
        return Lowered(network) if found is None else found.lowered(network, stays)

    def plan(self, plan: Plan) -> Plan:
        """The plan as it is. Tells how many products are integers, and why others are not."""
        if self._products is not None:
            QuantizedProducts.of(plan, self.lowering).tell(self._observer.session.logger)
        return plan
