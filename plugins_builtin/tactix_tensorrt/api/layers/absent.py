"""Layers that programs name and tactix's adapter does not make: their ``add_*`` return None."""

from __future__ import annotations

from tactix_tensorrt.api.enums import LayerType
from tactix_tensorrt.api.layer import ILayer
from tactix_tensorrt.api.logger import Reporting
from tactix_tensorrt.api.refusal import refused

ONNX = "Write that part as an ONNX model, and parse it"


class IPluginLayer(ILayer):
    TYPE = LayerType.PLUGIN


class ILoopBoundaryLayer(ILayer):
    TYPE = LayerType.LOOP_OUTPUT


class ITripLimitLayer(ILoopBoundaryLayer):
    TYPE = LayerType.TRIP_LIMIT


class IRecurrenceLayer(ILoopBoundaryLayer):
    TYPE = LayerType.RECURRENCE


class IIteratorLayer(ILoopBoundaryLayer):
    TYPE = LayerType.ITERATOR


class ILoopOutputLayer(ILoopBoundaryLayer):
    TYPE = LayerType.LOOP_OUTPUT


class IIfConditionalBoundaryLayer(ILayer):
    TYPE = LayerType.CONDITION


class IConditionLayer(IIfConditionalBoundaryLayer):
    TYPE = LayerType.CONDITION


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    TYPE = LayerType.CONDITIONAL_INPUT


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    TYPE = LayerType.CONDITIONAL_OUTPUT


class IDistCollectiveLayer(ILayer):
    TYPE = LayerType.DIST_COLLECTIVE


class ILoop(Reporting):
    """A loop of a network."""

    add_recurrence = refused("add_recurrence", ONNX)
    add_trip_limit = refused("add_trip_limit", ONNX)
    add_iterator = refused("add_iterator", ONNX)
    add_loop_output = refused("add_loop_output", ONNX)


class IIfConditional:
    """A branch of a network."""
