"""Packs that compete with tactix's own tactics: good ones win where they are faster, bad ones harm
nobody.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strangers import GEMM, LOOP, RELU, installed, relu

import tactix
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix.select import measure
from tactix_isolate import process, record
from tactix_isolate.machine_load import OtherProcesses
from tactix_isolate.quarantine import Quarantine

Rows = list[dict[str, Any]]


def relu_net(b: tactix.Builder, shape: tuple[Any, ...] = (33, 37)) -> NetworkDefinition:
    net = b.create_network("small")
    (y,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", shape)], name="node")
    net.mark_output(y, "y")
    return net


def product_net(b: tactix.Builder, *shape: int) -> NetworkDefinition:
    count, m, k, n = shape
    net = b.create_network("product")
    x, w = net.add_input("a", "f32", (count, m, k)), net.add_input("b", "f32", (count, k, n))
    net.mark_output(net.add_layer("tactix.MatMul", [x, w], name="node")[0], "y")
    return net


def built(
    make: Callable[..., NetworkDefinition], *shape: int, enable: str = "", **fields: Any
) -> tactix.Plan:
    b = tactix.Builder(session=tactix.Session(enable=[enable] if enable else []))
    settings = {"timing_cache": False, "threads": 2, **fields}
    return b.build_plan(make(b, *shape) if shape else make(b), tactix.BuilderConfig(**settings))


def of_pack(plan: tactix.Plan, start: str = "acme") -> Rows:
    return [r for r in plan.ledger["nodes"]["node"]["candidates"] if r["tactic"].startswith(start)]


def no_process(self: Any, stopped: Any) -> None:
    raise AssertionError("a worker was started")


# -- those that misbehave ------------------------------------------------------------------------

BODIES = {
    "wrong": ("for (int64_t i = n * tid / nt; i < n * (tid + 1) / nt; i++) y[i] = x[i];", "wrong", "its budget"),
    "wrong by two threads": ("for (int64_t i = 0; i < n / nt; i++) y[i] = x[i] > 0 ? x[i] : 0;", "wrong", "its budget"),
    "null": ("*(volatile int*)0 = 1;", "crash", "SIGSEGV at address 0x0"),
    "abort": ('write(2, "oh no", 5); abort();', "crash", "SIGABRT"),
    "exit": ("_exit(7);", "exit", "exit code 7"),
    "past the end": (LOOP + "if (tid == nt - 1) y[n] = 1;",
                     "outside", "wrote past the end of output 0 (4884 bytes), at byte 4884"),
    "far past the end": (LOOP + "if (!tid) y[n + 9000] = 1;",
                     "outside", "wrote past the end of output 0 (4884 bytes), at byte 40884"),
    "before the begin": (LOOP + "if (!tid) y[-2] = 1;",
                     "outside", "wrote before the begin of output 0 (4884 bytes), at byte -8"),
    "into its input": (LOOP + "if (!tid) ((float*)x)[3] = 1;", "outside", "wrote at byte 12 of input 0"),
    "past the workspace": (LOOP + "if (!tid) scratch[26] = 1;",
                     "outside", "past the end of workspace (100 bytes), at byte 104"),
    "read past the end": (LOOP + "if (x[n + 1] == 77) y[0] = 1;",
                     "outside", "read past the end of input 0 (4884 bytes), at byte 4888"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_misbehaves_is_quarantined_and_the_build_goes_on(
    name: str, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, kind, text = BODIES[name]
    with installed(tmp_path, "acme_relu", relu(body)):
        plan = built(relu_net, enable="acme_relu")
        monkeypatch.setattr(process.Worker, "_start", no_process)
        again = built(relu_net, enable="acme_relu")
    (row,) = of_pack(plan)
    assert (row["status"], row["chosen"]) == ("rejected", False)
    assert text in row["reason"]
    assert "acme-relu 1.0" in row["reason"]
    assert of_pack(again) == [row]
    ((key, found),) = Quarantine(kept).records.items()
    assert (found["kind"], found["pack"], found["version"], found["node"]) == (
        kind,
        "acme-relu",
        "1.0",
        "node",
    )
    assert found["shapes"] == ["f32(33, 37)", "f32(33, 37)"]
    assert key[:12] in row["reason"]
    assert found["said"] == ("oh no" if name == "abort" else "")
    x = np.random.default_rng(1).standard_normal((33, 37), dtype=np.float32)
    assert np.array_equal(
        tactix.load(container.dump(plan), on_untrusted="allow")(x), np.maximum(x, 0)
    )


def test_a_kernel_that_hangs_is_ended(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_TRIAL_TIMEOUT", "1.5")
    with installed(tmp_path, "acme_relu", relu("for (volatile int i = 0; ; i++);")):
        (row,) = of_pack(built(relu_net, enable="acme_relu"))
    assert "did not end within 1.5 s" in row["reason"]
    assert [r["kind"] for r in Quarantine(kept).records.values()] == ["hang"]


def test_one_that_fails_only_while_it_is_timed_takes_no_other_with_it(
    tmp_path: Path, kept: Path
) -> None:
    text = relu("static int runs; if (!tid && ++runs == LIMIT) abort();" + LOOP)
    text = text.replace("return [Variant()]", "return [Variant.of(limit=n) for n in (12, 1 << 30)]")
    text = text.replace(
        'Source("c", C)', 'Source("c", C.replace("LIMIT", str(variant.knob("limit"))))'
    )
    with installed(tmp_path, "acme_relu", text):
        rows = {r["variant"]: r for r in of_pack(built(relu_net, enable="acme_relu"))}
    assert rows["limit=12"]["status"] == "rejected"
    assert "SIGABRT" in rows["limit=12"]["reason"]
    assert rows[f"limit={1 << 30}"]["status"] == "measured"
    assert rows[f"limit={1 << 30}"]["seconds"] > 0
    assert len(Quarantine(kept).records) == 1


def test_what_one_does_to_the_process_is_not_laid_to_the_next(tmp_path: Path, kept: Path) -> None:
    text = relu("static int runs; if (!tid && ++runs == RUN) close(0);" + LOOP)
    text = text.replace("return [Variant()]", "return [Variant.of(run=n) for n in (5, -1)]")
    text = text.replace('Source("c", C)', 'Source("c", C.replace("RUN", str(variant.knob("run"))))')
    with installed(tmp_path, "acme_relu", text):
        rows = {r["variant"]: r for r in of_pack(built(relu_net, enable="acme_relu"))}
    assert rows["run=-1"]["status"] == "measured"
    assert all("run=-1" not in r["variant"] for r in Quarantine(kept).records.values())


def test_a_quarantine_that_cannot_be_written_stops_nothing(
    tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.parent.write_text("a file where the folder should be")
    with installed(tmp_path, "acme_relu", relu("abort();")):
        (row,) = of_pack(built(relu_net, enable="acme_relu"))
    assert "SIGABRT" in row["reason"]
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(0, 4), (), (1,), (5, 3)])
def test_odd_sizes_are_tried_too(shape: tuple[int, ...], tmp_path: Path) -> None:
    with installed(tmp_path, "acme_relu", relu(LOOP)):
        b = tactix.Builder(session=tactix.Session(enable=["acme_relu"]))
        (row,) = of_pack(b.build_plan(relu_net(b, shape), tactix.BuilderConfig(timing_cache=False)))
    assert row["status"] == "measured", row


def test_another_version_is_tried_again(tmp_path: Path, kept: Path) -> None:
    with installed(tmp_path, "acme_relu", relu("abort();")):
        assert of_pack(built(relu_net, enable="acme_relu"))[0]["status"] == "rejected"
    with installed(tmp_path, "acme_relu", relu(LOOP), "1.1"):
        assert of_pack(built(relu_net, enable="acme_relu"))[0]["status"] == "measured"
    assert [r["version"] for r in Quarantine(kept).records.values()] == ["1.0"]


def test_a_record_makes_the_trial_again(tmp_path: Path, kept: Path) -> None:
    with installed(tmp_path, "acme_relu", relu(LOOP + "if (!tid) y[-2] = 1;")):
        built(relu_net, ("n", 8), enable="acme_relu")
    (found,) = Quarantine(kept).records.values()
    path = os.pathsep.join([str(tmp_path / "acme_relu-1.0"), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", record.script(found)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert "wrote before the begin of output 0" in done.stdout, done.stderr
    older = {**found, "case": {**found["case"], "variant": "of older knobs"}}
    command = [sys.executable, "-c", record.script(older)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    (told,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert "the pack has changed since the record" in told
    assert "the variant of older knobs" in told
    assert len(Quarantine(kept).records) == 1
    with installed(tmp_path, "acme_relu", relu(LOOP)):
        assert "departs by 0 budgets" in record.replay(found["case"])


# -- those that do not get so far ----------------------------------------------------------------

COST = "def cost(self, node, variant, ctx):\n        return "
FAILING = {
    "variants": ("plain = ", "1 / 0; plain = ", "ZeroDivisionError"),
    "no variants": ("return [Variant()] if plain", "return None if plain", "TypeError"),
    "compile": ("args = (", "raise SystemExit(3); args = (", "SystemExit: 3"),
    "cost": ("def compile", f"{COST}{{}}['x']\n\n    def compile", "KeyError"),
    "a cost that is no number": (
        "def compile",
        f"{COST}float('nan')\n\n    def compile",
        "its cost of [default] is nan",
    ),
    "a cost below nothing": (
        "def compile",
        f"{COST}-1.0\n\n    def compile",
        "its cost of [default] is -1.0",
    ),
    "no variant": ("return [Variant()]", "return ['fast']", "'fast' is no Variant"),
    "no formats": ("return [Variant()]", "return [Variant((16,))]", "is no Variant of Formats"),
    "no artifact": ("return KernelArtifact", "return 7; KernelArtifact", "AttributeError"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_pack_that_fails_while_bidding_is_named_and_stops_nothing(
    name: str, tmp_path: Path
) -> None:
    before, after, error = FAILING[name]
    assert before in RELU
    with installed(tmp_path, "acme_relu", relu(LOOP).replace(before, after, 1)):
        plan = built(relu_net, enable="acme_relu")
    reasons = [
        r["reason"]
        for r in plan.ledger["nodes"]["node"]["rejections"]
        if r["tactic"].startswith("acme")
    ]
    assert len(reasons) == 1
    assert error in reasons[0]
    assert "acme-relu 1.0" in reasons[0]


def test_code_that_does_not_compile_is_rejected_alone(tmp_path: Path, kept: Path) -> None:
    text = relu("BODY").replace(
        "return [Variant()]", "return [Variant.of(n=n) for n in (0, 1, 2, 3)]"
    )
    sources = [
        LOOP,
        "this is no C",
        "helper();}\nvoid helper(void) {",
        LOOP + "helper();}\nvoid helper(void) {",
    ]
    text = text.replace(
        'Source("c", C)', f'Source("c", C.replace("BODY", {sources!r}[variant.knob("n")]))'
    )
    with installed(tmp_path, "acme_relu", text):
        rows = {r["variant"]: r for r in of_pack(built(relu_net, enable="acme_relu"))}
    assert rows["n=0"]["status"] == "measured"
    assert "acme-relu 1.0 does not compile" in rows["n=1"]["reason"]
    assert "quarantined" in rows["n=2"]["reason"]  # it is wrong, but it is C
    assert (
        "does not compile" in rows["n=3"]["reason"]
    )  # its names clash with those of the one before
    assert [r["kind"] for r in Quarantine(kept).records.values()] == ["wrong"]


def test_a_constant_that_cannot_be_packed_is_rejected(tmp_path: Path) -> None:
    packed = "workspace=100, constants=(('w', Packed(-1, (), lambda given: given[99])),))"
    text = (
        relu(LOOP)
        .replace("import scalar", "import Packed, scalar")
        .replace("workspace=100)", packed)
    )
    with installed(tmp_path, "acme_relu", text):
        (row,) = of_pack(built(relu_net, enable="acme_relu"))
    assert "IndexError" in row["reason"]
    assert "acme-relu 1.0" in row["reason"]


REFERENCE = 'KernelArtifact("tactix.numpy@1", params=node.meaning'
"""An artifact that tactix's own launcher runs, in the building process."""


