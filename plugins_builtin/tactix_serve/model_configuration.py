"""A model's configuration as Triton's extension of that name has it: what is known of it here, by
the words of its ModelConfig.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tactix_serve.datatypes import OBJECTS, TensorMetadata
from tactix_serve.directory import BatchLimits, ModelDescription

BACKEND = "tactix"
MICROSECONDS = 1_000_000
"""Of a second."""


def configuration(model: ModelDescription) -> Mapping[str, object]:
    """Of a model in batches ``max_batch_size`` is 1 or more, and ``dims`` begin behind the axis of
    rows; of another it is 0, and ``dims`` are whole shapes.
    """
    batching = model.batching
    skipped = 0 if batching is None else 1
    out: dict[str, object] = {
        "name": model.name,
        "platform": model.platform,
        "backend": BACKEND,
        "max_batch_size": 0 if batching is None else batching.max_batch,
        "input": _tensors(model.inputs, skipped),
        "output": _tensors(model.outputs, skipped),
    }
    if batching is not None:
        out["dynamic_batching"] = _dynamic(batching)
    return out


def _tensors(tensors: Sequence[TensorMetadata], skipped: int) -> list[Mapping[str, object]]:
    return [
        {"name": t.name, "data_type": _data_type(t.datatype), "dims": list(t.shape[skipped:])}
        for t in tensors
    ]


def _data_type(datatype: str) -> str:
    """The enumerator of a datatype of the protocol."""
    return "TYPE_STRING" if datatype == OBJECTS else f"TYPE_{datatype}"


def _dynamic(limits: BatchLimits) -> Mapping[str, object]:
    return {
        "max_queue_delay_microseconds": round(limits.window * MICROSECONDS),
        "default_queue_policy": {
            "default_timeout_microseconds": round(limits.timeout * MICROSECONDS),
            "max_queue_size": limits.max_queue,
        },
    }
