"""The build stage of int8: from sample data to a network of integers."""

from __future__ import annotations

from dataclasses import replace

from tactix.base.errors import ConfigError
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.calibrator import Calibration
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part, Staged
from tactix.plugins.session import Session
from tactix_quantize.calibrate import Observer, folded, scales_of, tell_unusable
from tactix_quantize.insert import insert
from tactix_quantize.points import INT8, Wishes, is_quantized, points

WHO = "BuilderFlag.INT8"


class Int8Stage(Staged):
    """Lets products of a float32 network read integers, in the ranges that a calibration gives."""

    key = "tactix.int8"
    serves = frozenset({BuilderFlag.INT8.value})
    depth = 40

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return Int8Build(session, config)


class Int8Build(Part):
    """One build. Raises ConfigError, InvalidArgument for bad data."""

    def __init__(self, session: Session, config: BuilderConfig) -> None:
        self._observer, self._config = Observer(session, config), config

    def settings(self, config: BuilderConfig, network: NetworkDefinition) -> BuilderConfig:
        """Without wishes for int8, which this stage fulfils."""
        rest = {k: v for k, v in config.layer_precisions.items() if v != INT8}
        preferred = frozenset(config.preferred_precisions & rest.keys())
        return replace(config, layer_precisions=rest, preferred_precisions=preferred)

    def network(self, network: NetworkDefinition) -> NetworkDefinition:
        """A copy with QuantizeLinear and DequantizeLinear layers; one that has such already stays.

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
        wishes = Wishes(self._config.layer_precisions, self._config.preferred_precisions)
        return quantized(network, calibration, wishes, self._observer)


def quantized(
    network: NetworkDefinition, calibration: Calibration, wishes: Wishes, by: Observer
) -> NetworkDefinition:
    """A copy whose products read integers. Raises ConfigError, InvalidArgument, BuildCancelled."""
    net = folded(network)
    tell_unusable(net, by)
    places = points(net, wishes)
    if not places.products:
        by.session.logger.warning(f"{WHO}: nothing of {network.name!r} can be computed in int8")
        return network
    scales = scales_of(net, places, calibration, by)
    insert(net, places.known(scales), scales)
    return net