@pytest.mark.parametrize("size", [-8, 1 << 60])
def test_a_workspace_that_cannot_be_is_rejected(size: int, tmp_path: Path) -> None:
    text = relu(LOOP).replace(
        "return KernelArtifact", f"return {REFERENCE}, workspace={size}); KernelArtifact"
    )
    with installed(tmp_path, "acme_relu", text):
        made = built(relu_net, enable="acme_relu").ledger["nodes"]["node"]
    rows = [r for r in (*made["candidates"], *made["rejections"]) if r["tactic"].startswith("acme")]
    assert len(rows) == 1
    assert re.search(f"needs {size} bytes|Unable to allocate", rows[0]["reason"])


def test_a_reference_of_another_layer_is_not_taken_untried(tmp_path: Path) -> None:
    other = REFERENCE.replace("node.meaning", '{**node.meaning, "layer": "tactix.Neg@1"}')
    text = relu(LOOP).replace("return KernelArtifact", f"return {other}); KernelArtifact")
    text = text.replace("def compile", f"{COST}1e-12\n\n    def compile")
    with installed(tmp_path, "acme_relu", text):
        plan = built(relu_net, enable="acme_relu", builder_optimization_level=0)
    (row,) = of_pack(plan)
    assert "was not tried" in row["reason"]
    assert plan.steps[0].info["tactic"].startswith("tactix.")


