"""A model with weights before, inside and behind a loop."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, INSIDE = 64, 160
X = np.random.default_rng(8).standard_normal((2, WIDTH), dtype=np.float32)


def looped() -> bytes:
    """The largest weights are the body's, which runs three times."""
    rng = np.random.default_rng(7)

    def weights(name: str, rows: int, cols: int) -> TensorProto:
        return numpy_helper.from_array(
            rng.standard_normal((rows, cols), dtype=np.float32) / 8, name
        )

    def value(
        name: str, kind: int = TensorProto.FLOAT, shape: tuple[object, ...] = ("n", WIDTH)
    ) -> object:
        return helper.make_tensor_value_info(name, kind, shape)

    def product(x: str, w: str, y: str) -> list[object]:
        return [
            helper.make_node("MatMul", [x, w], [f"{y}_"]),
            helper.make_node("Tanh", [f"{y}_"], [y]),
        ]

    inner = helper.make_graph(
        [*product("s", "up", "a"), *product("a", "down", "t"), helper.make_node("Identity", ["go"], ["on"])], "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("s")],
        [value("on", TensorProto.BOOL, ()), value("t")],
        [weights("up", WIDTH, INSIDE), weights("down", INSIDE, WIDTH)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["m", "", "c"], ["d"], body=inner)
    before, behind = (
        [*product("x", "w0", "b"), *product("b", "w1", "c")],
        [*product("d", "w2", "e")],
    )
    steps = [*before, loop, *behind, *product("e", "w0", "y")]
    held = [
        *(weights(f"w{i}", WIDTH, WIDTH) for i in range(3)),
        numpy_helper.from_array(np.array(3), "m"),
    ]
    graph = helper.make_graph(steps, "looped", [value("x")], [value("y")], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto.SerializeToString()  # type: ignore[no-any-return]
