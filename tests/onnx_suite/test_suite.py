"""The whole suite passes with every tactic source, but for the known failures, which are listed
with their reasons.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from batch import BatchBuilder
from cases import KINDS, collect
from report import ON_CUDA, document, joined, on_cuda, reason
from suite import CHUNKS, CPU, Result, assert_agrees, assert_passes, plan_of, run_batch, run_suite

from tactix.base.errors import ExecutionError

KNOWN = Path(__file__).with_name("known_failures.txt")
DOCUMENT = Path(__file__).parents[2] / "docs" / "onnx.md"


def known_failures() -> dict[str, str]:
    """Reasons by case; ``[1.20]`` behind a case says of which version of onnx it is."""
    lines = (line.partition(": ") for line in KNOWN.read_text().splitlines() if line)
    named = ((*name.partition(" [")[::2], why) for name, _, why in lines)
    return {
        name: why
        for name, version, why in named
        if onnx.__version__.startswith(version.rstrip("]"))
    }


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return collect()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_fails_but_what_is_known(cases: list[Any], chunk: int) -> None:
    own = cases[chunk::CHUNKS]
    failed = {r.id: r for r in run_batch(own) if r.error}
    known = known_failures().keys() & {c.id for c in own}
    assert {r.id: r.error for r in failed.values() if r.id not in known} == {}
    assert known - failed.keys() == set(), "what passes is no known failure"
    assert [r.error for r in failed.values() if "Error" in reason(r.error, r.name)] == [], (
        "reasons are a few words"
    )


def test_known_failures_are_cases_of_one_operator_and_have_a_reason(cases: list[Any]) -> None:
    known = known_failures()
    assert known.keys() <= {c.id for c in cases if c.kind == "node"}
    assert [name for name, why in known.items() if not why] == []


def test_every_kind_is_there(cases: list[Any]) -> None:
    assert {c.kind for c in cases} == set(KINDS)
    assert len(cases) > 1700


def test_the_document_tells_the_known_failures() -> None:
    general = DOCUMENT.read_text().partition(ON_CUDA)[0]
    if f"\n{onnx.__version__})" not in general:
        pytest.skip("the document was written with another version of onnx")
    failures = general.partition("## Failures")[2]
    named = {f"node/{name}": why for why, name in _failures(failures)}
    assert named == known_failures()


def _failures(text: str) -> Iterator[tuple[str, str]]:
    for why, names in re.findall(r"^\*\*\d+: (.+)\*\*\n\n(.+)$", text, re.MULTILINE):
        yield from ((why, name) for name in re.findall(r"`(\w+)`", names))


def test_all_sources_bid_and_kernels_are_compiled(cases: list[Any]) -> None:
    builder = BatchBuilder()
    if builder.session.compilers["tactix.cc@1"].available():
        pytest.skip("no C compiler")
    (case,) = (c for c in cases if c.id == "node/test_conv_with_strides_padding")
    draft, data = plan_of(case, builder, None, CPU)
    assert [s.artifact.launcher for s in draft.steps] == ["tactix.cpu.elf@1"]
    (plan,) = builder.finish([draft])
    assert_passes(case, plan, data, builder.session)
    with pytest.raises(ExecutionError):
        assert_passes(case, draft, data, builder.session)


def test_the_document_counts(cases: list[Any]) -> None:
    chosen = [
        c for c in cases if c.name in ("test_abs", "test_bernoulli", "test_expand_shape_model1")
    ]
    results = run_suite(chosen, jobs=1)
    text = document(results)
    assert [r.id for r in results if not r.error] == [
        "node/test_abs",
        "simple/test_expand_shape_model1",
    ]
    assert "| all | 2 | 3 |" in text
    assert "| Bernoulli | 22 | 0 | 1 |" in text
    assert "**1: random numbers of onnx's own generator**\n\n`test_bernoulli`" in text


def test_the_part_about_a_gpu() -> None:
    results = [
        Result("node", "test_a", "A", 13), Result("node", "test_b", "B", 13, "", ("tactix.B@1",)),
        Result("simple", "test_c", "C", 13, "wrong result: far off"),
        Result("node", "test_attention_4d_fp16", "Attention", 23, "wrong result: 1 / 192"),
    ]  # fmt: skip
    text = on_cuda(results)
    assert "| node | 1 | 2 | 3 |" in text
    assert "| all | 1 | 2 | 4 |" in text
    assert "| `tactix.B@1` | 1 |" in text
    assert "rounded to float16" in text
    general = document(results[:2])
    both = joined(joined("", general), text)
    assert both.startswith(general.rstrip())
    assert both.endswith(text)
    assert joined(both, text) == both
    again = joined(both, document(results[:1]))
    assert again.endswith(text)
    assert "| all | 1 | 1 |" in again


@pytest.mark.parametrize(
    ("got", "want", "agrees"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([1, np.nan]), np.float32([1, np.nan]), True),
        (np.float64([1]), np.float32([1]), False),
        (np.float32([1]), np.float32(1), False),
        (np.int64([7]), np.int64([8]), False),
        ([np.int64([7])], [np.int64([7])], True),
        ([np.int64([7])], [np.int64([7]), np.int64([7])], False),
    ],
)
def test_agreement(got: Any, want: Any, agrees: bool) -> None:
    if agrees:
        assert_agrees(got, want, 1e-3, 1e-7)
    else:
        with pytest.raises(AssertionError):
            assert_agrees(got, want, 1e-3, 1e-7)