def test_an_output_that_is_said_to_be_the_input_is_checked(tmp_path: Path) -> None:
    text = relu(LOOP).replace("workspace=100)", "alias=True)")
    with installed(tmp_path, "acme_relu", text):
        (row,) = of_pack(built(relu_net, enable="acme_relu"))
    assert "departs from the reference" in row["reason"]


def test_what_was_not_tried_is_not_taken_where_others_can_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.Worker, "_start", no_process)
    text = relu(LOOP).replace("def compile", f"{COST}1e-12\n\n    def compile")
    with installed(tmp_path, "acme_relu", text):
        for fields in ({"builder_optimization_level": 0}, {"budget": 0.0}):
            (row,) = of_pack(built(relu_net, enable="acme_relu", **fields))
            assert "was not tried" in row["reason"]


COUNTS_DOWN = "int64_t i = n; do { i--; y[i] = x[i] > 0 ? x[i] : 0; } while (i > 0);"
OPEN = {
    "gives up": ("if (n == 0) abort();" + LOOP, "crashed with SIGABRT at n = 0"),
    "counts down": (COUNTS_DOWN, " at n = 0"),
    "right": (LOOP, ""),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes_are_tried_at_0_if_the_plan_may_meet_that(name: str, tmp_path: Path) -> None:
    body, text = OPEN[name]
    profile = tactix.OptimizationProfile()
    profile.set_shape("x", (1, 37), (33, 37), (64, 37))
    make = functools.partial(relu_net, shape=("n", 37))
    with installed(tmp_path, "acme_relu", relu(body)):
        (never_empty,) = of_pack(built(make, enable="acme_relu", profiles=[profile]))
        (row,) = of_pack(built(make, enable="acme_relu"))
    assert never_empty["status"] == "measured"
    assert row["status"] == ("rejected" if text else "measured")
    assert text in row.get("reason", "")


def test_without_strangers_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.Worker, "_start", no_process)
    with installed(tmp_path, "acme_relu", relu("abort();")):
        assert of_pack(built(relu_net)) == []  # it is not enabled


