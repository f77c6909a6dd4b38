"""Refitter, OnnxParserRefitter: other weights for an engine that was built with REFIT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import TactixError
from tactix_tensorrt.api.engine import ICudaEngine
from tactix_tensorrt.api.enums import TensorLocation, WeightsRole
from tactix_tensorrt.api.loaded_model import LoadsModels
from tactix_tensorrt.api.logger import ILogger, Reporting, returns
from tactix_tensorrt.api.values import FROM_NATIVE, Weights
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix_refit.refitter import Refitter as NativeRefitter
    from tactix_tensorrt.api.values import Array


@at_this_level
class Refitter(Reporting):
    """Of one engine. ``weights_validation``: kept; finite weights are always asked for."""

    weights_validation = True
    max_threads = 1

    def __init__(self, engine: ICudaEngine, logger: ILogger) -> None:
        super().__init__(logger)
        self.engine = engine

    @property
    def logger(self) -> ILogger:
        return self._logger

    @cached_property
    def native(self) -> NativeRefitter:
        """tactix's. Raises InvalidArgument for an engine without recipes."""
        from tactix_refit.refitter import Refitter as NativeRefitter

        return NativeRefitter(self.engine.native)

    @returns(False)
    def set_named_weights(
        self,
        name: str,
        weights: Weights | Array,
        location: TensorLocation = TensorLocation.HOST,
    ) -> bool:
        """Numbers that must stay until the refit; on the host, DEVICE is host memory, too."""
        if location is TensorLocation.DEVICE and not self.engine.native.device.host_memory:
            self.fail(f"weights {name!r} on the device: Give them in memory of the host")
            return False
        if not self._may_change(name):
            self.fail(f"{name!r} is not marked: Call mark_weights_refittable before the build")
            return False
        array = weights.view() if isinstance(weights, Weights) else weights
        shape = self.native.get_weights_prototype(name).shape
        if array.size == math.prod(int(str(d)) for d in shape):
            array = array.reshape([int(str(d)) for d in shape])
        self.native.set_named_weights(name, array)
        return True

    def set_weights(self, layer_name: str, role: WeightsRole, weights: Weights | Array) -> bool:
        """Weights of a layer that was added, or the kernel or bias of one that a parser read; False
        for others.
        """
        name = self.engine.facts.roles.get(layer_name, {}).get(role)
        if name is None:
            do = "Call get_all for what there is, or set_named_weights with the weights' name"
            self.fail(f"no weights are {role} of layer {layer_name!r}: {do}")
            return False
        return self.set_named_weights(name, weights)

    def get_all(self) -> tuple[list[str], list[WeightsRole]]:
        """Layers and roles of those of ``get_all_weights`` that have them."""
        return self._layers(set(self.get_all_weights()))

    def get_missing(self) -> tuple[list[str], list[WeightsRole]]:
        """Layers and roles of those that a refit still needs, as ``get_all``."""
        return self._layers(set(self.get_missing_weights()))

    def _layers(self, names: set[str]) -> tuple[list[str], list[WeightsRole]]:
        every = self.engine.facts.roles.items()
        found = [(n, role) for n, own in every for role, name in own.items() if name in names]
        return [layer for layer, _ in found], [role for _, role in found]

    @returns(Weights())
    def get_named_weights(
        self, weights_name: str, location: TensorLocation = TensorLocation.HOST
    ) -> Weights:
        """What was set; none if nothing was."""
        found = self.native.get_named_weights(weights_name)
        return Weights() if found is None else Weights(found)

    def get_weights_location(self, weights_name: str) -> TensorLocation:
        return TensorLocation.HOST

    @returns(False)
    def unset_named_weights(self, weights_name: str) -> bool:
        self.native.unset_named_weights(weights_name)
        return True

    @returns(Weights())
    def get_weights_prototype(self, weights_name: str) -> Weights:
        """Type and count."""
        spec = self.native.get_weights_prototype(weights_name)
        return Weights(FROM_NATIVE[spec.dtype], 0, int(str(spec.numel)))

    def get_all_weights(self) -> list[str]:
        return self._names(missing=False)

    def get_missing_weights(self) -> list[str]:
        """Names of those that a refit still needs."""
        return self._names(missing=True)

    def _names(self, missing: bool) -> list[str]:
        try:
            own = self.native
        except TactixError as e:
            self.fail(e)
            return []
        every = own.get_missing_weights() if missing else own.get_all_weights()
        return [name for name in every if self._may_change(name)]

    def _may_change(self, name: str) -> bool:
        """Whether it was marked, if REFIT_INDIVIDUAL asked for that."""
        facts = self.engine.facts
        return not facts.individual or name in facts.refittable

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """None: engines keep the scales that they were built with."""
        return []

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float]:
        """Nothing to tell, which is logged."""
        self._no_range(tensor_name)
        return (0.0, 0.0)

    def set_dynamic_range(self, tensor_name: str, range: Sequence[float]) -> bool:
        """False, which is logged."""
        self._no_range(tensor_name)
        return False

    def _no_range(self, name: str) -> None:
        do = "Build it again with another range, or with Q/DQ layers, whose scales are weights"
        self.fail(f"the range of {name!r} is fixed in the engine: {do}")

    @returns(False)
    def refit_cuda_engine(self) -> bool:
        self.native.refit()
        self.engine.renewed = True
        return True

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:
        """It is done when this returns."""
        return self.refit_cuda_engine()


@at_this_level
class OnnxParserRefitter(LoadsModels):
    """Weights from a model of the same structure: all of them, at once."""

    def __init__(self, refitter: Refitter, logger: ILogger) -> None:
        super().__init__(logger)
        self._refitter = refitter

    def refit_from_file(self, model: str) -> bool:
        return self._take(Path(model))

    def refit_from_bytes(self, model: bytes, path: str | None = None) -> bool:
        return self._take(Path(path) if path and Path(path).is_file() else bytes(model))

    def refit_model_proto(self) -> bool:
        """By what was loaded, with the weights that were given."""
        model = self._whole()
        return model is not None and self._take(model.SerializeToString())

    def _take(self, model: Path | bytes) -> bool:
        try:
            self._refitter.native.refit_from_onnx(model)
            self._refitter.engine.renewed = True
        except TactixError as e:
            self._failed(e)
            return False
        return True
