"""A model file, and the same with some of its layers in numbers of 8 bits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import onnx
from onnx import TensorProto

from tactix.base.errors import ConfigError
from tactix.builder import Builder
from tactix.contracts.calibrator import Calibration
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix_quantize import onnx_model
from tactix_quantize.calibrate import Observer, scales_of, tell_unusable
from tactix_quantize.insert import constants_of, insert
from tactix_quantize.numbers import INTEGERS, NarrowNumbers, NarrowScale
from tactix_quantize.points import Points, is_quantized, points

EXCLUDED = "it is excluded"
TOO_MUCH = "{} lose too much there"
OTHER_FORM = "the file has it in another form"


@dataclass(frozen=True)
class LayerOptions:
    """``exclude``: patterns of names of layers that stay float (``*`` as in file names);
    ``per_channel``: whether each output channel of weights has a scale; ``numbers``: what the
    others read.
    """

    exclude: Sequence[str] = ()
    per_channel: bool = True
    numbers: NarrowNumbers = INTEGERS


class FloatModel:
    """A float32 model file that is to be quantised.

    Raises ModelImportError, UnsupportedOperator; ConfigError for a model that is quantised, or has
    nothing to quantise, and for a pattern that no such layer has.
    """

    def __init__(self, path: str, by: Observer, choices: LayerOptions = LayerOptions()) -> None:
        self._by, self._choices, self.numbers = by, choices, choices.numbers
        self._model = onnx_model.load(path, opset=self.numbers.opset)
        content = onnx_model.as_bytes(self._model, path)
        self.network = Builder(by.session.logger, by.session).import_model(content)
        if is_quantized(self.network):
            raise ConfigError("the model is quantised already", who=path, do="Give the float model")
        file = onnx_model.QuantizedFile(self._model, self.numbers)
        tell_unusable(self.network, by, self.numbers)
        everything = points(self.network, numbers=self.numbers)
        self._wide = {p.node.name: OTHER_FORM for p in everything.products if not file.has(p)}
        self._wide |= dict.fromkeys(self._chosen(everything), EXCLUDED)
        self._scales: Mapping[Value, NarrowScale] = {}
        if not self.points().products:
            kinds = " or ".join(onnx_model.KINDS[p] for p in sorted(self.numbers.products))
            why = f"it has no {kinds} with constant float32 weights, or all are excluded"
            halves = any(t.data_type == TensorProto.FLOAT16 for t in self._model.graph.initializer)
            do = "It has float16 weights: give the model in float32" if halves else ""
            raise ConfigError("there is nothing to quantise", who=path, why=why, do=do)

    def _chosen(self, everything: Points) -> set[str]:
        """Names of layers that the patterns exclude."""
        names = [p.node.name for p in everything.products]
        for pattern in self._choices.exclude:
            if not any(fnmatchcase(name, pattern) for name in names):
                near = ", ".join(names[:5])
                do = f"Give names of layers to quantise: {near}"
                raise ConfigError(f"no layer fits --exclude {pattern!r}", do=do)
        return {n for n in names if any(fnmatchcase(n, p) for p in self._choices.exclude)}

    def points(self, left: Collection[str] = ()) -> Points:
        """Where it becomes 8 bits if these layers stay float."""
        return points(self.network, self._stays(left), self.numbers)

    def _stays(self, left: Collection[str]) -> Callable[[Node], str]:
        """Why a layer stays float."""
        wide = dict.fromkeys(left, TOO_MUCH.format(self.numbers.plural)) | self._wide
        return lambda node: wide.get(node.name, "")

    def calibrate(self, calibration: Calibration) -> None:
        """Find the scales. Raises ConfigError, InvalidArgument, BuildCancelled."""
        places = self.points()
        self._scales = scales_of(self.network, places, calibration, self._by, self.numbers)
        if not self._known().products:
            do = "Give ranges by the names that the model has, or data"
            raise ConfigError("no layer to quantise reads a tensor of known range", do=do)

    @property
    def scales(self) -> Mapping[Value, NarrowScale]:
        return self._scales

    def _known(self, left: Collection[str] = ()) -> Points:
        return self.points(left).known(self._scales)

    def wide(self, left: Collection[str] = ()) -> Mapping[str, str]:
        """Why other products stay float, by their names."""
        return self._known(left).wide

    def layers(self) -> list[str]:
        """Names of the layers that become 8 bits if none is left."""
        return [p.node.name for p in self._known().products]

    def quantized_network(self, left: Collection[str] = ()) -> NetworkDefinition:
        """The network with all but these layers in 8 bits."""
        net = self.network.copy()
        own = {v.name: v for v in net.values}
        scales = {own[v.name]: s for v, s in self._scales.items()}
        places = points(net, self._stays(left), self.numbers).known(scales)
        per_channel = self._choices.per_channel
        constants = partial(constants_of, numbers=self.numbers, per_channel=per_channel)
        insert(net, places, scales, constants)
        return net

    def quantized_file(self, left: Collection[str] = ()) -> onnx.ModelProto:
        """The model with all but these layers in 8 bits."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        file = onnx_model.QuantizedFile(model, self.numbers, self._choices.per_channel)
        file.insert(self._known(left), self._scales)
        return model
