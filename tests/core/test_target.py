"""Building for a device that is not this one: what runs here is measured, the rest is chosen by
estimate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tactix
from tactix.api import configure
from tactix.base.errors import ConfigError, InvalidArgument, PlanCompatibilityError
from tactix.contracts.device import Device, DeviceProperties
from tactix.plan.compat import warnings


def network(builder: tactix.Builder) -> tactix.NetworkDefinition:
    net = builder.create_network("small")
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", ("n", 37))], axis=1)
    net.mark_output(y, "y")
    return net


def build(target: str, **fields: object) -> tactix.Plan:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(timing_cache=False, threads=1, target=target, **fields)  # type: ignore[arg-type]
    return builder.build_plan(network(builder), config)


def test_a_level_below_this_machine_is_measured_and_runs() -> None:
    host = tactix.Session().devices["tactix.cpu@1"].properties()
    level = "x86-64-v2" if "sse2" in host.features else "armv8"
    plan = build(level)
    assert (
        set(plan.device["features"]) < host.features
        or set(plan.device["features"]) == host.features
    )
    assert {s.info["status"] for s in plan.steps} <= {"measured", "cached", "estimated"}
    assert (
        warnings(plan, replace(host, name="another", tuned_to={"l2": 1}), tactix.__version__) == []
    )
    x = np.random.default_rng(0).standard_normal((3, 37), dtype=np.float32)
    want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(tactix.Runtime().load(plan)(x), want, rtol=1e-5)


def test_a_level_has_tensorrts_name() -> None:
    config = tactix.BuilderConfig()
    config.hardware_compatibility_level = "x86-64-v3"
    assert config.target == config.hardware_compatibility_level == "x86-64-v3"
    assert configure(hardware_compatibility_level="armv8").target == "armv8"
    with pytest.raises(ConfigError, match="no build option"):
        configure(hardware_level="armv8")


def test_a_plan_tells_why_it_cannot_run() -> None:
    plan = build("")
    runtime = tactix.Runtime()
    assert runtime.check(plan) == []
    step = plan.steps[0]
    other = replace(
        plan,
        meta={**plan.meta, "tactix": "7.0.0"},
        steps=(replace(step, artifact=replace(step.artifact, requires=("cold_fusion",))),),
    )
    assert [
        word in r for word, r in zip(("cold_fusion", "7.0.0"), runtime.check(other), strict=True)
    ] == [True, True]


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(InvalidArgument, match="no level 'x86-64-v9'"):
        build("x86-64-v9")
    with pytest.raises(InvalidArgument, match="the device has none"):
        Device.target(type("D", (Device,), {"key": "acme.npu@1"})(), "big")


class Absent(Device):
    """A cpu that is not here."""

    key, kind, host_memory = "absent.cpu@1", "cpu", True

    def available(self) -> str:
        return "it is not plugged in"

    def target(self, name: str) -> DeviceProperties:
        return DeviceProperties("cpu", name, frozenset({"never"}), 256, 4, facts={"arch": "x86_64"})


def test_what_is_not_here_is_chosen_by_estimate_and_refused_at_load() -> None:
    class Pack:
        TACTIX_NAMESPACE = "absent"

        @staticmethod
        @__import__("tactix.plugins.hookspecs", fromlist=["hookimpl"]).hookimpl
        def tactix_devices() -> list[Device]:
            return [Absent()]

    session = tactix.Session(plugins=[Pack])
    builder = tactix.Builder(session=session)
    config = tactix.BuilderConfig(
        timing_cache=False, device="absent.cpu@1", tactic_sources={"numpy"}
    )
    with pytest.raises(ConfigError, match="not plugged in"):
        builder.build_plan(network(builder), config)
    config.target = "next year's"
    plan = builder.build_plan(network(builder), config)
    assert {s.info["status"] for s in plan.steps} == {"estimated"}
    with pytest.raises(PlanCompatibilityError, match="not plugged in"):
        tactix.Runtime(session=session).load(plan)
