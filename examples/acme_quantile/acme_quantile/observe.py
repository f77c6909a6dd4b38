"""Show a calibrator every float activation of a network on its own batches, by the layers'
references.
"""

from collections.abc import Mapping
from typing import Any

from tactix.contracts.graph import run_node
from tactix_sdk import Calibrator
from tactix_sdk.evaluate import bind_symbols


def observe(network: Any, calibrator: Calibrator) -> Mapping[str, tuple[float, float]]:
    """The ranges that it finds. Raises ShapeError for batches that do not fit."""
    for batch in calibrator.batches():
        env = bind_symbols(network, {name: x.shape for name, x in batch.items()})
        known = {v: batch[v.name] for v in network.inputs} | {v: v.const for v in network.constants}
        for node in network.nodes:
            made = run_node(node, [None if v is None else known[v] for v in node.inputs], env)
            known |= dict(zip(node.outputs, made, strict=True))
        for v, x in known.items():
            if v.const is None and v.spec.dtype.is_float:
                calibrator.observe(v.name, x)
    return calibrator.ranges()
