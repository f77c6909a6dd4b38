"""Losing is never failing: who is rejected, does not compile or was not tried costs itself the
race, not the build.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.base.dtypes import DType
from tactix.base.errors import AllocationError, InternalError, NoTacticError
from tactix.config import BuilderFlag
from tactix.contracts.artifact import KernelArtifact, Launch, Source, scalar, tensor_in, tensor_out
from tactix.contracts.device import Device
from tactix.contracts.tactic import Reject, Tactic, Variant
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.shortfall import Shortfall
from tactix.pipeline.state import BuildState
from tactix.plan import container
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.session import Session
from tactix.select.bench import Bench
from tactix_lock import frozen
from tactix_sdk.evaluate import evaluate
from tactix_tools.explanation import explain

FIRST = "#include <stdint.h>\nvoid TX_ENTRY(const int64_t* a, int tid, int nt) { if (!tid) ((float*)a[1])[0] = 42; }"


class Pack:
    """A pack of tactics."""

    def __init__(self, *tactics: Tactic) -> None:
        self.tactics = list(tactics)

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return self.tactics


class Written(Tactic):
    """A C text for a kind of node."""

    source = "test"

    def __init__(self, kind: str, text: str) -> None:
        self.key, self.implements, self.text = "test.written@1", (kind,), text

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()]

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        args = (tensor_in(0), tensor_out(0), scalar(node.outputs[0].spec.numel))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", self.text))


class Groups(Tactic):
    """Pointwise groups by their references; of more than so many layers by a kernel that is wrong."""

    key, implements, source = "test.groups@1", ("pointwise",), "test"

    def __init__(self, most: int) -> None:
        self.most = most

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()]

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        if len(node.body.nodes) <= self.most:
            return KernelArtifact("tactix.numpy@1", params=node.meaning)
        args = (tensor_in(0), tensor_out(0))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", FIRST))


def builder(*tactics: Tactic, own: bool = False) -> tactix.Builder:
    """``own``: the tactics are taken for tactix's own."""
    session = Session(plugins=[("test", Pack(*tactics))], enable=["test"])
    if own:
        session.strangers = dict  # type: ignore[method-assign]
    return tactix.Builder(KeptLog(), session)


def warnings(b: tactix.Builder) -> str:
    assert isinstance(b.logger, KeptLog)
    return "\n".join(b.logger.warnings)


def config(**fields: Any) -> tactix.BuilderConfig:
    return tactix.BuilderConfig(**{"timing_cache": False, "threads": 1, **fields})


def det(b: tactix.Builder) -> NetworkDefinition:
    """A layer without a kernel of tactix's own: of integers there is none."""
    net = b.create_network("det")
    net.mark_output(
        net.add_layer("tactix.Det", [net.add_input("x", "i32", (3, 4, 4))], name="det")[0], "y"
    )
    return net


def chain(b: tactix.Builder, *layers: str) -> NetworkDefinition:
    net = b.create_network("chain")
    v = net.add_input("x", "f32", ("n", 8))
    for i, layer in enumerate(layers):
        (v,) = net.add_layer(f"tactix.{layer}", [v], f"{layer}{i}")
    net.mark_output(v, "y")
    return net


def right(
    b: tactix.Builder, plan: tactix.Plan, net: NetworkDefinition, shape: tuple[int, ...]
) -> None:
    """The plan gives what the references give."""
    x = np.random.default_rng(3).standard_normal(shape, dtype=np.float32)
    x = x if net.inputs[0].spec.dtype is DType.FP32 else (9 * x).astype(np.int32)
    np.testing.assert_allclose(b._load(plan)(x), evaluate(net, {"x": x})["y"], rtol=1e-5, atol=1e-6)


def tactics(plan: tactix.Plan) -> list[str]:
    return [s.info["tactic"] for s in plan.steps]


# -- the reference -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [FIRST, "this is no C", "#error no"])
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("own", [True, False])
def test_a_layer_whose_only_kernel_fails_is_left_to_the_reference(
    text: str, level: int, own: bool
) -> None:
    b = builder(Written("tactix.Det@1", text), own=own)
    net = det(b)
    if own and level == 0 and text is FIRST:
        pytest.skip("tactix's own are trusted at level 0")
    plan = b.build_plan(net, config(builder_optimization_level=level))
    assert tactics(plan) == ["tactix.numpy@1"]
    assert "det (tactix.Det@1) is left to tactix.numpy@1: test.written@1 [default]: " in warnings(b)
    right(b, plan, net, (3, 4, 4))


