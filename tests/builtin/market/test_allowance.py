"""What strangers' kernels that fail may cost a build: trials are counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strangers import installed

import tactix
from tactix.base.errors import ConfigError
from tactix_isolate.allowance import FAILURES, Allowance
from tactix_isolate.process import TrialResult
from tactix_isolate.trial import TrialBench

PACK = '''
"""A pack: tactics whose kernels of Relu all crash, each in several variants."""

from tactix_sdk import KernelArtifact, Launch, Reject, Source, Tactic, Variant, hookimpl
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out


class Crash(Tactic):
    implements, source = ("pointwise",), "acme"

    def __init__(self, name):
        self.key = f"acme_crash.{name}@1"

    def variants(self, node, device):
        plain = [n.layer.key for n in node.body.nodes] == ["tactix.Relu@1"]
        return [Variant.of(way=i) for i in range(VARIANTS)] if plain else Reject("only a bare Relu")

    def compile(self, node, variant, ctx):
        text = "#include <stdint.h>\\nvoid TX_ENTRY(const int64_t* a, int tid, int nt) { *(volatile int*)0 = %d; }"
        args = (tensor_in(0), tensor_out(), scalar(node.outputs[0].spec.numel))
        code = Source("c", f"// {self.key}\\n" + text % variant.knob("way"))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), code)


@hookimpl
def tactix_tactics():
    return [Crash(f"t{i}") for i in range(TACTICS)]
'''


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tactics of the kernels whose trials failed, in order."""
    out: list[str] = []
    fail = TrialBench.fail

    def noted(trial: TrialBench, verdict: TrialResult) -> Any:
        out.append(trial.candidate.tactic.key)
        return fail(trial, verdict)

    monkeypatch.setattr(TrialBench, "fail", noted)
    return out


def reasons(**fields: Any) -> list[str]:
    """Why the pack's candidates for a Relu lost, of a plan that gives what numpy gives."""
    b = tactix.Builder(session=tactix.Session(enable=["acme_crash"]))
    net = b.create_network("one")
    net.mark_output(net.add_layer("tactix.Relu", [net.add_input("x", "f32", (5, 37))], "relu")[0])
    plan = b.build_plan(net, tactix.BuilderConfig(timing_cache=False, threads=1, **fields))
    x = np.random.default_rng(1).standard_normal((5, 37), np.float32)
    np.testing.assert_array_equal(b._load(plan)(x), np.maximum(x, 0))
    rows = plan.ledger["nodes"]["relu"]["candidates"]
    return [c["reason"] for c in rows if c["tactic"].startswith("acme_crash.")]


def pack(tmp_path: Path, tactics: int, variants: int) -> Any:
    text = PACK.replace("TACTICS", str(tactics)).replace("VARIANTS", str(variants))
    return installed(tmp_path, "acme_crash", text)


@pytest.mark.compiler
def test_a_tactic_that_crashed_often_is_tried_no_more(tmp_path: Path, tried: list[str]) -> None:
    with pack(tmp_path, tactics=1, variants=FAILURES + 2):
        told = reasons(builder_optimization_level=5, trial_budget=float("inf"))
    assert len(tried) == FAILURES
    assert sum("was not tried: 3 kernels of this tactic crashed or hung" in t for t in told) == 2


@pytest.mark.compiler
def test_a_pack_that_cost_too_much_is_tried_no_more_and_the_next_build_goes_on(
    tmp_path: Path, tried: list[str]
) -> None:
    with pack(tmp_path, tactics=4, variants=1):
        for build in range(1, 3):
            told = reasons(trial_budget=0.0)
            assert len(set(tried)) == len(tried) == build
            assert (
                sum("was not tried: failed trials of its pack took" in t for t in told) == 4 - build
            )


def test_each_pack_and_each_tactic_has_its_own() -> None:
    a = Allowance(10.0)
    a.charge("one", 6.0)
    assert not a.refusal("one", "x")
    a.charge("one", 6.0)
    assert "took 12.0 s, and may take 10 s" in a.refusal("one", "x")
    assert not a.refusal("two", "y")
    for _ in range(FAILURES):
        assert not a.refusal("two", "y")
        a.count("y")
    assert a.refusal("two", "y")
    assert not a.refusal("two", "z")


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_that_make_no_sense_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="trial_budget"):
        tactix.BuilderConfig(trial_budget=seconds).check()
