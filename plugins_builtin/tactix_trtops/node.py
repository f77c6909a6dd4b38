"""One plugin into a network that is there, as if a node of a model named it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix_trtops.operator import PluginOperator

if TYPE_CHECKING:
    import onnx

    from tactix.contracts.graph import Value
    from tactix.network.definition import NetworkDefinition
    from tactix_trtops.operator import Field


def added(
    network: NetworkDefinition,
    plugin: PluginOperator,
    name: str,
    inputs: Sequence[Value],
    fields: Mapping[str, Field],
) -> list[Value]:
    """The outputs of layers that are added for a plugin of that name. Raises ModelImportError,
    UnsupportedOperator.
    """
    from tactix_onnx.catalog import Catalog
    from tactix_onnx.graph import Scope, Walker
    from tactix_onnx.survey import Survey, Unreached
    from tactix_onnx.weights import WeightReader

    survey, catalog = Survey(), Catalog(plugin.converters(), network.layers.values(), ())
    node = _node(plugin, name, len(inputs), fields)
    scope = Scope({plugin.domains[0]: 1})
    scope.values.update(zip(node.input, inputs, strict=True))
    walker = Walker(network, catalog, WeightReader(None), survey)
    made: list[Value | None] = []
    with contextlib.suppress(Unreached):  # the survey says why
        made = walker.run([node], node.output, scope)
    survey.finish()
    return [v for v in made if v is not None]


def _node(
    plugin: PluginOperator, name: str, inputs: int, fields: Mapping[str, Field]
) -> onnx.NodeProto:
    import numpy as np
    from onnx import helper, numpy_helper

    node = helper.make_node(
        plugin.names[0],
        [f"{name}/input{i}" for i in range(inputs)],
        [f"{name}/output{i}" for i in range(plugin.count(fields))],
        name=name,
        domain=plugin.domains[0],
    )
    for key, value in fields.items():
        stored = numpy_helper.from_array(value, key) if isinstance(value, np.ndarray) else value
        node.attribute.append(helper.make_attribute(key, stored))
    return node
