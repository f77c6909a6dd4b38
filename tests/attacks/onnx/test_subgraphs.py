"""Bodies of If, Loop and Scan that contradict their operator or themselves: each gets a typed
refusal, none a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_graph, make_node, make_tensor_value_info
from onnx_hostile import BOOL, F32, I64, model

import tactix

Refusal = Callable[[Any], tactix.TactixError]
RELU = make_node("Relu", ["x"], ["z"])
GOES_ON = make_node("Identity", ["go"], ["again"])
NEXT = make_node("Neg", ["s"], ["t"])


def graph(
    nodes: Sequence[Any], inputs: Sequence[Any] = (), outputs: Sequence[str] = ("z",)
) -> onnx.GraphProto:
    """A body; inputs are names of float tensors, or names with a type and shape."""
    given = [i if isinstance(i, tuple) else (i, F32, ["n", 4]) for i in inputs]
    infos = [make_tensor_value_info(*i) for i in given]
    return make_graph(
        list(nodes), "body", infos, [onnx.helper.make_empty_tensor_value_info(o) for o in outputs]
    )


def branches(then: Any, other: Any | None = None, outputs: Sequence[str] = ("y",)) -> Any:
    """An If whose condition only running tells."""
    attributes = {"then_branch": then, "else_branch": then if other is None else other}
    nodes = [
        make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        make_node("Cast", ["m"], ["c"], to=BOOL),
        make_node("If", ["c"], list(outputs), name="it", **attributes),
    ]
    return model(nodes, outputs=outputs)


COUNT: tuple[Any, ...] = ("i", I64, [])
GO: tuple[Any, ...] = ("go", BOOL, [])


def loop(
    nodes: Sequence[Any] = (GOES_ON, NEXT),
    inputs: Sequence[Any] = (COUNT, GO, "s"),
    results: Sequence[str] = ("again", "t"),
    outputs: Sequence[str] = ("y",),
    given: Sequence[str] = ("trips", "", "x"),
) -> Any:
    """A Loop over one state; its number of iterations is an input of the model."""
    body = graph(nodes, inputs, results)
    m = model(
        [make_node("Loop", list(given), list(outputs), name="it", body=body)], outputs=outputs
    )
    m.graph.input.append(make_tensor_value_info("trips", I64, []))
    return m


def scan(
    nodes: Sequence[Any] = (NEXT,),
    inputs: Sequence[Any] = (("s", F32, [4]),),
    results: Sequence[str] = ("t",),
    outputs: Sequence[str] = ("y",),
    given: Sequence[str] = ("x",),
    count: int = 1,
    **attributes: Any,
) -> Any:
    """A Scan over the rows of x."""
    body = graph(nodes, inputs, results)
    fields = {"num_scan_inputs": count, **attributes, "body": body}
    return model(
        [make_node("Scan", list(given), list(outputs), name="it", **fields)], outputs=outputs
    )


def nested(kind: str, depth: int) -> Any:
    """Bodies in bodies."""
    m = branches(graph([RELU])) if kind == "If" else loop() if kind == "Loop" else scan()
    node = m.graph.node[-1]
    for _ in range(depth):
        bodies = [a.g for a in node.attribute if a.HasField("g")]
        inner = bodies[0].node.add()
        inner.CopyFrom(
            onnx.NodeProto(op_type=kind, name=node.name, input=node.input, output=["inner"])
        )
        for a in node.attribute:
            copied = inner.attribute.add(name=a.name, type=a.type, i=a.i)
            if a.HasField("g"):
                copied.g.input.extend(a.g.input)
                copied.g.output.extend(a.g.output)
                copied.g.node.extend(list(a.g.node)[:-1] if a.g is bodies[0] else a.g.node)
        bodies[0].output[-1].name = "inner"
        node = inner
    return m


def without(m: Any, attribute: str) -> Any:
    node = m.graph.node[-1]
    kept = [a for a in node.attribute if a.name != attribute]
    del node.attribute[:]
    node.attribute.extend(kept)
    return m


GHOST = make_node("Add", ["s", "ghost"], ["t"])

REFUSED: dict[str, Callable[[], Any]] = {
    "If: branches of unlike numbers of outputs": lambda: branches(
        graph([RELU]), graph([RELU, make_node("Abs", ["x"], ["w"])], (), ["z", "w"])
    ),
    "If: fewer outputs than the node": lambda: branches(graph([RELU]), outputs=["y", "q"]),
    "If: a branch with inputs": lambda: branches(graph([make_node("Abs", ["s"], ["z"])], ["s"])),
    "If: a branch without outputs": lambda: branches(graph([RELU], (), [])),
    "If: a name that does not exist": lambda: branches(graph([make_node("Add", ["x", "ghost"], ["z"])])),
    "If: an output that does not exist": lambda: branches(graph([RELU], (), ["ghost"])),
    "If: a branch that reads the result": lambda: branches(graph([make_node("Abs", ["y"], ["z"])])),
    "If: no else": lambda: without(branches(graph([RELU])), "else_branch"),
    "If: no then": lambda: without(branches(graph([RELU])), "then_branch"),
    "If: branches of unlike dtypes": lambda: branches(
        graph([RELU]), graph([make_node("Cast", ["x"], ["z"], to=I64)])
    ),
    "If: a condition of four numbers": lambda: model(
        [make_node("Cast", ["x"], ["c"], to=BOOL),
         make_node("If", ["c"], ["y"], name="it", then_branch=graph([RELU]), else_branch=graph([RELU]))],
        {"x": [2, 2]},
    ),
    "If: a cycle in a branch": lambda: branches(
        graph([make_node("Abs", ["q"], ["z"]), make_node("Abs", ["z"], ["q"])])
    ),
    "If: a graph in place of the node": lambda: model([make_node("If", ["x"], ["y"], then_branch=1, else_branch=2)]),
    "If: 1000 deep": lambda: nested("If", 1000),
    "Loop: no inputs in the body": lambda: loop(inputs=()),
    "Loop: too few inputs in the body": lambda: loop(inputs=(COUNT, GO)),
    "Loop: too many inputs in the body": lambda: loop(inputs=(COUNT, GO, "s", "more")),
    "Loop: no outputs of the body": lambda: loop(results=()),
    "Loop: only the condition as output": lambda: loop(results=("again",)),
    "Loop: fewer outputs than the node": lambda: loop(outputs=["y", "q", "r"]),
    "Loop: a name that does not exist": lambda: loop([GOES_ON, GHOST]),
    "Loop: an output that does not exist": lambda: loop(results=("again", "ghost")),
    "Loop: a body that captures its own output": lambda: loop([GOES_ON, make_node("Add", ["s", "y"], ["t"])]),
    "Loop: a body that reads what it stacks": lambda: loop(
        [GOES_ON, make_node("Add", ["s", "q"], ["t"]), make_node("Abs", ["s"], ["w"])], results=("again", "t", "w"),
        outputs=["y", "q"],
    ),
    "Loop: a state that changes its dtype": lambda: loop([GOES_ON, make_node("Cast", ["s"], ["t"], to=I64)]),
    "Loop: a state that gains an axis": lambda: loop(
        [GOES_ON, make_node("Constant", [], ["one"], value_ints=[0]), make_node("Unsqueeze", ["s", "one"], ["t"])]
    ),
    "Loop: a body with two inputs of one name": lambda: loop(inputs=(COUNT, GO, "go")),
    "Loop: a body with two makers of a name": lambda: loop([GOES_ON, NEXT, make_node("Abs", ["s"], ["t"])]),
    "Loop: a cycle in the body": lambda: loop([GOES_ON, make_node("Add", ["s", "t"], ["t"])]),
    "Loop: a state that is missing": lambda: loop(given=["trips", "", ""]),
    "Loop: no body": lambda: without(loop(), "body"),
    "Loop: an unknown operator in the body": lambda: loop([GOES_ON, make_node("Nonsense", ["s"], ["t"])]),
    "Loop: a wrong shape in the body": lambda: loop(
        [GOES_ON, make_node("Constant", [], ["w"], value_floats=[1.0, 2.0]), make_node("Add", ["s", "w"], ["t"])]
    ),
    "Loop: 1000 deep": lambda: nested("Loop", 1000),
    "Scan: no inputs in the body": lambda: scan(inputs=()),
    "Scan: too many inputs in the body": lambda: scan(inputs=(("s", F32, [4]), ("more", F32, [4]))),
    "Scan: no outputs of the body": lambda: scan(results=()),
    "Scan: fewer outputs than the node": lambda: scan(outputs=["y", "q"]),
    "Scan: a name that does not exist": lambda: scan([GHOST]),
    "Scan: an output that does not exist": lambda: scan(results=("ghost",)),
    "Scan: a body that captures its own output": lambda: scan([make_node("Add", ["s", "y"], ["t"])]),
    "Scan: no body": lambda: without(scan(), "body"),
    "Scan: scans nothing": lambda: scan(count=0),
    "Scan: scans more than it is given": lambda: scan(count=2),
    "Scan: scans -1 inputs": lambda: scan(count=-1),
    "Scan: scans 2**40 inputs": lambda: scan(count=1 << 40),
    "Scan: scans 2**30 inputs": lambda: scan(count=1 << 30),
    "Scan: no number of scanned inputs": lambda: without(scan(), "num_scan_inputs"),
    "Scan: an axis that is none": lambda: scan(scan_input_axes=[2]),
    "Scan: an axis of 2**40": lambda: scan(scan_input_axes=[1 << 40]),
    "Scan: an output axis that is none": lambda: scan(scan_output_axes=[5]),
    "Scan: an output axis of -2**40": lambda: scan(scan_output_axes=[-(1 << 40)]),
    "Scan: more axes than inputs": lambda: scan(scan_input_axes=[0, 0]),
    "Scan: more output axes than outputs": lambda: scan(scan_output_axes=[0, 0]),
    "Scan: more directions than inputs": lambda: scan(scan_input_directions=[0, 0]),
    "Scan: a direction that is none": lambda: scan(scan_input_directions=[7]),
    "Scan: lengths that differ": lambda: model(
        [make_node("Scan", ["x", "w"], ["y"], name="it", num_scan_inputs=2, body=graph(
            [make_node("Add", ["a", "b"], ["t"])], [("a", F32, [4]), ("b", F32, [4])], ["t"]))],
        {"x": [3, 4], "w": [5, 4]},
    ),
    "Scan: of a scalar": lambda: model(
        [make_node("Scan", ["x"], ["y"], name="it", num_scan_inputs=1, body=graph([NEXT], ["s"], ["t"]))], {"x": []}
    ),
    "Scan: 1000 deep": lambda: nested("Scan", 1000),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_contradicts_itself_is_refused(name: str, refusal: Refusal) -> None:
    text = str(refusal(REFUSED[name]()))
    assert "Traceback" not in text
    assert "RecursionError" not in text


KEPT: dict[str, Callable[[], Any]] = {
    "If": lambda: branches(graph([RELU])),
    "Loop": loop,
    "Scan": scan,
    "If, nested": lambda: nested("If", 3),
    "Loop, nested": lambda: nested("Loop", 2),
    "Loop: constants of the graph around": lambda: loop(
        [GOES_ON, make_node("Add", ["s", "x"], ["t"])]
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_the_sound_forms_of_these_models_get_no_other_error_than_a_typed_one(
    name: str, outcome: Callable[[Any], Any]
) -> None:
    """They are what the refused ones differ from in one thing."""
    network = outcome(KEPT[name]())
    assert network is None or network.outputs


@pytest.mark.parametrize("count", [0, 1, -5, 1 << 40, np.iinfo(np.int64).max])
def test_a_loop_of_any_constant_count_is_not_unrolled(
    count: int, outcome: Callable[[Any], Any]
) -> None:
    body = graph([GOES_ON, NEXT], (COUNT, GO, "s"), ["again", "t"])
    m = model(
        [make_node("Loop", ["k", "", "x"], ["y"], name="it", body=body)],
        constants={"k": np.int64(count)},
    )
    network = outcome(m)
    assert network is None or len(network.nodes) < 100
