"""How networks on a CUDA device are timed and compared: events around replays, departures from
float32.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

REPEATS = 20
Call = Callable[[], Any]


def torch_graph(model: Any, x: Any) -> Call:
    """A replayed graph of the model, or calls of it where torch can capture none of it: it copies
    numbers from the host's memory on the way.
    """
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph):
            model(x)
    except RuntimeError as e:
        print(f"no CUDA graph: {str(e).splitlines()[0]}", file=sys.stderr)
        torch.cuda.synchronize()
        return functools.partial(torch.no_grad()(model), x)
    return graph.replay


def seconds(call: Call, repeats: int = REPEATS) -> float:
    """Of one inference, by events around ``repeats`` of them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def sustained_seconds(call: Call) -> float:
    """Of one inference, of as many as fill a second, after one such second."""
    repeats = max(1, round(1 / seconds(call)))
    for _ in range(2):
        taken = seconds(call, repeats)
    return taken


def listed(y: Any) -> list[Any]:
    return list(y) if isinstance(y, tuple) else [y]


def departure(outputs: list[Any], want: list[Any]) -> float:
    """Largest difference, relative to each output's largest magnitude."""
    return max(
        float((y.float() - w).abs().max() / w.abs().max())
        for y, w in zip(outputs, want, strict=True)
    )
