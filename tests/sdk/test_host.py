"""Layers and tactics of Python functions over numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sdk_packs import Pack, builder

import tactix
from tactix.plugins.session import Session
from tactix_sdk import DType, TensorSpec, errors, hookimpl, layer, numpy_tactic
from tactix_sdk.testing.examples import examples_of

CALLS: list[tuple[int, ...]] = []


@layer("acme.Roll@1", onnx="acme::Roll")
def roll(x: Any, *, shift: int = 1, axis: int = -1) -> Any:
    for _ in range(200):  # much slower than what competes with it
        y = np.roll(x, shift, axis)
    return y


@numpy_tactic(
    "acme.roll@1",
    "acme.Roll@1",
    when=lambda node: "" if node.attrs.axis == -1 else "the last axis alone",
)
def rolled(x: Any, *, shift: int, axis: int) -> Any:
    CALLS.append(x.shape)
    return np.concatenate([x[..., -shift:], x[..., :-shift]], -1)


class Host(Pack):
    @hookimpl
    def tactix_launchers(self) -> list[Any]:
        return [t.launcher for t in self.tactics]


def network(b: tactix.Builder, **attrs: Any) -> Any:
    net = b.create_network("roll")
    net.mark_output(
        *net.add_layer("acme.Roll", [net.add_input("x", "f32", ("m", 6))], **attrs), name="y"
    )
    return net


def config() -> tactix.BuilderConfig:
    profile = tactix.OptimizationProfile()
    profile.set_shape("x", (1, 6), (3, 6), (8, 6))
    return tactix.BuilderConfig(
        profiles=[profile], timing_cache=False, builder_optimization_level=1
    )


def test_the_function_runs_and_the_plan_needs_its_launcher() -> None:
    b = builder(Host(rolled, layers=(roll,)))
    plan = b.build_plan(network(b, shift=2), config())
    assert [s.info["tactic"] for s in plan.steps] == ["acme.roll@1"]
    rows = {r["tactic"]: r["status"] for r in plan.ledger["nodes"]["roll"]["candidates"]}
    assert rows == {"acme.roll@1": "measured", "tactix.numpy@1": "measured"}
    assert "acme.roll_python@1" in [r.key for r in plan.requirements]
    runtime = tactix.Runtime(
        session=Session(group="runtime", plugins=[("acme", Host(rolled, layers=(roll,)))])
    )
    engine = runtime.load(plan)
    CALLS.clear()
    for m in (1, 3, 8):
        x = np.random.default_rng(m).standard_normal((m, 6)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), np.roll(x, 2, -1))
    assert CALLS == [(1, 6), (3, 6), (8, 6)]
    with pytest.raises(errors.TactixError, match="acme"):
        tactix.Runtime(session=Session(group="runtime")).load(plan)


@numpy_tactic("acme.slow_roll@1", "acme.Roll@1")
def rolled_slowly(x: Any, *, shift: int, axis: int) -> Any:
    for _ in range(5):
        y = roll.function(x, shift=shift, axis=axis)
    return y


@numpy_tactic("acme.still@1", "acme.Roll@1")
def not_rolled(x: Any, *, shift: int, axis: int) -> Any:
    return x


@pytest.mark.parametrize("tactic", [rolled_slowly, not_rolled])
@pytest.mark.parametrize("level", [0, 1])
def test_one_that_is_slower_or_wrong_loses_to_the_reference(tactic: Any, level: int) -> None:
    b, settings = builder(Host(tactic, layers=(roll,))), config()
    settings.builder_optimization_level = level
    plan = b.build_plan(network(b, shift=2), settings)
    assert [s.info["tactic"] for s in plan.steps] == ["tactix.numpy@1"]


def test_one_that_no_other_process_can_import_says_so() -> None:
    def local(x: Any, *, shift: int, axis: int) -> Any:
        return np.roll(x, shift, axis)

    b = builder(Host(numpy_tactic("acme.local@1", "acme.Roll@1")(local), layers=(roll,)))
    plan = b.build_plan(network(b), config())
    (row,) = [
        r for r in plan.ledger["nodes"]["roll"]["candidates"] if r["tactic"] == "acme.local@1"
    ]
    assert "put it into a module, at its top level" in row["reason"]
    assert [s.info["tactic"] for s in plan.steps] == ["tactix.numpy@1"]


def test_a_node_that_it_does_not_take_runs_on_the_reference() -> None:
    b = builder(Host(rolled, layers=(roll,)))
    plan = b.build_plan(network(b, axis=0), config())
    assert [s.info["tactic"] for s in plan.steps] == ["tactix.numpy@1"]


def test_a_layer_of_a_function_has_shapes_and_attributes() -> None:
    def longer(x: TensorSpec, *, times: int) -> TensorSpec:
        return TensorSpec(x.dtype, (*x.shape[:-1], x.shape[-1] * times))

    @layer("acme.Twice@1", infer=longer, examples=[({"times": 3}, "f32 2 5")])
    def twice(x: Any, *, times: int = 2) -> Any:
        return np.concatenate([x] * times, -1)

    net = builder(Host(layers=(twice,))).create_network("twice")
    (y,) = net.add_layer("acme.Twice", [net.add_input("x", "f32", ("m", 3))], times=4)
    assert str(y.spec.shape[0]) == "m"
    assert y.spec.shape[1] == 12
    (z,) = twice.reference(twice.Attrs(), np.ones((2, 3), np.float32))
    assert z.shape == (2, 6)
    assert examples_of(twice) == [({"times": 3}, "f32 2 5")]
    assert examples_of(roll) == [({}, "f32 3 5")]
    with pytest.raises(errors.InvalidArgument, match="'n' needs a default"):
        layer("acme.None@1")(lambda x, *, n: x)


@pytest.mark.parametrize(
    "said",
    [["f32"], (3, 4), [None], TensorSpec("f32", (3, 5)), TensorSpec(DType.FP32, (3, 2.5)),  # type: ignore[arg-type]
     TensorSpec(DType.FP32, (3, -4)), TensorSpec(DType.FP32, ("n", 5)), TensorSpec(DType.FP32, (3, None))],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_is_no_spec_is_refused_where_it_is_inferred(said: Any) -> None:
    odd = layer("acme.Odd@1", infer=lambda x: said)(lambda x: x)
    network = builder(Pack(layers=(odd,))).create_network("odd")
    x = network.add_input("x", "f32", (3, 5))
    with pytest.raises(
        errors.PluginError, match=r"here \(acme\.Odd@1\): .* is no TensorSpec of a DType"
    ):
        network.add_layer("acme.Odd", [x], "here")
