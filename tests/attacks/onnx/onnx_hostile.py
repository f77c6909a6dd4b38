"""Hostile models in memory, by name, with a part of the refusal each must get (None: it imports).

As a program: imports those of one table, and prints a row of JSON for each. So memory is measured
outside of the tests.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.helper import make_function, make_graph, make_node, make_opsetid, make_tensor_value_info

F32, I64, BOOL = 1, 7, 9
Case = tuple[Callable[[], Any], str | None]


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] = ("y",),
    constants: dict[str, Any] | None = None,
    opset: int = 18,
    functions: Sequence[Any] = (),
    tensors: Sequence[Any] = (),
) -> onnx.ModelProto:
    """A model; its inputs are float32 and its constants arrays."""
    given = {"x": ["n", 4]} if inputs is None else inputs
    graph = make_graph(
        list(nodes),
        "g",
        [make_tensor_value_info(k, F32, list(s)) for k, s in given.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), k) for k, a in (constants or {}).items()]
        + list(tensors),
    )
    opsets = [make_opsetid("", opset), make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def huge(op: str, *more: Any, reduced: bool = True, **attrs: Any) -> Callable[[], Any]:
    """An operator over constants whose result would be huge; and a sum of it, which is small."""

    def make() -> Any:
        constants = {f"c{i}": v for i, v in enumerate(more)}
        nodes = [make_node(op, list(constants), ["t"], **attrs)]
        nodes += (
            [make_node("ReduceSum", ["t"], ["y"], keepdims=0)]
            if reduced
            else [make_node("Identity", ["t"], ["y"])]
        )
        return model(nodes, {}, constants=constants)

    return make


def in_branch() -> Any:
    """The sum of a huge tensor inside the branch of an If whose condition is known."""
    nodes = [
        make_node("ConstantOfShape", ["size"], ["t"]),
        make_node("ReduceSum", ["t"], ["s"], keepdims=0),
    ]
    branch = make_graph(nodes, "b", [], [make_tensor_value_info("s", F32, [])])
    return model(
        [make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)],
        {},
        constants={"yes": np.array(True), "size": ints(1 << 33)},
    )


def in_function() -> Any:
    nodes = [
        make_node("ConstantOfShape", ["size"], ["t"]),
        make_node("ReduceSum", ["t"], ["s"], keepdims=0),
    ]
    f = make_function("f", "sum", ["size"], ["s"], nodes, [make_opsetid("", 18)])
    return model(
        [make_node("sum", ["c"], ["y"], domain="f")],
        {},
        constants={"c": ints(1 << 33)},
        functions=[f],
    )


def function(name: str, body: Sequence[Any], attributes: Sequence[str] = ()) -> Any:
    return make_function(
        "f", name, ["x"], ["y"], body, [make_opsetid("", 18), make_opsetid("f", 1)], attributes
    )


def call(name: str, x: str = "x", y: str = "y", **attrs: Any) -> Any:
    return make_node(name, [x], [y], domain="f", **attrs)


def laughs(levels: int, width: int) -> Any:
    """Functions that call the next one ``width`` times each."""
    functions = []
    for i in range(levels):
        names = ["x", *(f"t{j}" for j in range(width - 1)), "y"]
        pairs = list(pairwise(names))
        leaf = i == levels - 1
        functions.append(
            function(
                f"f{i}",
                [
                    make_node("Relu", [a], [b]) if leaf else call(f"f{i + 1}", a, b)
                    for a, b in pairs
                ],
            )
        )
    return model([call("f0")], functions=functions)


def rings() -> Any:
    return model([call("a")], functions=[function("a", [call("b")]), function("b", [call("a")])])


def branch_recursion() -> Any:
    """A function that calls itself in a branch."""
    branch = make_graph([call("a", "x", "z")], "b", [], [make_tensor_value_info("z", F32, [4])])
    body = [
        make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True))),
        make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    return model([call("a")], functions=[function("a", body)])


def copied_weights() -> Any:
    """A function with 4 MB of weights, called 400 times."""
    w = onnx.numpy_helper.from_array(np.zeros((1 << 20,), np.float32))
    body = [
        make_node("Constant", [], ["w"], value=w),
        make_node("ReduceMax", ["w"], ["m"], keepdims=0),
    ]
    f = function("heavy", [*body, make_node("Add", ["x", "m"], ["y"])])
    names = ["x", *(f"t{i}" for i in range(399)), "y"]
    return model([call("heavy", a, b) for a, b in pairwise(names)], functions=[f])


def copied_graphs(levels: int = 40) -> Any:
    """Functions whose graph attribute doubles at every level."""

    def reference(name: str) -> Any:
        a = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH, ref_attr_name="g")
        return a

    functions = []
    for i in range(levels):
        inner = make_node("If", ["c"], ["z"])
        inner.attribute.extend([reference("then_branch"), reference("else_branch")])
        graph = make_graph([inner], "i", [], [make_tensor_value_info("z", BOOL, [])])
        last = i == levels - 1
        node = make_node("Relu", ["x"], ["y"]) if last else call(f"f{i + 1}", g=graph)
        condition = make_node(
            "Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(True))
        )
        functions.append(function(f"f{i}", [condition, node], ["g"]))
    leaf = make_graph(
        [make_node("Not", ["c"], ["z"])], "l", [], [make_tensor_value_info("z", BOOL, [])]
    )
    return model([call("f0", g=leaf)], functions=functions, constants={"c": np.array(True)})


def long_names(levels: int = 60, length: int = 200_000) -> Any:
    functions = []
    for i in range(levels):
        nodes = (
            [make_node("Relu", ["x"], ["t"])] if i == levels - 1 else [call(f"f{i + 1}", "x", "t")]
        )
        nodes[0].name = str(i) * length
        functions.append(function(f"f{i}", [*nodes, make_node("Neg", ["t"], ["y"])]))
    return model([call("f0")], functions=functions)


def nested_ifs(levels: int) -> Any:
    out = model([], outputs=["z"], constants={"yes": np.array(True)})
    graph = out.graph
    for _ in range(levels):
        node = graph.node.add(op_type="If", input=["yes"], output=["z"])
        node.attribute.add(name="else_branch", type=onnx.AttributeProto.GRAPH).g.name = "other"
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.output.add(name="z")
    graph.node.add(op_type="Relu", input=["x"], output=["z"])
    return out


def shape_chain(step: Callable[[str, str, str], list[Any]], levels: int) -> Any:
    """Arithmetic on the size of an input, repeated; the result is added to the input."""
    nodes = [make_node("Size", ["x"], ["t0"])]
    for i in range(levels):
        nodes += step(f"t{i}", f"t{i + 1}", f"s{i}")
    nodes += [make_node("Cast", [f"t{levels}"], ["u"], to=F32), make_node("Add", ["x", "u"], ["y"])]
    return model(nodes, {"x": ["n", "m"]}, constants={"two": np.int64(2), "one": np.int64(1)})


def squares(levels: int) -> Any:
    return shape_chain(lambda a, b, _: [make_node("Mul", [a, a], [b])], levels)


def binomials(levels: int) -> Any:
    return shape_chain(
        lambda a, b, s: [make_node("Add", [a, "one"], [s]), make_node("Mul", [s, a], [b])], levels
    )


def trees(levels: int) -> Any:
    def step(a: str, b: str, s: str) -> list[Any]:
        return [
            make_node("Div", [a, "two"], [s]),
            make_node("Mod", [a, "two"], [s + "m"]),
            make_node("Mul", [s, s + "m"], [b]),
        ]

    return shape_chain(step, levels)


def constant_squares() -> Any:
    """An integer squared until it would have more digits than memory has bytes."""
    nodes = [make_node("Mul", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(50)]
    nodes += [make_node("Cast", ["t50"], ["u"], to=F32), make_node("Add", ["x", "u"], ["y"])]
    return model(nodes, constants={"t0": np.int64(3)})


def chain(length: int) -> Any:
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return model([make_node("Relu", [a], [b]) for a, b in pairwise(names)])


def dims(*shape: Any, op: str = "Relu") -> Callable[[], Any]:
    return lambda: model([make_node(op, ["x"], ["y"])], {"x": list(shape)})


LARGE = 1 << 40
E36 = 1 << 36

EXPANSIONS: dict[str, Case] = {
    "a constant of 2**40 elements": (huge("ConstantOfShape", ints(LARGE), reduced=False), None),
    "the sum of 2**40 constants": (huge("ConstantOfShape", ints(LARGE)), None),
    "a constant beyond 64 bits": (huge("ConstantOfShape", ints(1 << 62, 1 << 62)), "no tensor is as"),
    "a constant of negative size": (huge("ConstantOfShape", ints(-5), reduced=False), "would be"),
    "expand to 2**40": (huge("Expand", np.ones(1, np.float32), ints(LARGE)), None),
    "tile 2**40 times": (huge("Tile", np.ones(1, np.float32), ints(LARGE)), None),
    "tile -1 times": (huge("Tile", np.ones(2, np.float32), ints(-1)), "would be"),
    "range of 2**40": (huge("Range", np.int64(0), np.int64(LARGE), np.int64(1)), None),
    "range of floats to infinity": (huge("Range", *np.array([0, np.inf, 1], np.float32)), "range"),
    "range of nan": (huge("Range", *np.array([0, 1, np.nan], np.float32)), "range"),
    "range with step 0": (huge("Range", np.int64(0), np.int64(5), np.int64(0)), "step"),
    "pad by 2**40": (huge("Pad", np.ones(1, np.float32), ints(LARGE, 0)), None),
    "pad and cut 2**40": (huge("Pad", np.ones(4, np.float32), ints(E36, -E36)), None),
    "a window of 2**40": (huge("HannWindow", np.int64(LARGE)), None),
    "one-hot of depth 2**40": (
        huge("OneHot", ints(0, 1), np.int64(LARGE), np.zeros(2, np.float32)), None
    ),
    "resize to 2**40": (
        huge("Resize", np.ones((1, 1, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32),
             ints(1, 1, LARGE)), None
    ),
    "pooling with pads of 2**30": (
        huge("MaxPool", np.ones((1, 1, 4, 4), np.float32), kernel_shape=[1 << 30] * 2, strides=[1 << 30] * 2,
             pads=[(1 << 30) - 8] * 4), None
    ),
    "convolution with pads of 2**30": (
        huge("Conv", np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32), strides=[1 << 30] * 2,
             pads=[1 << 30] * 4), None
    ),
    "a matrix of 2**20 by 2**20": (huge("EyeLike", np.ones((1, 1), np.float32), dtype=F32), None),
    "in a branch": (in_branch, None),
    "in a function": (in_function, None),
    "2**31 outputs of a split": (
        lambda: model([make_node("Split", ["x"], ["y", "z"], axis=1, num_outputs=1 << 31)]), "num_outputs"
    ),
    "a triangle of 2**40 by 2**4": (dims(LARGE, 16, op="Trilu"), None),
    "a triangle of 2**4 by 2**40": (dims(16, LARGE, op="Trilu"), None),
    "an input of 2**62 elements": (dims(1 << 62), "no tensor is as"),
    "an input of 1000 axes": (dims(*[1] * 1000), "rank"),
    "flattened 2**40": (dims(LARGE, 4, op="Flatten"), None),
    "functions that stand for 10**30 nodes": (lambda: laughs(30, 10), "too many"),
    "functions that stand for 10**5000 nodes": (lambda: laughs(5000, 10), "too many"),
    "functions nested 100 deep": (lambda: laughs(100, 1), "nested too deeply"),
    "functions nested 60 deep": (lambda: laughs(60, 1), None),
    "functions that call each other": (rings, "calls itself"),
    "a function that calls itself in a branch": (branch_recursion, "calls itself"),
    "a function that repeats weights": (copied_weights, "repeat too much"),
    "functions that double a graph": (copied_graphs, "repeat too much"),
    "functions with long names": (long_names, None),
    "branches nested 20 deep": (lambda: nested_ifs(20), None),
    "branches nested 300 deep": (lambda: nested_ifs(300), "nested too deeply"),
    "a size squared 50 times": (lambda: squares(50), "dimension"),
    "a polynomial of degree 2**30": (lambda: binomials(30), "dimension"),
    "a tree of 2**200 divisions": (lambda: trees(200), "dimension"),
    "a number of 2**50 digits": (constant_squares, None),
    "a dimension of 10000 parentheses": (dims("(" * 10000 + "n" + ")" * 10000, 4), None),
    "a dimension of 10000 signs": (dims("-" * 10000 + "n", 4), None),
    "a dimension divided by 0": (dims("7 % 0", "n // 0", "n"), None),
    "a dimension of 10 MB": (dims("n" * 10_000_000, 4), None),
}  # fmt: skip


def varint(number: int) -> bytes:
    """7 bits per byte, lowest first."""
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def message(field: int, content: bytes) -> bytes:
    """A field with a length in protobuf's wire format."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def many(*path: int, count: int = 5 << 20, before: bytes = b"") -> Callable[[], bytes]:
    """A file with a field of no content ``count`` times, under fields of a ModelProto."""

    def make() -> bytes:
        content = before + message(path[-1], b"") * count
        for field in reversed(path[:-1]):
            content = message(field, content)
        return b"\x08\x0a\x42\x02\x10\x12" + content  # IR version 10, operator set 18

    return make


