"""A share of fuzz.py: the same changes, the same checks, in this process; and damage to every place
of a file.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_mutations import Mutator
from plan_trial import ROOM, WHOLE, peak

from tactix.base.errors import PlanFormatError
from tactix.plan import container

NAMES = (
    "native",
    "blocked",
    "numpy",
    "branches",
    "objects",
    "packs",
    "held",
    "body",
    "loop",
    "stacked",
    "refit",
)


@pytest.mark.parametrize("name", NAMES)
def test_changed_plans_are_refused_or_sound(
    samples: dict[str, bytes], trial: Any, name: str
) -> None:
    mutator = Mutator(samples[name])
    found = [
        trial(
            mutator.make(seed), verify=seed % 3 == 0, more=seed % 40 == 0, references=seed % 2 == 0
        )
        for seed in range(60)
    ]
    assert sum(f not in WHOLE for f in found) > 20
    assert any(f in WHOLE for f in found)


@given(name=st.sampled_from(NAMES), seed=st.integers(1 << 32, 1 << 40))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_hypothesis_asks_for(
    samples: dict[str, bytes], trial: Any, name: str, seed: int
) -> None:
    trial(Mutator(samples[name]).make(seed), references=seed % 2 == 0)


@pytest.mark.parametrize("name", NAMES)
def test_memory_stays_near_the_size_of_the_file(
    samples: dict[str, bytes], trial: Any, name: str
) -> None:
    mutator = Mutator(samples[name])
    for seed in range(1000, 1012):
        data = mutator.make(seed)
        assert peak(trial, data) <= len(data) + ROOM


def _refused(data: bytes | bytearray) -> bool:
    try:
        container.load(data, verify=True)
    except PlanFormatError:
        return True
    return False


@pytest.mark.parametrize("name", ["numpy", "objects"])
def test_no_truncation_passes(samples: dict[str, bytes], name: str) -> None:
    """Every length there is: the prologue tells it, so that this is soon said."""
    data = memoryview(samples[name])
    assert all(_refused(bytes(data[:n])) for n in range(len(data)))


@pytest.mark.parametrize("name", ["native", "branches"])
def test_no_changed_byte_passes(samples: dict[str, bytes], name: str) -> None:
    rng, data = random.Random(17), bytearray(samples[name])
    for at in rng.sample(range(len(data)), 400):
        data[at] ^= 1 << rng.randrange(8)
        assert _refused(data)
        data[at] = samples[name][at]
