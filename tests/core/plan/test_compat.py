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


def test_features_that_steps_of_bodies_need_count(plan: Plan) -> None:
    """Machine code of a branch, or of a set of kernels, that this processor cannot run."""
    inner = replace(plan.steps[0], artifact=replace(plan.steps[0].artifact, requires=("quantum",)))
    body = replace(plan, steps=(replace(inner, name="inside"),))
    outer = replace(plan, steps=(replace(plan.steps[0], plans=(body,)), *plan.steps[1:]))
    (reason,) = check(outer, HERE, "0.1.0")
    assert "'inside'" in reason
    assert "quantum" in reason


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
    assert len(texts) == 2
    assert (
        texts[0]
        == "tuned for another device: name big cpu (here some cpu), vector bits 512 (here 256)"
    )
    assert "0.2.0" in texts[1]
    assert check(plan, HERE, "0.2.0") == []


def test_what_kernels_were_tuned_to_warns_once_with_both_values(plan: Plan) -> None:
    there, here = (
        replace(HERE, tuned_to={"l2": l2, "bus_bits": bits, "sm": 8})
        for l2, bits in ((1, 5120), (2, 6144))
    )
    plan = replace(plan, device=device_facts(there))
    (text,) = warnings(plan, here, "0.1.0")
    assert text == "tuned for another device: l2 1 (here 2), bus bits 5120 (here 6144)"
    assert warnings(plan, there, "0.1.0") == warnings(plan, HERE, "0.1.0") == []
    assert check(plan, here, "0.1.0") == []
    for odd in ({}, {"tuned_to": 3}, {"tuned_to": {"l9": 1}}):
        assert warnings(replace(plan, device=odd), here, "0.1.0") == []


def test_plans_for_a_family_warn_of_none_of_its_members(plan: Plan) -> None:
    plan = replace(
        plan, device=device_facts(replace(HERE, name="a level", tuned_to={"l2": 1}, family=True))
    )
    assert warnings(plan, replace(HERE, vector_bits=512, tuned_to={"l2": 2}), "0.1.0") == []
