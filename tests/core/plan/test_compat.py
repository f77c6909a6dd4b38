"""Hard reasons and soft warnings."""

from __future__ import annotations

from dataclasses import replace

from tactix.contracts.device import DeviceProperties
from tactix.plan.compat import check, device_facts, warnings
from tactix.plan.schema import Plan

HERE = DeviceProperties("cpu", "some cpu", frozenset({"avx2", "fma"}), 256, 4, 1 << 30)


def test_the_same_device_takes_it_without_a_word(plan: Plan) -> None:
    plan = replace(plan, device=device_facts(HERE))
    assert check(plan, HERE, "0.1.0") == []
    assert warnings(plan, HERE, "0.1.0") == []


def test_missing_features_are_named_with_the_first_step(plan: Plan) -> None:
    (reason,) = check(plan, replace(HERE, features=frozenset({"avx2"})), "0.1.0")
    assert "fma" in reason
    assert "'fc'" in reason


def test_another_kind_and_another_major_version_are_reasons(plan: Plan) -> None:
    kind, version = check(replace(plan, device={"kind": "cuda"}), HERE, "1.0.0")
    assert "cuda" in kind
    assert "0.1.0" in version
    assert "1.0.0" in version


def test_more_threads_than_cores_warn(plan: Plan) -> None:
    plan = replace(plan, device=device_facts(HERE), meta={**plan.meta, "threads": 5})
    (text,) = warnings(plan, HERE, "0.1.0")
    assert "5 threads" in text
    assert "4 cores" in text
    assert warnings(replace(plan, meta={**plan.meta, "threads": "many"}), HERE, "0.1.0") == []


def test_softer_differences_warn(plan: Plan) -> None:
    plan = replace(plan, device={**device_facts(HERE), "vector_bits": 512, "name": "big cpu"})
    texts = warnings(plan, HERE, "0.2.0")
    assert [w in t for w, t in zip(("big cpu", "512", "0.2.0"), texts, strict=True)] == [True] * 3
    assert check(plan, HERE, "0.2.0") == []
