"""Random networks of branches and loops in each other, as ONNX models.

What decides, conditions and numbers of runs, is made of integers, so that rounding changes no
decision. Values are rows of float32 and float16, an integer and a bool.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    "f": TensorProto.FLOAT,
    "h": TensorProto.FLOAT16,
    "i": TensorProto.INT64,
    "b": TensorProto.BOOL,
}
"""By what names of values begin with: rows of floats, and single integers and bools."""


@dataclass
class Scope:
    """A graph that grows. ``values``: names that its nodes may read, those around it included."""

    made: Nest
    values: list[str]
    depth: int
    nodes: list[Any] = field(default_factory=list)

    def any(self, kind: str) -> str:
        return self.made.rng.choice([v for v in self.values if v[0] == kind])

    def add(self, op: str, inputs: list[str], kind: str, **attributes: Any) -> str:
        (name,) = self.adds(op, inputs, kind, **attributes)
        return name

    def adds(self, op: str, inputs: list[str], kinds: str, **attributes: Any) -> list[str]:
        names = [self.made.name(kind) for kind in kinds]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.values += [n for n, kind in zip(names, kinds, strict=True) if kind in TYPES]
        return names

    def constant(self, value: Any, kind: str) -> str:
        tensor = numpy_helper.from_array(np.asarray(value))
        return self.add("Constant", [], kind, value=tensor)

    def inner(self, *own: str) -> Scope:
        return Scope(self.made, [*self.values, *own], self.depth + 1)

    def graph(self, inputs: list[str], outputs: list[str]) -> Any:
        """Outputs are new names, as an outer value cannot be one."""
        given = [self.add("Identity", [v], v[0]) for v in outputs]
        return helper.make_graph(self.nodes, self.made.name("g"), *map(_infos, (inputs, given)))


def _infos(names: list[str]) -> list[Any]:
    return [_info(n, ["n"] if n[0] in "fh" else []) for n in names]


class Nest:
    """A model by its seed. ``deepest``: how many bodies lie in each other. ``open_rows``: whether
    data says how many rows loops stack.
    """

    def __init__(self, seed: int, deepest: int = 3, open_rows: bool = False) -> None:
        self.rng, self._count, self._deepest = random.Random(seed), 0, deepest
        self._open_rows = open_rows

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def model(self) -> onnx.ModelProto:
        """Inputs: ``f_in`` [n], ``h_in`` [n], ``i_in``, ``b_in``, ``rows`` [t, n], ``columns``
        [n, t].
        """
        inputs = _infos(["f_in", "h_in", "i_in", "b_in"])
        for name, shape in (("rows", ["t", "n"]), ("columns", ["n", "t"])):
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        scope = Scope(self, ["f_in", "h_in", "i_in", "b_in"], 0)
        self.fill(scope, 2)
        found = [
            scope.add("Identity", [scope.values[-k]], scope.values[-k][0]) for k in (1, 2, 3, 4)
        ]
        names = list(dict.fromkeys([*found, *(self._control(scope) for _ in range(2))]))
        graph = helper.make_graph(scope.nodes, "nest", inputs, _infos(names))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return model

    def fill(self, scope: Scope, count: int) -> None:
        """Some nodes, and a branch or loop where there is room for one."""
        for _ in range(count):
            self._plain(scope)
        if scope.depth < self._deepest:
            self._control(scope)
        self._plain(scope)

    def _plain(self, scope: Scope) -> str:
        """A node that keeps floats small."""
        kind = self.rng.choice("ffhhiib")
        if kind == "i":
            more = scope.add("Add", [scope.any("i"), scope.any("i")], "i")
            return scope.add("Mod", [more, scope.constant(np.int64(7), "i")], "i")
        if kind == "b":
            limit = scope.constant(np.int64(self.rng.randrange(1, 6)), "i")
            less = scope.add("Less", [scope.any("i"), limit], "b")
            return scope.add(self.rng.choice(["And", "Or", "Xor"]), [less, scope.any("b")], "b")
        how = self.rng.randrange(4)
        if how == 0:
            return scope.add("Where", [scope.any("b"), scope.any(kind), scope.any(kind)], kind)
        if how == 1:
            return scope.add("Neg", [scope.any(kind)], kind)
        if how == 2:
            other = scope.any("h" if kind == "f" else "f")
            return scope.add("Cast", [other], kind, to=TYPES[kind])
        more = scope.add("Add", [scope.any(kind), scope.any(kind)], kind)
        return scope.add("Tanh", [more], kind)

    def _control(self, scope: Scope) -> str:
        return self.rng.choice([self._branch, self._loop, self._scan])(scope)

    def _branch(self, scope: Scope) -> str:
        kinds = self.rng.choices("ffhib", k=self.rng.randrange(1, 4))
        bodies = {}
        for which in ("then_branch", "else_branch"):
            body = scope.inner()
            self.fill(body, self.rng.randrange(2))
            bodies[which] = body.graph([], [body.any(kind) for kind in kinds])
        return scope.adds("If", [scope.any("b")], "".join(kinds), **bodies)[-1]

    def _loop(self, scope: Scope) -> str:
        states = self.rng.choices("ffhib", k=self.rng.randrange(1, 4))
        taken = [self.name(kind) for kind in states]
        counter, condition = self.name("i"), self.name("b")
        body = scope.inner(counter, condition, *taken)
        self.fill(body, self.rng.randrange(2))
        made = [body.any(kind) for kind in states]
        rows = self.rng.choices("fhi", k=self.rng.randrange(2))
        # of a stack of no rows ONNX Runtime does not know the other axes
        often = scope.constant(np.int64(self.rng.randrange(1 if rows else 0, 4)), "i")
        begins, goes = scope.constant(np.True_, "b"), condition
        if not rows and self.rng.random() < 0.7:
            goes = body.any("b")
            often = scope.add("Mod", [scope.any("i"), scope.constant(np.int64(5), "i")], "i")
            begins = scope.any("b")
        if rows and self._open_rows:
            often = scope.add("Mod", [scope.any("i"), scope.constant(np.int64(5), "i")], "i")
            often = scope.add("Add", [often, scope.constant(np.int64(1), "i")], "i")
            goes = body.any("b")
        graph = body.graph(
            [counter, condition, *taken], [goes, *made, *(body.any(k) for k in rows)]
        )
        given = [scope.any(kind) for kind in states]
        kinds = "".join(states) + "s" * len(rows)
        found = scope.adds("Loop", [often, begins, *given], kinds, body=graph)
        for name, kind in zip(found[len(states) :], rows, strict=True):
            self._summed(scope, name, kind)
        return found[0]

    def _scan(self, scope: Scope) -> str:
        state, row = self.name("f"), self.name("f")
        body = scope.inner(state, row)
        self.fill(body, 1)
        graph = body.graph([state, row], [body.any("f"), body.any("f")])
        ways = ("input_axes", "input_directions", "output_axes", "output_directions")
        way = {f"scan_{name}": [self.rng.randrange(2)] for name in ways}
        sliced = ("rows", "columns")[way["scan_input_axes"][0]]
        last, rows = scope.adds(
            "Scan", [scope.any("f"), sliced], "fs", body=graph, num_scan_inputs=1, **way
        )
        self._summed(scope, rows, "f", way["scan_output_axes"])
        return last

    def _summed(self, scope: Scope, rows: str, kind: str, axis: Sequence[int] = (0,)) -> str:
        """A value made of all rows of a stack."""
        axes = scope.constant(np.array(axis), "s")
        total = scope.add("ReduceSum", [rows, axes], kind, keepdims=0)
        return total if kind == "i" else scope.add("Tanh", [total], kind)


def _info(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, TYPES[name[0]], shape)


def feeds(seed: int, n: int, t: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "f_in": rng.standard_normal(n, np.float32),
        "h_in": rng.standard_normal(n, np.float32).astype(np.float16),
        "i_in": np.array(rng.integers(0, 9)),
        "b_in": np.array(bool(rng.integers(0, 2))),
        "rows": rng.standard_normal((t, n), np.float32),
        "columns": rng.standard_normal((n, t), np.float32),
    }
