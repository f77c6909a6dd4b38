"""Architectures by name: features, what loads where, and the device that a build may aim at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_driver import FakeApi, fake_device

from tactix.base.errors import InvalidArgument
from tactix.contracts.device import DeviceProperties
from tactix_codegen.cuda.target import (
    AMPERE_PLUS,
    LADDER,
    SAME_COMPUTE_CAPABILITY,
    SPECIFIC,
    TARGETS,
    architecture,
    capability,
    features,
    required_features,
    target,
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_complete(name: str) -> None:
    p = target(name)
    assert p.kind == "cuda"
    assert name in p.name
    assert p.has(name)
    assert architecture(p) == name
    assert p.cores >= 40
    assert p.memory >= 16 << 30
    assert p.facts["capability"] == capability(name)
    assert p.facts["shared_per_block"] <= p.facts["shared_per_multiprocessor"]
    assert p.facts["threads_per_multiprocessor"] == (
        2048 if name in ("sm_80", "sm_90", "sm_100") else 1536
    )
    assert not any(f.endswith("a") for f in p.features)


def test_features_grow_with_the_architecture() -> None:
    assert {"sm_80", "sm_90"} <= target("sm_90").features
    assert not target("sm_80").has("sm_90")
    assert target("sm_90").facts["shared_per_block"] == 232448
    assert target("sm_90").cores == 132


def test_a_product_is_described_as_its_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a build for it finds the timings that were taken on one."""
    device, _ = fake_device()
    monkeypatch.setattr(
        FakeApi, "_cuDeviceGetName", lambda self, size, number: (b"NVIDIA H200".ljust(size, b"\0"),)
    )
    here, there = device.properties(), target("h200")
    assert replace(there, memory=here.memory, tuned_to=here.tuned_to) == here
    assert there.facts == here.facts
    assert architecture(there) == "sm_90a"


def test_a_family_needs_what_all_of_it_has() -> None:
    """PTX for 8.0, within the shared memory of 8.6, which later ones have, too; no cubin fits all."""
    family = target(AMPERE_PLUS)
    assert required_features(family) == ("sm_80",)
    assert [c for c in LADDER if features(c) >= family.features] == [c for c in LADDER if c >= 80]
    assert family.facts["shared_per_block"] == min(
        target(n).facts["shared_per_block"] for n in TARGETS
    )


def test_the_same_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = fake_device()
    here, family = device.properties(), device.target(SAME_COMPUTE_CAPABILITY)
    assert family.name == "compute capability 9.0"
    assert (family.features, family.facts) == (here.features, here.facts)
    monkeypatch.setattr(type(device), "available", lambda self: "no driver")
    with pytest.raises(InvalidArgument, match="no driver"):
        device.target(SAME_COMPUTE_CAPABILITY)


@pytest.mark.parametrize("number", sorted(SPECIFIC))
def test_an_architecture_of_its_own(number: int) -> None:
    assert f"sm_{number}a" in features(number)
    assert [f for f in features(number) if f.endswith("a") and f.startswith("sm_")] == [
        f"sm_{number}a"
    ]


@pytest.mark.parametrize(
    ("built", "runs", "loads"),
    [(80, 80, True), (80, 86, True), (80, 89, True), (86, 80, False), (80, 90, False), (90, 80, False),
     (90, 90, True), (90, 100, False), (100, 103, True), (103, 100, False), (120, 121, True), (75, 80, False)],
)  # fmt: skip
def test_code_loads_within_a_major_version(built: int, runs: int, loads: bool) -> None:
    plain = frozenset(f for f in features(built) if not f.endswith("a"))
    needed = required_features(DeviceProperties("cuda", "built for", plain))
    assert DeviceProperties("cuda", "runs on", features(runs)).has(*needed) is loads


def test_specific_code_loads_on_its_architecture_alone() -> None:
    needed = required_features(target("sm_90a"))
    assert needed == ("cubin_90a",)
    assert DeviceProperties("cuda", "H200", features(90)).has(*needed)
    assert not target("sm_90").has(*needed)
    assert architecture(DeviceProperties("cuda", "H200", features(90))) == "sm_90a"


@pytest.mark.parametrize(
    "name", ["sm_75", "sm_81", "sm_80a", "90", "sm_", "", "sm_90b", "compute_90"]
)
def test_there_is_no_such_architecture(name: str) -> None:
    with pytest.raises(InvalidArgument, match="no architecture") as e:
        target(name)
    told = e.value.do.removeprefix("There are: ").split(", ")
    assert {"sm_80", "sm_90a", "h200"} <= set(told)
    assert all(target(n).features for n in told if n != SAME_COMPUTE_CAPABILITY)


def test_a_newer_device_than_is_known() -> None:
    assert {"sm_130", "cubin_130", "sm_90"} <= features(130)
    assert "cubin_90" not in features(130)