def test_where_the_reference_is_forbidden_that_is_an_error() -> None:
    b = builder(Written("tactix.Det@1", FIRST))
    with pytest.raises(
        NoTacticError,
        match=r"det .*only the reference could run it: .*departs.* without NO_FALLBACK",
    ):
        b.build_plan(det(b), config(flags={BuilderFlag.NO_FALLBACK}))


def test_another_kernel_that_is_right_wins_and_nobody_asks_the_reference() -> None:
    b = builder(Written("pointwise", "this is no C"), own=True)
    net = chain(b, "Relu")
    plan = b.build_plan(net, config())
    rows = plan.ledger["nodes"]["Relu0"]["candidates"]
    assert tactics(plan) == ["tactix.c_pointwise@1"]
    assert {r["tactic"] for r in rows} == {"tactix.c_pointwise@1", "test.written@1"}
    assert not warnings(b)


def test_the_reference_is_timed_where_it_is_what_is_taken() -> None:
    b = builder()
    net = det(b)
    (row,) = b.build_plan(net, config()).ledger["nodes"]["det"]["candidates"]
    assert row["status"] == "measured"
    (row,) = b.build_plan(net, config(builder_optimization_level=0)).ledger["nodes"]["det"][
        "candidates"
    ]
    assert row["status"] == "estimated"


class Raises(Tactic):
    key, implements, source = "test.raises@1", ("tactix.Det@1",), "test"

    def variants(self, node: Any, device: Any) -> Any:
        raise KeyError("x")


def test_a_tactic_of_tactixs_own_that_raises_loses_and_is_told_of() -> None:
    b = builder(Raises(), own=True)
    assert tactics(b.build_plan(det(b), config())) == ["tactix.numpy@1"]
    assert "test.raises@1 for det: a tactic failed while bidding: KeyError('x')" in warnings(b)
    with pytest.raises(InternalError, match="failed while bidding"):
        b.build_plan(det(b), config(flags={BuilderFlag.DEBUG}))


def test_what_every_attempt_of_a_build_meets_is_told_once() -> None:
    """A precision is tried with all nodes in it, with none, and with some."""
    b = builder(Raises(), own=True)
    net = b.create_network("lowered")
    w = np.random.default_rng(0).standard_normal((32, 32), dtype=np.float32)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", (3, 32, 32)), net.add_constant(w)], name="mm"
    )
    net.mark_output(net.add_layer("tactix.Det", [y], name="det")[0], "y")
    b.build_plan(net, config(flags={BuilderFlag.BF16}, builder_optimization_level=0))
    assert warnings(b).count("test.raises@1 for det: a tactic failed while bidding") == 1
    assert len(set(b.logger.warnings)) == len(b.logger.warnings)  # type: ignore[attr-defined]


def test_what_was_chosen_by_estimate_and_does_not_compile_leaves_its_place_to_the_next() -> None:
    class Cheap(Written):
        def cost(self, node: Any, variant: Any, ctx: Any) -> float:
            return 1e-12

    b = builder(Cheap("pointwise", "this is no C"), own=True)
    net = chain(b, "Relu")
    plan = b.build_plan(net, config(builder_optimization_level=0))
    assert tactics(plan) == ["tactix.c_pointwise@1"]
    right(b, plan, net, (5, 8))


# -- what was not tried --------------------------------------------------------------------------


class Pretends(Written):
    """The fastest by its own word."""

    def cost(self, node: Any, variant: Any, ctx: Any) -> float:
        return 1e-12


@pytest.mark.parametrize(
    "fields", [{"budget": 0.0}, {"tactic_sources": {"test", "numpy"}, "budget": 0.0}]
)
def test_a_stranger_that_nobody_tried_is_not_chosen(fields: dict[str, Any]) -> None:
    b = builder(Pretends("pointwise", FIRST))
    net = chain(b, "Relu")
    plan = b.build_plan(net, config(**fields))
    (row,) = [
        r for r in plan.ledger["nodes"]["Relu0"]["candidates"] if r["tactic"] == "test.written@1"
    ]
    assert (row["status"], row["chosen"]) == ("rejected", False)
    assert "was not tried" in row["reason"]
    right(b, plan, net, (5, 8))


