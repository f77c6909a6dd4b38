"""A network over the built-in layers, and rules applied to it with the numbers compared before and
after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix.contracts.layer import random_array
from tactix.contracts.rule import Rule
from tactix.fuse.rewrite import fuse
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_ops.layers import all_layers
from tactix_ops.rules import all_rules
from tactix_sdk.evaluate import evaluate

ROUNDED = 1e-2
"""What 16 bits may be off, of the largest number."""
LAYERS = {layer.key: layer for layer in all_layers()}
RULES = {rule.key.removeprefix("tactix."): rule for rule in all_rules()}


class Net(NetworkDefinition):
    """A network with shorter spelling."""

    def __init__(self) -> None:
        super().__init__(LAYERS, "test")
        self.rng = np.random.default_rng(21)

    def x(self, *shape: int | str, name: str = "x", dtype: str = "f32") -> Value:
        """An input."""
        return self.add_input(name, dtype, shape)

    def c(self, array: Any, dtype: Any = np.float32) -> Value:
        """A constant."""
        return self.add_constant(np.asarray(array, dtype))

    def random(self, *shape: int) -> Value:
        """A constant of normal numbers."""
        return self.add_constant(self.rng.standard_normal(shape, dtype=np.float32))

    def add(self, layer: str, *inputs: Value | None, **attrs: Any) -> Value:
        """The first output of a built-in layer."""
        return self.add_layer(f"tactix.{layer}", inputs, **attrs)[0]


def arrays(net: NetworkDefinition, seed: int, sizes: Iterable[int]) -> dict[str, Any]:
    """Random inputs with the symbols, sorted by name, set to the sizes."""
    rng = np.random.default_rng(seed)
    env = dict(zip(net.symbols(), sizes, strict=False))
    return {v.name: random_array(TensorSpec(v.spec.dtype, v.spec.at(env)), rng) for v in net.inputs}


def compare(
    net: NetworkDefinition, out: NetworkDefinition, inputs: dict[str, Any], rtol: float = 2e-5
) -> None:
    """Both networks give the same names, dtypes, shapes and, within ``rtol`` of the largest,
    numbers.
    """
    before, after = evaluate(net, inputs), evaluate(out, inputs)
    assert list(before) == list(after)
    for name, want in before.items():
        got = after[name]
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        scale = np.abs(np.where(np.isfinite(want), want, 0)).max(initial=1e-6)
        np.testing.assert_allclose(
            got.astype(float), want.astype(float), rtol=rtol, atol=rtol * scale, err_msg=name
        )


def called(net: NetworkDefinition, inputs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Every tensor that has a name in the model, with that name."""
    every = net.copy()
    found = [(name, f"{name} {i}", v) for i, v in enumerate(every.values) for name in v.called]
    for name in every.output_names:
        every.unmark_output(name)
    for _, key, v in found:
        every.mark_output(v, key)
    made = evaluate(every, inputs)
    return [(name, made[key]) for name, key, _ in found]


def compare_called(
    net: NetworkDefinition, out: NetworkDefinition, inputs: dict[str, Any], rtol: float
) -> None:
    """What both networks call by one name is one tensor: of the same shape, and the same numbers
    up to what a dtype rounds.
    """
    before = dict(called(net, inputs))
    for name, got in called(out, inputs):
        want = before[name]
        bound = rtol if got.dtype == want.dtype else ROUNDED
        assert got.shape == want.shape, name
        g, w = got.astype(float), want.astype(float)
        scale = np.abs(np.where(np.isfinite(w), w, 0)).max(initial=1e-6)
        np.testing.assert_allclose(g, w, rtol=bound, atol=bound * scale, err_msg=name)


def names(n: NetworkDefinition) -> list[str]:
    """What each node is made of, in order."""
    return ["+".join(b.layer.name for b in node.body.nodes) for node in n.nodes]


@pytest.fixture
def net() -> Net:
    """An empty network over the built-in layers."""
    return Net()


@pytest.fixture
def apply() -> Callable[..., tuple[list[str], NetworkDefinition, Trace]]:
    """Apply rules (by short name; all if none is named).

    Gives what the nodes are made of, the network and the trace, after these checks: it is well
    formed, gives the same numbers at two settings of the symbols, for all tensors that keep their
    names, and a second run changes nothing.
    """

    def run(
        net: NetworkDefinition, *keys: str, rtol: float = 2e-5
    ) -> tuple[list[str], NetworkDefinition, Trace]:
        rules: list[Rule] = [RULES[k] for k in keys] or list(RULES.values())
        for v in net.values:
            net.call(v, v.name)
        out, trace = fuse(net, rules)
        verify(out, deep=True)
        for seed, sizes in ((1, (3, 4, 5)), (2, (1, 7, 2))):
            given = arrays(net, seed, sizes)
            compare(net, out, given, rtol)
            compare_called(net, out, given, rtol)
        assert fuse(out, rules)[1].counts == {}
        return names(out), out, trace

    return run
