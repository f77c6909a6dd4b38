"""Runs a plugin over arrays: where only running tells a size, and to compare tactics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.base.tensor import TensorSpec
from tactix_tensorrt.api.plugin_fields import PluginTensorDesc, described
from tactix_tensorrt.api.plugin_sizes import SizeTensor
from tactix_tensorrt.api.values import FROM_NATIVE
from tactix_tensorrt.plugin_steps.views import Addresses, PluginView

if TYPE_CHECKING:
    from tactix.base.dims import Env
    from tactix_tensorrt.api.values import Array
    from tactix_tensorrt.plugin_steps.device_arrays import Place


@dataclass(frozen=True)
class Task:
    """What there is to run. ``aliases``: outputs that have the memory of an input, with that;
    ``workspace``: bytes.
    """

    outputs: Sequence[TensorSpec]
    sizes: Sequence[SizeTensor] = ()
    aliases: Sequence[Sequence[int]] = ()
    workspace: int = 0


def desc(spec: TensorSpec, env: Env) -> PluginTensorDesc:
    """A tensor as a plugin is told of it in a run: -1 for what only the run tells."""
    sizes = [dims.evaluate(d, env) if dims.symbols(d) <= set(env) else -1 for d in spec.shape]
    return described(sizes, FROM_NATIVE[spec.dtype])


def computed(
    view: PluginView, task: Task, inputs: Sequence[Array], env: Env, place: Place
) -> list[Array]:
    """The outputs, in memory of their own. Raises ExecutionError for a size tensor that tells more
    than the plugin declared, and what the plugin raises.
    """
    import numpy as np

    most = {**env, **{s.symbol: dims.evaluate(s.upper, env) for s in task.sizes}}
    rooms = [np.zeros(spec.at(most), spec.dtype.numpy) for spec in task.outputs]
    given = [described(x.shape, FROM_NATIVE[DType.of(x.dtype)]) for x in inputs]
    made = [desc(spec, env) for spec in task.outputs]
    with place:
        reads = [place.hold(x) for x in inputs]
        writes = [place.hold(room) for room in rooms]
        for output, source in task.aliases:
            writes[output] = reads[source]
        scratch = place.hold(np.empty(task.workspace, np.uint8)) if task.workspace else 0
        view.reshape(given, made)
        view.enqueue(given, made, Addresses(reads, writes, scratch, 0))
        for address, room in zip(writes, rooms, strict=True):
            place.fetch(address, room)
    found = {**env, **_told(view, task.sizes, rooms, most)}
    return [_part(room, spec.at(found)) for room, spec in zip(rooms, task.outputs, strict=True)]


def _told(
    view: PluginView, sizes: Sequence[SizeTensor], rooms: Sequence[Array], most: Mapping[str, int]
) -> dict[str, int]:
    told = {s.symbol: int(rooms[s.output].reshape(-1)[0]) for s in sizes}
    for symbol, size in told.items():
        if not 0 <= size <= most[symbol]:
            why = f"it declared {most[symbol]} at most"
            raise ExecutionError(f"its size tensor tells {size}", who=view.who, why=why)
    return told


def _part(room: Array, shape: tuple[int, ...]) -> Array:
    """The elements that a tensor of that shape has, which lie at the beginning."""
    if room.shape == shape:
        return room
    return room.reshape(-1)[: math.prod(shape)].reshape(shape).copy()