def test_cached_timings_of_an_earlier_build_count_as_tried(tmp_path: Path) -> None:
    body = "void TX_ENTRY(const int64_t* a, int tid, int nt) { const float* x = (const float*)a[0]; float* y = "
    text = f"#include <stdint.h>\n{body}(float*)a[1]; for (int64_t i = 0; i < a[2]; i++) y[i] = x[i] > 0 ? x[i] : 0; }}"
    b = builder(Written("pointwise", text))
    net, fields = (
        chain(b, "Relu"),
        {"timing_cache": tmp_path / "timings.json", "tactic_sources": {"test", "numpy"}},
    )
    first = b.build_plan(net, config(**fields))
    again = b.build_plan(net, config(budget=0.0, **fields))
    assert tactics(first) == tactics(again)
    rows = again.ledger["nodes"]["Relu0"]["candidates"]
    assert {r["status"] for r in rows} == {"cached"}
    assert {r["tactic"] for r in rows} == {"test.written@1", "tactix.numpy@1"}


# -- groups --------------------------------------------------------------------------------------

LAYERS = ("Relu", "Neg", "Abs", "Floor", "Neg")


@pytest.mark.parametrize(
    ("most", "steps"),
    [
        (5, ["Relu0 + Neg1 + Abs2 + Floor3 + Neg4"]),
        (3, ["Relu0 + Neg1 + Abs2", "Floor3 + Neg4"]),
        (2, ["Relu0 + Neg1", "Abs2", "Floor3 + Neg4"]),
        (1, ["Relu0", "Neg1", "Abs2", "Floor3", "Neg4"]),
    ],
)
def test_a_group_whose_kernels_all_lost_is_split_until_they_win(
    most: int, steps: list[str]
) -> None:
    b = builder(Groups(most), own=True)
    net, settings = (
        chain(b, *LAYERS),
        {"tactic_sources": {"test", "numpy"}, "builder_optimization_level": 1},
    )
    plan = b.build_plan(net, config(**settings))
    assert [s.name for s in plan.steps] == steps
    assert set(tactics(plan)) == {"test.groups@1"}
    right(b, plan, net, (5, 8))
    rows = plan.ledger["fusion"]["split"]
    assert len(rows) == len(steps) - 1
    assert all("departs from the reference" in r["reason"] for r in rows)


class Shy(Groups):
    """As Groups, but of more than so many layers it makes no bid at all."""

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()] if len(node.body.nodes) <= self.most else Reject("too many layers")


@pytest.mark.parametrize("flags", [set(), {BuilderFlag.NO_FALLBACK}])
@pytest.mark.parametrize(
    ("most", "steps"),
    [(5, ["Relu0 + Neg1 + Abs2 + Floor3 + Neg4"]), (2, ["Relu0 + Neg1", "Abs2", "Floor3 + Neg4"])],
)
def test_a_group_that_no_kernel_bids_for_is_split_until_one_does(
    most: int, steps: list[str], flags: set[BuilderFlag]
) -> None:
    b = builder(Shy(most), own=True)
    net, settings = (
        chain(b, *LAYERS),
        {"tactic_sources": {"test", "numpy"}, "builder_optimization_level": 1},
    )
    plan = b.build_plan(net, config(flags=flags, **settings))
    assert [s.name for s in plan.steps] == steps
    right(b, plan, net, (5, 8))
    reasons = [r["reason"] for r in plan.ledger["fusion"]["split"]]
    assert len(reasons) == len(steps) - 1
    assert all("test.groups@1: too many layers" in r for r in reasons)


def test_a_group_none_of_whose_layers_has_a_kernel_stays_whole() -> None:
    b = builder()
    plan = b.build_plan(chain(b, *LAYERS), config(tactic_sources={"numpy"}))
    assert [s.name for s in plan.steps] == ["Relu0 + Neg1 + Abs2 + Floor3 + Neg4"]


