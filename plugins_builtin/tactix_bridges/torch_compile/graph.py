"""What a graph that torch traced takes and gives, and the module that is exported of it.

Dynamo hands over a graph whose parameters and buffers are inputs like any other, and in which sizes
that vary are integers beside the tensors that have them. An engine takes tensors alone: weights
become constants, and sizes are asked of the tensors again.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

LARGEST_SIZE = 1 << 31
"""Of an axis without a bound: tactix wants one, and this is never met."""


class Unsuited(Exception):
    """Why a graph is left to torch; the message is for people."""


class InputKind(enum.Enum):
    """``TENSOR``: new at each call. ``WEIGHT``: a parameter or buffer of a module, or a tensor that
    a module holds. ``SIZE``: of a tensor that is another input.
    """

    TENSOR = "tensor"
    WEIGHT = "weight"
    SIZE = "size"


class OutputKind(enum.Enum):
    """``TENSOR``: the engine makes it. ``NUMBER``: follows from sizes alone. ``FIXED``: is the same
    at each call, such as None.
    """

    TENSOR = "tensor"
    NUMBER = "number"
    FIXED = "fixed"


@dataclass(frozen=True)
class TracedGraph:
    """``inputs``, ``outputs``: a kind for each argument and each result of the graph."""

    module: fx.GraphModule
    inputs: tuple[InputKind, ...]
    outputs: tuple[OutputKind, ...]

    def of_kind(self, kind: InputKind) -> tuple[int, ...]:
        """Which arguments are of a kind."""
        return tuple(i for i, k in enumerate(self.inputs) if k is kind)

    @property
    def fixed(self) -> tuple[object, ...]:
        """The results as the graph names them; those that are FIXED are values."""
        return tuple(_results(self.module.graph))


def traced(module: fx.GraphModule) -> TracedGraph:
    """Raises Unsuited for what no engine could stand in for."""
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = tuple(_input_kind(node) for node in placeholders)
    outputs = tuple(_output_kind(result) for result in _results(module.graph))
    if OutputKind.TENSOR not in outputs:
        raise Unsuited("it makes no tensor")
    _check_aliases(placeholders, _results(module.graph))
    return TracedGraph(module, inputs, outputs)


def _results(graph: fx.Graph) -> Sequence[object]:
    (output,) = graph.find_nodes(op="output")
    results = output.args[0]
    return results if isinstance(results, (tuple, list)) else (results,)


def _input_kind(node: fx.Node) -> InputKind:
    value = node.meta.get("example_value")
    if isinstance(value, torch.SymInt):
        return InputKind.SIZE
    if not isinstance(value, torch.Tensor):
        raise Unsuited(f"its input {node.name} is no tensor but {type(value).__name__}")
    if value.layout is not torch.strided:
        raise Unsuited(f"its input {node.name} is a tensor of layout {value.layout}")
    if value.is_complex():
        raise Unsuited(f"its input {node.name} has complex numbers")
    return InputKind.WEIGHT if _belongs_to_a_module(node) else InputKind.TENSOR


def _belongs_to_a_module(node: fx.Node) -> bool:
    """Dynamo marks what modules hold, as it stays where it is from call to call."""
    argument = node.meta.get("grapharg")
    example = None if argument is None else argument.example
    return getattr(example, "_dynamo_static_input_type", None) is not None


def _output_kind(result: object) -> OutputKind:
    if not isinstance(result, fx.Node):
        return OutputKind.FIXED
    value = result.meta.get("example_value")
    if isinstance(value, torch.SymInt):
        return OutputKind.NUMBER
    if isinstance(value, torch.Tensor) and not value.is_complex():
        return OutputKind.TENSOR
    raise Unsuited(f"its result {result.name} is {_told(value)}")


def _told(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor of complex numbers"
    return f"no tensor but {type(value).__name__}"


def _check_aliases(placeholders: Sequence[fx.Node], results: Sequence[object]) -> None:
    """An engine gives new memory: what torch would give as a view of an input must not be that.
    Raises Unsuited.
    """
    taken = {_storage(node) for node in placeholders} - {None}
    for result in results:
        if isinstance(result, fx.Node) and _storage(result) in taken:
            raise Unsuited(f"its result {result.name} lies in the memory of an input")


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


def exported_module(graph: TracedGraph, arguments: Sequence[torch.Tensor | int]) -> fx.GraphModule:
    """A module of the graph's TENSOR inputs that gives its TENSOR results. ``arguments``: of a
    call; those that are weights become its constants, without a copy.
    """
    module = _copied(graph.module)
    placeholders = module.graph.find_nodes(op="placeholder")
    for node, kind, argument in zip(placeholders, graph.inputs, arguments, strict=True):
        if kind is InputKind.WEIGHT:
            assert isinstance(argument, torch.Tensor)
            _hold(module, node, argument.detach())
    _ask_for_sizes(module.graph, placeholders, graph.inputs)
    _keep_results(module.graph, graph.outputs, OutputKind.TENSOR)
    module.recompile()
    return module


def sizes_module(graph: TracedGraph) -> fx.GraphModule | None:
    """A module of all inputs of the graph that gives its NUMBER results; None without any."""
    if OutputKind.NUMBER not in graph.outputs:
        return None
    module = _copied(graph.module)
    _keep_results(module.graph, graph.outputs, OutputKind.NUMBER)
    module.graph.eliminate_dead_code(
        is_impure_node=lambda node: node.op in ("placeholder", "output")
    )
    module.recompile()
    return module


def _is_border(node: fx.Node) -> bool:
    return node.op in ("placeholder", "output")


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    """With nodes of its own; the modules and tensors that it holds are the same."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        node.meta = copy.copy(node.meta)
    return fx.GraphModule(module, graph)


