"""Tensors that lie in others: cases, and random networks of Concat, Split, Slice and other layers,
against the references, under both runtimes; they need no more memory than without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from strategies import builder

import tactix
from tactix.config import OptimizationProfile
from tactix.contracts.graph import Value
from tactix.contracts.tactic import Reject
from tactix.network.definition import NetworkDefinition
from tactix.plan.parts import PART
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix_cpu.compiler import CCompiler
from tactix_ops.tactics.parts import PartsTactic
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.skipif(bool(CCompiler().available()), reason="no C compiler")

COLUMNS = 16
"""Of float32: every row begins at a multiple of 64 bytes."""


def _network(*shapes: tuple[Any, ...]) -> tuple[NetworkDefinition, list[Value]]:
    net = builder().create_network("parts")
    return net, [net.add_input(f"x{i}", "f32", shape) for i, shape in enumerate(shapes)]


def _add(net: NetworkDefinition, layer: str, *inputs: Value, **attrs: Any) -> Value:
    return net.add_layer(f"tactix.{layer}", list(inputs), **attrs)[0]


def _step(net: NetworkDefinition, x: Value) -> Value:
    """A step that no rule merges with those around it."""
    return _add(net, "Softmax", x, axis=-1)


def _join(net: NetworkDefinition, *inputs: Value) -> Value:
    return _add(net, "Concat", *inputs, axis=0)


def _split(net: NetworkDefinition, x: Value, *sizes: int) -> list[Value]:
    return list(net.add_layer("tactix.Split", [x], axis=0, sizes=sizes))


def _built(net: NetworkDefinition, **ranges: Any) -> Engine:
    config = builder().create_builder_config()
    config.builder_optimization_level = 0
    if ranges:
        config.add_optimization_profile(OptimizationProfile(ranges))
    return builder().build(net, config)


def _parts(plan: Plan) -> list[str]:
    return [b.name for b in plan.buffers if b.kind == PART]


def _copies(plan: Plan) -> list[str]:
    moving = ("Concat", "Split", "Slice", "Reformat")
    return [s.name for s in plan.steps if any(k in s.info["layers"][0] for k in moving)]


def _agrees(net: NetworkDefinition, engine: Engine, tmp_path: Path, **env: int) -> None:
    rng = np.random.default_rng(0)
    feed = {v.name: rng.standard_normal(v.spec.at(env)).astype(np.float32) for v in net.inputs}
    want = evaluate(net, feed)
    engine.save(tmp_path / "plan")
    lean = tactix.Runtime(flavour="lean").deserialize(tmp_path / "plan")
    for runs in (engine, lean):
        got = runs.create_execution_context().run(feed)
        for name in net.output_names:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_what_a_concat_joins_is_written_in_its_place(tmp_path: Path) -> None:
    net, (x, y) = _network((4, COLUMNS), (2, COLUMNS))
    net.mark_output(_step(net, _join(net, _step(net, x), _step(net, y))), "out")
    engine = _built(net)
    assert len(_parts(engine.plan)) == 2
    assert not _copies(engine.plan)
    _agrees(net, engine, tmp_path)


def test_what_a_split_gives_is_read_in_its_place(tmp_path: Path) -> None:
    net, (x,) = _network((6, COLUMNS))
    for i, part in enumerate(_split(net, _step(net, x), 1, 3, 2)):
        net.mark_output(_step(net, part), f"out{i}")
    engine = _built(net)
    assert len(_parts(engine.plan)) == 3
    assert not _copies(engine.plan)
    _agrees(net, engine, tmp_path)


def test_a_concat_of_all_before_lies_around_theirs(tmp_path: Path) -> None:
    """A dense block: each layer reads all layers before it."""
    net, (x,) = _network((2, COLUMNS))
    found = [_step(net, x)]
    for _ in range(4):
        whole = _join(net, *found) if len(found) > 1 else found[0]
        found.append(_step(net, _add(net, "ReduceMax", whole, axes=(0,), keepdims=True)))
    net.mark_output(_step(net, _join(net, *found)), "out")
    engine = _built(net)
    assert not _copies(engine.plan)
    _agrees(net, engine, tmp_path)


def test_what_cannot_lie_in_its_place_is_copied(tmp_path: Path) -> None:
    """An input, a constant, an output, a part that is there twice, and one of another whole."""
    net, (x, y) = _network((2, COLUMNS), (3, COLUMNS))
    one, two = _step(net, x), _step(net, y)
    fixed = net.add_constant(np.ones((1, COLUMNS), np.float32))
    net.mark_output(one, "one")
    net.mark_output(_step(net, _join(net, x, one, two, two, fixed)), "first")
    net.mark_output(_step(net, _join(net, two, _step(net, two))), "second")
    net.mark_output(_join(net, two, one), "third")
    part, rest = _split(net, _step(net, two), 1, 2)
    net.mark_output(part, "part")
    net.mark_output(_step(net, rest), "rest")
    none = _add(net, "Slice", two, begins=(0,), sizes=(0,), axes=(0,), steps=(1,))
    net.mark_output(_step(net, _join(net, _step(net, none), _step(net, two))), "with_none")
    _agrees(net, _built(net), tmp_path)


def test_parts_begin_where_symbols_say(tmp_path: Path) -> None:
    net, (x, y) = _network(("rows", COLUMNS), (2, COLUMNS))
    net.mark_output(_step(net, _join(net, _step(net, x), _step(net, y))), "out")
    engine = _built(net, x0=((1, COLUMNS), (4, COLUMNS), (64, COLUMNS)))
    assert len(_parts(engine.plan)) == 2
    for rows in (4, 1, 7, 33, 64):
        _agrees(net, engine, tmp_path, rows=rows)


def test_parts_whose_sizes_have_different_names_are_copied(tmp_path: Path) -> None:
    """The sizes are equal when it runs, but nothing says so when the plan is read."""
    net, (x, y) = _network(("rows", "here", COLUMNS), (2, "there", COLUMNS))
    net.mark_output(_step(net, _join(net, _step(net, x), _step(net, y))), "out")
    engine = _built(net)
    assert not _parts(engine.plan)
    _agrees(net, engine, tmp_path, rows=3, here=5, there=5)


def test_a_part_at_no_multiple_of_64_bytes_is_copied(tmp_path: Path) -> None:
    net, (x, y) = _network((3, 5), (2, 5))
    net.mark_output(_step(net, _join(net, _step(net, x), _step(net, y))), "out")
    engine = _built(net)
    assert not _parts(engine.plan)
    _agrees(net, engine, tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    net, values = _network((4, COLUMNS), (3, COLUMNS))
    for _ in range(12):
        kind = rng.choice(["join", "split", "slice", "step", "add", "constant"])
        x = values[rng.integers(len(values))]
        rows = int(x.spec.shape[0])
        if kind == "join" and rows < 40:
            many = [values[i] for i in rng.integers(len(values), size=rng.integers(2, 4))]
            values.append(_join(net, *many))
        elif kind == "split" and rows > 1:
            first = int(rng.integers(1, rows))
            values += _split(net, x, first, rows - first)
        elif kind == "slice" and rows > 2:
            values.append(
                _add(net, "Slice", x, begins=(1,), sizes=(rows - 2,), axes=(0,), steps=(1,))
            )
        elif kind == "add":
            values.append(_add(net, "Add", x, x))
        elif kind == "constant":
            fixed = net.add_constant(rng.standard_normal((2, COLUMNS)).astype(np.float32))
            values.append(_join(net, _step(net, x), fixed))
        else:
            values.append(_step(net, x))
    for i, v in enumerate(values[-4:]):
        net.mark_output(v if i % 2 else _step(net, v), f"out{i}")
    engine = _built(net)
    _agrees(net, engine, tmp_path)
    with mock.patch.object(PartsTactic, "match", return_value=Reject("left out")):
        apart = _built(net)
    assert not _parts(apart.plan)
    assert _arena(engine) <= _arena(apart)


def _arena(engine: Engine) -> int:
    """The least that the arena could have."""
    memory = engine.inspect()["memory"]
    return int(memory["lower_bound"])