def test_the_process_ends_with_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[subprocess.Popen[bytes]] = []
    start = process.Worker._start

    def counted(self: process.Worker) -> None:
        start(self)
        found.append(self._process)  # type: ignore[arg-type]

    monkeypatch.setattr(process.Worker, "_start", counted)
    gc.disable()  # nor before that is due
    try:
        with installed(tmp_path, "acme_relu", relu(LOOP)):
            assert of_pack(built(relu_net, enable="acme_relu"))[0]["status"] == "measured"
        (worker,) = found
        assert worker.poll() is not None
    finally:
        gc.enable()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR")
@pytest.mark.parametrize("bits", ["0x8040", "0x6000", "0x4000", "0x2000"])
def test_a_kernel_that_leaves_another_float_mode_is_rejected(bits: str, tmp_path: Path) -> None:
    body = f"{LOOP} if (!tid) __builtin_ia32_ldmxcsr(0x1f80 | {bits});"
    with installed(tmp_path, "acme_relu", relu(body)):
        (row,) = of_pack(built(relu_net, enable="acme_relu"))
    assert row["status"] == "rejected"
    assert "left the floating-point mode changed" in row["reason"]


FORKS = """
extern int open(const char*, int, ...), flock(int, int), setpgid(int, int);
static int forked;
if (!tid && !forked++ && !flock(open("LOCKED", 2), 2) && !fork()) { LEAVE; for (;;) pause(); }
"""
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guardians of Linux")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes of POSIX")
@pytest.mark.parametrize("leave", ["", pytest.param("setpgid(0, 0)", marks=LINUX)])
def test_what_a_kernel_started_ends_with_the_process(leave: str, tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "locked"
    path.touch()
    text = FORKS.replace("LOCKED", str(path)).replace("LEAVE", leave)
    with installed(tmp_path, "acme_relu", relu(" ".join(text.split("\n")) + LOOP)):
        assert of_pack(built(relu_net, enable="acme_relu"))[0]["status"] == "measured"
    end = time.monotonic() + 60  # something hangs
    with open(path) as f:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            assert time.monotonic() < end, "the kernel's process lives"
            time.sleep(0.01)


# -- launchers of packs --------------------------------------------------------------------------

HOSTED = '''
"""A pack: Relu by numpy, run by a launcher of its own."""

import ctypes

import numpy as np
from tactix_sdk import KernelArtifact, Launcher, Reject, Tactic, Variant, hookimpl


class Run:
    def __init__(self, step):
        self.step = step

    def bind(self, env, addresses):
        (x,), (y,) = self.step.inputs, self.step.outputs
        self.x, self.y = (
            np.frombuffer((ctypes.c_char * o.spec.nbytes()).from_address(addresses[o.buffer]), "f4") for o in (x, y)
        )

    def rebind(self, buffer, address):
        raise NotImplementedError

    def __call__(self):
        BODY

    def repeat(self, times):
        for _ in range(times):
            self()


class Hosted(Launcher):
    key = "acme_host.python@1"

    def link(self, steps, ctx):
        (step,) = steps
        return Run(step)


class Relu(Tactic):
    key, implements, source = "acme_host.relu@1", ("pointwise",), "acme"

    def variants(self, node, device):
        return [Variant()] if [n.layer.key for n in node.body.nodes] == ["tactix.Relu@1"] else Reject("a bare Relu")

    def compile(self, node, variant, ctx):
        return KernelArtifact("acme_host.python@1")


@hookimpl
def tactix_tactics():
    return [Relu()]


@hookimpl
def tactix_launchers():
    return [Hosted()]
'''
HOSTS = {
    "np.maximum(self.x, 0, out=self.y)": ("measured", ""),
    "ctypes.string_at(0)": ("rejected", "crashed with SIGSEGV at address 0x0"),
    "raise OSError('no such thing')": ("rejected", "failed: OSError: no such thing"),
}


@pytest.mark.parametrize("body", HOSTS)
def test_a_launcher_of_a_pack_runs_elsewhere_too(body: str, tmp_path: Path, kept: Path) -> None:
    status, reason = HOSTS[body]
    with installed(tmp_path, "acme_host", HOSTED.replace("BODY", body)):
        site = tmp_path / "acme_host-1.0" / "acme_host-1.0.dist-info" / "entry_points.txt"
        site.write_text(
            "[tactix.build.v1]\nacme_host = acme_host\n[tactix.runtime.v1]\nacme_host = acme_host\n"
        )
        (row,) = of_pack(built(relu_net, enable="acme_host"))
    assert row["status"] == status
    assert reason in row.get("reason", "")
    assert len(Quarantine(kept).records) == ("SIGSEGV" in reason)


# -- those that are good -------------------------------------------------------------------------


def test_a_good_kernel_is_taken_where_it_is_faster(tmp_path: Path) -> None:
    with installed(tmp_path, "acme_gemm", GEMM):
        small = built(product_net, 2048, 4, 4, 4, enable="acme_gemm", threads=1)
        large = built(product_net, 4, 256, 256, 256, enable="acme_gemm", threads=1)
    for plan in (small, large):
        rows = plan.ledger["nodes"]["node"]["candidates"]
        (chosen,) = (r for r in rows if r["chosen"])
        least = min(r["seconds"] for r in rows if "seconds" in r)
        noise = max(0.03, *(r["spread"] for r in rows if "spread" in r))
        assert chosen["seconds"] <= least * (1 + noise)
        assert {r["status"] for r in rows} == {"measured"}
        assert [s.info["tactic"] for s in plan.steps] == [chosen["tactic"]]
    assert not of_pack(large)[0]["chosen"]
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((2048, 4, 4), dtype=np.float32) for _ in range(2))
    y = tactix.load(container.dump(small), on_untrusted="allow")({"a": a, "b": b})
    assert np.allclose(y, a @ b, atol=1e-5)


