"""The backend ``tactix`` of ``torch.compile``.

torch finds it by its entry point (group ``torch_dynamo_backends``). Dynamo traces a program into
graphs, guards what they hang on, and calls the backend once for each; what the backend gives is
called in its place. An engine is built at the first call of a graph, when its tensors are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tactix_bridges.torch_compile.compiled import CompiledGraph
from tactix_bridges.torch_compile.graph import Unsuited, traced
from tactix_bridges.torch_compile.options import BackendOptions, options_of


def tactix(
    module: fx.GraphModule,
    example_inputs: Sequence[torch.Tensor | torch.SymInt],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Sequence[object]]:
    """What runs in place of a graph: an engine of tactix for inference on the processor, the graph
    itself for what no engine can stand in for, which a warning tells.

    ``options``: see ``BackendOptions``. Raises ConfigError for options that are none, and with
    ``fallback="error"`` ConfigError for a graph that is left to torch.
    """
    said = options_of(options, mode)
    try:
        _check_use(example_inputs)
        return CompiledGraph(traced(module), said)
    except Unsuited as e:
        return left_to_torch(module, e, said)


def left_to_torch(
    module: fx.GraphModule, why: Unsuited, options: BackendOptions
) -> Callable[..., Sequence[object]]:
    """Raises ConfigError where the caller wants no such fallback."""
    options.refuse_or_warn(str(why))
    as_traced: Callable[..., Sequence[object]] = module.forward
    return as_traced


def _check_use(example_inputs: Sequence[torch.Tensor | torch.SymInt]) -> None:
    """Raises Unsuited for training, and for tensors of other devices."""
    tensors = [t for t in example_inputs if isinstance(t, torch.Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise Unsuited("gradients are wanted; call the model under torch.inference_mode()")
    for kind in sorted({t.device.type for t in tensors} - {"cpu"}):
        raise Unsuited(f"its tensors are on the device {kind}, and only those on the cpu are taken")