def _hold(module: fx.GraphModule, node: fx.Node, weight: torch.Tensor) -> None:
    name = f"weight_{node.name}"
    module.register_buffer(name, weight)
    with module.graph.inserting_before(node):
        node.replace_all_uses_with(module.graph.get_attr(name))
    module.graph.erase_node(node)


def _ask_for_sizes(
    graph: fx.Graph, placeholders: Sequence[fx.Node], kinds: Sequence[InputKind]
) -> None:
    """In place of inputs that are sizes. Raises Unsuited for one that no tensor has."""
    tensors = [n for n, k in zip(placeholders, kinds, strict=True) if k is InputKind.TENSOR]
    body = next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
    for node, kind in zip(placeholders, kinds, strict=True):
        if kind is not InputKind.SIZE:
            continue
        source, axis = _who_has(node, tensors)
        with graph.inserting_before(body):
            size = graph.call_function(torch.ops.aten.sym_size.int, (source, axis))
        node.replace_all_uses_with(size)
        graph.erase_node(node)


def _who_has(size: fx.Node, tensors: Sequence[fx.Node]) -> tuple[fx.Node, int]:
    wanted = size.meta["example_value"].node.expr
    for tensor in tensors:
        for axis, n in enumerate(tensor.meta["example_value"].shape):
            if isinstance(n, torch.SymInt) and n.node.expr == wanted:
                return tensor, axis
    raise Unsuited(f"its input {size.name} is a number that is the size of no tensor")


def _keep_results(graph: fx.Graph, kinds: Sequence[OutputKind], kind: OutputKind) -> None:
    (output,) = graph.find_nodes(op="output")
    kept = tuple(r for r, k in zip(_results(graph), kinds, strict=True) if k is kind)
    output.args = (kept,)


def expected_shapes(
    graph: TracedGraph, arguments: Sequence[torch.Tensor | int]
) -> tuple[tuple[int | None, ...], ...]:
    """Shapes of the TENSOR results for these arguments, as torch worked them out when it traced;
    None for sizes that only running tells.
    """
    values: dict[object, int] = {}
    for node, argument in zip(graph.module.graph.find_nodes(op="placeholder"), arguments):
        traced_as = node.meta["example_value"]
        if isinstance(argument, torch.Tensor):
            values |= _symbols(zip(traced_as.shape, argument.shape))
        else:
            values |= _symbols([(traced_as, argument)])
    return tuple(
        tuple(_size_at(n, values) for n in result.meta["example_value"].shape)
        for result, kind in zip(_results(graph.module.graph), graph.outputs)
        if kind is OutputKind.TENSOR and isinstance(result, fx.Node)
    )


def _symbols(sizes: Iterable[tuple[object, int]]) -> dict[object, int]:
    """Of sizes that are one symbol: what they are now."""
    symbolic = ((n.node.expr, value) for n, value in sizes if isinstance(n, torch.SymInt))
    return {expr: value for expr, value in symbolic if expr.is_symbol}


def _size_at(size: int | torch.SymInt, values: Mapping[object, int]) -> int | None:
    if not isinstance(size, torch.SymInt):
        return size
    found = size.node.expr.xreplace(values)
    return int(found) if isinstance(found, int) or found.is_Integer else None


def varying_axes(graph: TracedGraph) -> tuple[dict[int, tuple[int, int]], ...]:
    """Of each TENSOR input: lowest and highest size of the axes that vary from call to call."""
    placeholders = graph.module.graph.find_nodes(op="placeholder")
    return tuple(
        {
            axis: _bounds(n)
            for axis, n in enumerate(node.meta["example_value"].shape)
            if isinstance(n, torch.SymInt)
        }
        for node, kind in zip(placeholders, graph.inputs, strict=True)
        if kind is InputKind.TENSOR
    )


def _bounds(size: torch.SymInt) -> tuple[int, int]:
    """What Dynamo guards that a size is in."""
    found = size.node.shape_env.bound_sympy(size.node.expr)
    upper = int(found.upper) if found.upper.is_Integer else LARGEST_SIZE
    return int(found.lower), min(upper, LARGEST_SIZE)
