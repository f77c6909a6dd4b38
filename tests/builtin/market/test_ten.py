"""A pack of twelve kernels, few of them good: whatever it does, there is a plan, and its answers
are right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strangers import LOOP, installed

import tactix
from tactix.base.errors import ExecutionError
from tactix.base.progress import SilentProgress
from tactix_isolate.process import TrialResult
from tactix_isolate.trial import TrialBench

BODIES = {
    "right": LOOP,
    "wrong": "for (int64_t i = n * tid / nt; i < n * (tid + 1) / nt; i++) y[i] = 42;",
    "crash": "*(volatile int*)0 = 1;",
    "abort": "abort();",
    "hang": "for (volatile int i = 0; ; i++);",
    "divide": "volatile int64_t zero = n - n; y[0] = (float)(7 / zero);",
    "no size of 0": "if (n == 0) abort();" + LOOP,
    "outside": LOOP + "if (tid == nt - 1) y[n + 5000] = 1;",
    "clash": LOOP + "helper(); } int helper(void) { return 1;",
    "clash again": LOOP + "helper(); } int helper(void) { return 2;",
    "no C": "this is no C",
    "slow": "for (volatile int k = 0; k < 100000; k++); " + LOOP,
}

PACK = '''
"""A pack: kernels of Relu, for tactix's own layer and for one of its own that tactix has only the reference for."""

import numpy as np

from tactix_sdk import KernelArtifact, Launch, Reject, Source, Tactic, TensorSpec, Variant, hookimpl, layer
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out

C = """#include <stdint.h>
#include <stdlib.h>
int helper(void);
void TX_ENTRY(const int64_t* a, int tid, int nt) {
  const float* x = (const float*)a[0];
  float* y = (float*)a[1];
  const int64_t n = a[2];
  BODY
}"""
BODIES = %r


@layer("acme_ten.Ramp@1")
def ramp(x):
    return np.maximum(x, 0)


class Kernel(Tactic):
    implements, source = ("pointwise", "acme_ten.Ramp@1"), "acme"

    def __init__(self, name):
        self.key, self.body = f"acme_ten.{name.replace(' ', '_')}@1", BODIES[name]

    def variants(self, node, device):
        names = [n.layer.key for n in node.body.nodes]
        return [Variant()] if names in (["tactix.Relu@1"], ["acme_ten.Ramp@1"]) else Reject("only a bare ramp")

    def cost(self, node, variant, ctx):
        return 1e-12

    def compile(self, node, variant, ctx):
        args = (tensor_in(0), tensor_out(), scalar(node.outputs[0].spec.numel))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", C.replace("BODY", self.body)))


@hookimpl
def tactix_layers():
    return [ramp]


@hookimpl
def tactix_tactics():
    return [Kernel(name) for name in BODIES]
'''


class Stops(SilentProgress):
    """Cancelled from a phase on, or once a node was measured."""

    def __init__(self, when: str) -> None:
        self.when, self.over = when, False

    def phase(self, name: str, total: int) -> None:
        self.over |= name == self.when

    def step(self, name: str, done: int, message: str = "") -> None:
        self.over |= self.when == "first" and name == "measure"

    def cancelled(self) -> bool:
        return self.over


@pytest.fixture(autouse=True)
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TACTIX_TRIAL_TIMEOUT", "2")
    with installed(tmp_path, "acme_ten", PACK % BODIES):
        yield


def chosen(**fields: Any) -> dict[str, str]:
    """The tactic of every node of Det, Relu and Ramp beside each other, in a plan that gives what
    numpy gives. Det of integers has no kernel of tactix's own.
    """
    b = tactix.Builder(session=tactix.Session(enable=["acme_ten"]))
    net = b.create_network("three")
    x, m = net.add_input("x", "f32", ("n", 37)), net.add_input("m", "i32", (4, 4))
    for layer, given in (("tactix.Relu", x), ("acme_ten.Ramp", x), ("tactix.Det", m)):
        net.mark_output(
            net.add_layer(layer, [given], name=layer.partition(".")[2])[0], layer.partition(".")[2]
        )
    plan = b.build_plan(net, tactix.BuilderConfig(timing_cache=False, threads=2, **fields))
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.standard_normal((33, 37), np.float32),
        "m": rng.integers(-9, 9, (4, 4), np.int32),
    }
    engine = b._load(plan)
    got = engine(feeds)
    assert engine({**feeds, "x": feeds["x"][:0]})["Ramp"].shape == (0, 37)
    for name in ("Relu", "Ramp"):
        np.testing.assert_array_equal(got[name], np.maximum(feeds["x"], 0))
    np.testing.assert_allclose(got["Det"], np.linalg.det(feeds["m"]), atol=1)
    return {s.name: s.info["tactic"] for s in plan.steps} | {
        "status of Ramp": plan.steps[-1].info["status"]
    }


RIGHT = {"acme_ten.right@1", "acme_ten.clash@1", "acme_ten.clash_again@1", "tactix.numpy@1"}
"""Who may win a layer that tactix has no kernel for; of two that clash one is linked."""


LEVELS = (3, 0, 1, 2, 4, 5)
"""The first one fills the quarantine for the others."""

ENDS: dict[str, Callable[[], dict[str, Any]]] = {
    "measured to the end": dict,
    "a budget of a second": lambda: {"budget": 1.0},
    "stopped at once": lambda: {"progress_monitor": Stops("fuse")},
    "stopped after the first node": lambda: {"progress_monitor": Stops("first")},
}


@pytest.mark.parametrize("end", ENDS)
def test_at_every_level(end: str) -> None:
    for level in LEVELS:
        found = chosen(builder_optimization_level=level, **ENDS[end]())
        assert found["Ramp"] in RIGHT
        assert found["Relu"] in RIGHT | {"tactix.c_pointwise@1"} - {"tactix.numpy@1"}
        assert found["Det"] == "tactix.numpy@1"
        if level == 0 or end == "stopped at once":
            assert found["Relu"] == "tactix.c_pointwise@1"
        if end == "stopped at once":
            assert found["Ramp"] == "tactix.numpy@1"


def test_kernels_that_fail_are_tried_once_in_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    fail = TrialBench.fail

    def noted(trial: TrialBench, verdict: TrialResult) -> ExecutionError:
        failed.append(trial.candidate.tactic.key)
        return fail(trial, verdict)

    monkeypatch.setattr(TrialBench, "fail", noted)
    chosen()
    assert failed
    assert len(failed) == len(set(failed))  # though Relu and Ramp have the same kernels


@pytest.mark.parametrize(
    "fields",
    [{"budget": 0.0}, *({"progress_monitor": Stops(w)} for w in ("bid", "compile"))],
    ids=["no budget", "stopped at bidding", "stopped at compiling"],
)
def test_what_nobody_tried_is_not_chosen(fields: dict[str, Any]) -> None:
    found = chosen(**fields)
    assert (found["Relu"], found["Ramp"], found["Det"]) == (
        "tactix.c_pointwise@1",
        "tactix.numpy@1",
        "tactix.numpy@1",
    )