GROUP = bytes([15 << 3 | 3, 15 << 3 | 4])
"""An empty group, which parsers skip."""

MANY: dict[str, Case] = {
    "as many nodes as may be": (many(7, 1, count=(1 << 20) - 2), ""),
    "nodes": (many(7, 1), "too many parts"),
    "nodes behind a group": (many(7, 1, before=GROUP), "too many parts"),
    "attributes": (many(7, 1, 5), "too many parts"),
    "graphs of an attribute": (many(7, 1, 5, 11), "too many parts"),
    "nodes of a branch": (many(7, 1, 5, 6, 1), "too many parts"),
    "initializers": (many(7, 5), "too many parts"),
    "entries of external data": (many(7, 5, 13), "too many parts"),
    "inputs": (many(7, 11), "too many parts"),
    "dims of an input": (many(7, 11, 2, 1, 2, 1), "too many parts"),
    "shapes inside the graph": (many(7, 13), "too many parts"),
    "functions": (many(25), "too many parts"),
    "operator sets": (many(8), "too many parts"),
    "names that a node reads": (many(7, 1, 1), ""),
}

LONG: dict[str, Case] = {"50000 nodes in a chain": (lambda: chain(50_000), None)}


def main(table: dict[str, Case]) -> None:
    import tactix
    from tactix.base.errors import ModelImportError

    builder = tactix.Builder()
    builder.import_model(model([make_node("Relu", ["x"], ["y"])]))
    for name, (make, _) in table.items():
        source = make()
        data = (
            source
            if "300 deep" in name or isinstance(source, bytes)
            else source.SerializeToString()
        )
        del source
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            builder.import_model(data)
            error = ""
        except ModelImportError as e:
            error = str(e)
        except BaseException as e:
            error = f"LEAKED {type(e).__name__}: {e}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(
            json.dumps([name, error[:3000], grown >> 10, round(time.process_time() - start, 3)]),
            flush=True,
        )


if __name__ == "__main__":
    main({"expansions": EXPANSIONS, "many": MANY, "long": LONG}[sys.argv[1]])