def test_a_lock_knows_what_was_split() -> None:
    b = builder(Groups(2), own=True)
    net, settings = (
        chain(b, *LAYERS),
        {"tactic_sources": {"test", "numpy"}, "builder_optimization_level": 1},
    )
    lock = frozen.make(b, net, config(**settings))
    plan = b.build_plan(net, frozen.settings(b.session, lock, net, config()))
    assert [s.name for s in plan.steps] == ["Relu0 + Neg1", "Abs2", "Floor3 + Neg4"]
    assert container.digest(plan).hex() == lock.plan


def test_a_lock_knows_what_was_left_to_the_reference() -> None:
    b = builder(Written("tactix.Det@1", FIRST))
    net = det(b)
    lock = frozen.make(b, net, config())
    assert tactics(b.build_plan(net, frozen.settings(b.session, lock, net, config()))) == [
        "tactix.numpy@1"
    ]


# -- clocks --------------------------------------------------------------------------------------


def test_a_clock_that_goes_back_ends_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(Device, "measure", lambda self, runnable, times: -float(next(ticks)))
    b = builder()
    net = chain(b, "Relu", "Neg")
    plan = b.build_plan(net, config())
    assert {s.info["status"] for s in plan.steps} == {"estimated"}
    right(b, plan, net, (5, 8))


# -- what is said at the end ---------------------------------------------------------------------


def test_what_falls_short_of_the_fast_path_is_one_line_at_the_end() -> None:
    b = builder(Groups(2), own=True)
    net = chain(b, *LAYERS)
    net.mark_output(
        net.add_layer("tactix.Det", [net.add_input("m", "f32", (3, 4, 4))], name="det")[0], "d"
    )
    settings = {"tactic_sources": {"test", "numpy"}, "builder_optimization_level": 1}
    plan = b.build_plan(net, config(**settings))
    assert plan.ledger["fell_short"] == {
        "layers": 4,
        "references": {"numpy": {"Det": 1}},
        "split": 1,
    }
    told, cure = warnings(b).splitlines()[-1].split(". ")
    assert told == "1 of 4 layers run on numpy: Det (1); 1 group fused in vain"
    assert cure == "`tactix explain PLAN` tells why, layer by layer"
    rows = {r["name"]: [s["node"] for s in r["split"]] for r in explain(plan)["nodes"]}
    assert rows["Abs2"] == ["Relu0 + Neg1 + Abs2 + Floor3 + Neg4", "Relu0 + Neg1 + Abs2"]
    assert rows["det"] == []
    assert explain(plan, "Abs2")["nodes"][0]["fired"]


def test_bids_that_nobody_tried_and_guesses_are_counted() -> None:
    b = builder(Pretends("pointwise", FIRST))
    plan = b.build_plan(chain(b, "Relu"), config(budget=0.0))
    assert plan.ledger["fell_short"] == {"layers": 1, "untried": 1, "estimated": 1}
    last = warnings(b).splitlines()[-1]
    assert last.startswith("1 bid not tried; 1 layer chosen by estimate; ")
    assert "s beyond the budget of 0 s" in last


def test_nothing_is_said_where_nothing_falls_short() -> None:
    b = builder()
    for level in (0, 1):
        plan = b.build_plan(chain(b, "Relu"), config(builder_optimization_level=level))
        assert plan.ledger["fell_short"] == {"layers": 1}
        assert not warnings(b)


def test_networks_add_up() -> None:
    parts = [
        Shortfall(4, {"numpy": {"Det": 1}}, wide=1),
        Shortfall(5, {"numpy": {"Det": 2, "TopK": 1}}, estimated=2),
    ]
    total = Shortfall.total(parts)
    assert total.text == (
        "4 of 9 layers run on numpy: Det (3), TopK (1); 1 layer kept the precision of the model; "
        "2 layers chosen by estimate"
    )
    assert Shortfall.read({"fell_short": total.to_json()}) == total
    assert Shortfall.read({}).text == ""


