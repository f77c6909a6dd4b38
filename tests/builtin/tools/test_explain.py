"""``tactix explain``: who bid, how fast, why not, by which rules, and what another choice would
cost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.api import configure
from tactix.base.errors import InvalidArgument
from tactix.plan import container
from tactix.plugins.session import Session
from tactix_sdk import Reject, c_tactic, hookimpl
from tactix_tools.cli import main
from tactix_tools.explanation import SCHEMA, explain


@pytest.fixture(scope="module")
def engine() -> Any:
    builder, rng = tactix.Builder(), np.random.default_rng(3)
    net = builder.create_network("two")
    x = net.add_input("x", "f32", (60, 256))
    (y,) = net.add_layer(
        "tactix.MatMul",
        [x, net.add_constant(rng.standard_normal((256, 96), np.float32))],
        name="up",
    )
    (y,) = net.add_layer("tactix.Relu", [y], name="act")
    (y,) = net.add_layer("tactix.Softmax", [y], name="last", axis=1)
    net.mark_output(y, "y")
    return builder.build(
        net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=3)
    )


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """JSON schema, as far as SCHEMA uses it."""
    if "const" in schema:
        return bool(value == schema["const"])
    kinds = {
        "string": str,
        "number": (int, float),
        "integer": int,
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    if not isinstance(value, kinds[schema["type"]]):
        return False
    if schema["type"] == "array":
        return all(fits(x, schema["items"]) for x in value)
    if schema["type"] == "object" and "properties" in schema:
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(
            fits(v, known[k]) for k, v in value.items()
        )
    return True


def test_it_follows_its_schema(engine: Any) -> None:
    facts = json.loads(json.dumps(explain(engine)))
    assert fits(facts, SCHEMA)
    assert not fits({**facts, "more": 1}, SCHEMA)
    assert len(facts["nodes"]) == 2


def test_one_node_by_its_name_in_the_model(engine: Any) -> None:
    (row,) = explain(engine, "act")["nodes"]
    assert row["origin"] == ["up", "act"]
    assert "tactix.epilogue" in [f["rule"] for f in row["fired"]]
    (won,) = (c for c in row["candidates"] if c["chosen"])
    others = [c for c in row["candidates"] if "costs_more" in c]
    assert others
    for c in others:
        assert c["costs_more"] == pytest.approx(c["seconds"] - won["seconds"])
    assert any(r["reason"] for r in row["rejections"])


def test_a_node_that_is_not_there(engine: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"no node 'atc' in the plan.*act"):
        explain(engine, "atc")


def test_the_command(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "it.plan")
    engine.save(path)
    assert main(["explain", path]) == 0
    assert "costs more" in capsys.readouterr().out
    assert main(["explain", path, "last"]) == 0
    assert "tactix.Softmax@1, of the model's last" in capsys.readouterr().out
    assert main(["explain", path, "last", "--json"]) == 0
    assert fits(json.loads(capsys.readouterr().out), SCHEMA)
    assert main(["explain", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
    assert main(["explain"]) == 2


def test_what_stays_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = tactix.Builder()
    net = builder.create_network("large")
    x = net.add_input("x", "f32", (4, 8))
    for name, most in (("small", 1.0), ("large", 1e6)):
        w = net.add_constant(np.full((8, 8), most, np.float32))
        net.mark_output(net.add_layer("tactix.MatMul", [x, w], name=name)[0], name)
    config = configure(
        device="tactix.cuda@1", target="sm_90", level=0, timing_cache=False, precision="fp16"
    )
    config.set_layer_precision("small", "fp16")
    plan = builder.build_plan(net, config)
    precision = explain(plan)["precision"]
    assert precision.pop("times").keys() <= {"small"}
    assert precision == {
        "lowered": ["small"],
        "wide": {"large": "FP16 does not hold its constants"},
    }
    assert fits(json.loads(json.dumps(explain(plan))), SCHEMA)
    path = tmp_path / "it.plan"
    container.save(plan, path)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert "in lower precision: 1 layers; as they were: 1" in out
    assert "large: FP16 does not hold its constants" in out


class Waiting:
    """A pack with a tactic for a layer of tactix's."""

    @hookimpl
    def tactix_tactics(self) -> list[Any]:
        return [c_tactic("acme.gemm@1", "tactix.MatMul@1")(lambda op: Reject("never"))]


def test_tactics_that_wait_for_their_pack_to_be_enabled_are_named(engine: Any) -> None:
    session = Session(plugins=[("acme", Waiting())])
    told = {r["name"]: r["rejections"] for r in explain(engine, session=session)["nodes"]}
    said = [[x["reason"] for x in rows if x["tactic"] == "acme.gemm@1"] for rows in told.values()]
    assert sorted(map(len, said)) == [0, 1]
    (reason,) = max(said, key=len)
    assert reason.endswith("disabled until enabled: --enable acme")
    assert fits(explain(engine, session=session), SCHEMA)
    session.enable("acme")
    assert "acme.gemm@1" not in json.dumps(explain(engine, session=session))