def test_after_a_pack_is_gone_a_build_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherProcesses, "delay", lambda self: 0.0)  # nothing is timed again
    # Built-in kernels that are nearly as fast as each other would change places by chance.
    monkeypatch.setattr(measure, "interleave", times_in_order)
    cache = tmp_path / "timings.json"
    shape = (2048, 4, 4, 4)
    built(product_net, *shape, timing_cache=cache)
    before = built(product_net, *shape, timing_cache=cache)
    kept = shutil.copy(cache, tmp_path / "kept.json")
    with installed(tmp_path, "acme_gemm", GEMM):
        built(product_net, *shape, timing_cache=cache, enable="acme_gemm")
        during = built(product_net, *shape, timing_cache=cache, enable="acme_gemm")
        assert of_pack(during)[0]["status"] == "cached"
    assert container.dump(during) != container.dump(before)
    after = built(product_net, *shape, timing_cache=cache)
    assert after.requirements == before.requirements
    assert [s.artifact for s in after.steps] == [s.artifact for s in before.steps]
    assert untimed(after.ledger) == untimed(before.ledger), (
        "rivals of the stranger ran again beside it, no more"
    )
    assert container.dump(built(product_net, *shape, timing_cache=Path(kept))) == container.dump(
        before
    )


def times_in_order(
    measured: Any, runnables: Sequence[Any], stopped: Callable[[], bool]
) -> list[list[float]]:
    """Seconds without a clock: tactix's own kernels take longer in the order in which they are
    given, a pack's is shorter than all of them.
    """
    own = [r for r in runnables if not hasattr(r, "seconds_of")]
    return [[1e-6 * (1 + own.index(r))] if r in own else [1e-7] for r in runnables]


def untimed(ledger: Any) -> Any:
    """The same without what clocks said."""
    if isinstance(ledger, list):
        return [untimed(x) for x in ledger]
    clocks = {"seconds", "spread", "predicted_seconds"}
    return (
        {k: untimed(v) for k, v in ledger.items() if k not in clocks}
        if isinstance(ledger, dict)
        else ledger
    )