def test_what_has_no_memory_to_be_tried_is_estimated_and_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sizes to tune for may be too large for this machine; the kernels are right nevertheless."""

    def full(*args: Any, **named: Any) -> Any:
        raise AllocationError("no memory")

    monkeypatch.setattr("tactix.select.measure.Measurer._tried", full)
    log = KeptLog()
    builder = tactix.Builder(log)
    network = builder.create_network()
    (y,) = network.add_layer("tactix.Softmax", [network.add_input("x", "f32", (8, 64))], axis=1)
    network.mark_output(y, "y")
    plan = builder.build_plan(network, tactix.BuilderConfig(timing_cache=False))
    assert [s.info["status"] for s in plan.steps] == ["estimated"]
    assert any("is chosen by estimate: no memory to try it" in text for text in log.warnings)
    kernels = [
        c for c in plan.ledger["nodes"]["softmax"]["candidates"] if c["tactic"] != "tactix.numpy@1"
    ]
    assert all(c["status"] == "estimated" for c in kernels)


class Pooled(Tactic):
    """Chains that end in a MaxPool by their references, in so many seconds."""

    key, implements, source, by_signature = "test.pooled@1", ("tactix.MaxPool@1",), "test", True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def match(self, node: Any, device: Any) -> Any:
        return node if node.body.is_chain else Reject("nothing is before it")

    def cost(self, node: Any, variant: Any, ctx: Any) -> float:
        return self.seconds

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        return KernelArtifact("tactix.numpy@1", params=node.meaning)


@pytest.mark.parametrize("seconds", [1e-12, 10.0])
def test_a_chain_stays_where_it_is_faster_than_its_halves(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = builder(Pooled(seconds), own=True)
    others = [t for t in b.session.active_tactics() if t.key != "tactix.c_pooled_conv@1"]
    monkeypatch.setattr(b.session, "active_tactics", lambda: others)
    net = pooled(b)
    plan = b.build_plan(net, config(builder_optimization_level=0))
    assert ("test.pooled@1" in tactics(plan)) == (seconds < 1)
    assert "in vain" not in warnings(b)
    right(b, plan, net, (1, 3, 8, 8))


def test_where_the_budget_is_spent_no_other_form_takes_the_place_of_what_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BuildState, "is_spent", True)
    b = builder(Pooled(10.0), own=True)
    others = [t for t in b.session.active_tactics() if t.key != "tactix.c_pooled_conv@1"]
    monkeypatch.setattr(b.session, "active_tactics", lambda: others)
    plan = b.build_plan(pooled(b), config(builder_optimization_level=0))
    assert "test.pooled@1" in tactics(plan)


@pytest.mark.compiler
def test_the_halves_of_a_chain_are_timed_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[list[str]] = []
    linked = Bench.prepare_row

    def noted(self: Bench, row: Any, env: Any) -> Any:
        rows.append([n.name for n, _, _ in row])
        return linked(self, row, env)

    monkeypatch.setattr(Bench, "prepare_row", noted)
    b = builder()
    net = pooled(b)
    plan = b.build_plan(net, config(builder_optimization_level=1))
    assert rows == [["conv", "pool"]]
    right(b, plan, net, (1, 3, 8, 8))


@pytest.mark.compiler
def test_views_of_a_rival_run_nothing_where_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transposed convolution beside a product whose columns are added up."""
    rows: list[list[str]] = []
    linked = Bench.prepare_row

    def noted(self: Bench, row: Any, env: Any) -> Any:
        rows.append([n.layer.name for n, artifact, _ in row if artifact.alias])
        return linked(self, row, env)

    monkeypatch.setattr(Bench, "prepare_row", noted)
    b = builder()
    net = b.create_network("turned")
    x, w = net.add_input("x", "f32", (1, 8, 9, 9)), net.add_input("w", "f32", (8, 4, 4, 4))
    (y,) = net.add_layer("tactix.ConvTranspose", [x, w], strides=(2, 2), pads=(1, 1, 1, 1))
    net.mark_output(y, "y")
    plan = b.build_plan(net, config(builder_optimization_level=1))
    assert ["Reshape"] * 3 in rows
    assert "is decided by" not in warnings(b)
    given = {
        v.name: np.random.default_rng(3).standard_normal(v.spec.shape, np.float32)
        for v in net.inputs
    }
    found = b._load(plan).run(given)["y"]
    want = evaluate(net, given)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def pooled(b: tactix.Builder) -> NetworkDefinition:
    """A convolution and what pools it."""
    net = b.create_network("pooled")
    x = net.add_input("x", "f32", (1, 3, 8, 8))
    w = net.add_constant(np.random.default_rng(2).standard_normal((4, 3, 3, 3), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], name="conv")
    net.mark_output(net.add_layer("tactix.MaxPool", [y], name="pool", kernel_shape=(2, 2))[0], "y")
    return net
