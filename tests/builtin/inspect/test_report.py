"""A report's document says what the plan does; the page is one file that asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from report_plans import HOSTILE, built, hostile, large, profile_of

from tactix.base.errors import InvalidArgument
from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.launcher import Step
from tactix.plan import container, kernel_sets
from tactix.plan.schema import Plan
from tactix.select.compile import COMPILED
from tactix_inspect.report.document import ReportSubject, document, tuned_sizes
from tactix_inspect.report.html import page
from tactix_tools import cli, plan_diff
from tactix_tools.explanation import explain


@pytest.fixture(scope="module")
def plan() -> Plan:
    return built("lenet.onnx")


def told(plan: Plan, **more: Any) -> dict[str, Any]:
    sizes = tuned_sizes(plan)
    return document(ReportSubject(plan, "it.plan", 1, sizes, explain(plan), **more))


def graph_of(plan: Plan, **more: Any) -> dict[str, Any]:
    doc = told(plan, **more)
    graph: dict[str, Any] = doc["graphs"][doc["main"]]
    return graph


# -- the document ----------------------------------------------------------------------------------


def test_every_step_is_told(plan: Plan) -> None:
    steps = graph_of(plan)["steps"]
    assert [s["name"] for s in steps] == [s.name for s in plan.steps]
    assert [s["tactic"] for s in steps] == [s.info["tactic"] for s in plan.steps]
    assert all(o["bytes"] > 0 for s in steps for o in (*s["inputs"], *s["outputs"]))


def test_a_fused_step_has_its_layers() -> None:
    step = graph_of(large(4))["steps"][0]
    assert [n["op"] for n in step["inner"]] == step["layers"] == ["MatMul", "Relu"]
    assert [n["attrs"] for n in step["inner"]] == ["", "axis=1"]


def test_edges_lead_from_makers_to_readers(plan: Plan) -> None:
    graph = graph_of(plan)
    edges = {tuple(e) for e in graph["edges"]}
    count, rows = len(plan.steps), graph["layout"]["rows"]
    for i, s in enumerate(graph["steps"]):
        assert {m for m in (o["from"] for o in s["inputs"]) if m >= 0} <= {
            a for a, b in edges if b == i
        }
    assert (count, 0) in edges  # the input is the first node behind the steps
    assert any(b == count + 1 for _, b in edges)  # then the output
    assert all(rows[a] < rows[b] for a, b in edges)


def test_a_tensor_of_parts_comes_from_all_that_write_them() -> None:
    graph = graph_of(built("unet.onnx"))
    readers = [b for _, b in graph["edges"]]
    assert max(map(readers.count, set(readers))) >= 2


def test_nodes_of_a_row_are_apart() -> None:
    layout = graph_of(large(400))["layout"]
    lines: dict[int, list[float]] = {}
    for row, place in zip(layout["rows"], layout["places"], strict=True):
        lines.setdefault(row, []).append(place)
    gaps = [b - a for line in lines.values() for a, b in pairwise(sorted(line))]
    assert gaps
    assert min(gaps) >= 0.99
    assert min(layout["places"]) >= 0.49


def test_memory_is_that_of_the_plan(plan: Plan) -> None:
    memory = graph_of(plan)["memory"]
    assert max(memory["live"]) == memory["least"] <= memory["arena"]
    for _, _, first, last, offset, nbytes in memory["blocks"]:
        assert 0 <= first <= last < len(plan.steps)
        assert 0 <= offset <= memory["arena"] - nbytes


def test_candidates_are_those_of_the_ledger(plan: Plan) -> None:
    rows = told(plan)["nodes"]
    assert [len(r["candidates"]) for r in rows] == [
        len(r["candidates"]) for r in plan.ledger["nodes"].values()
    ]
    assert all(sum(bool(c.get("chosen")) for c in r["candidates"]) == 1 for r in rows)


def test_notes_of_other_types_are_left_out(plan: Plan) -> None:
    first = plan.steps[0]
    info = {**first.info, "origin": 7, "layers": [None, "a"], "seconds": float("nan"), "tactic": {}}
    step = graph_of(replace(plan, steps=(replace(first, info=info), *plan.steps[1:])))["steps"][0]
    assert "origin" not in step
    assert "seconds" not in step
    assert step["layers"] == ["a"]
    assert step["tactic"] == first.artifact.launcher


def test_a_kernel_is_told_by_its_first_comment(plan: Plan) -> None:
    first = plan.steps[0]
    code = Binary(b"123", "k_1", "int a;\n/* rows of 4,\n   twice */\n// no\n")
    with_code = replace(first, artifact=replace(first.artifact, code=code))
    ledger = {**plan.ledger, COMPILED: {"k_1": {"language": "c", "compiler": 3}}}
    told_plan = replace(plan, steps=(with_code, *plan.steps[1:]), ledger=ledger)
    assert graph_of(told_plan)["steps"][0]["kernel"] == {
        "entry": "k_1",
        "language": "c",
        "compiler": "",
        "title": "rows of 4, twice",
        "lines": 4,
        "bytes": 3,
    }


def test_plans_inside_are_graphs_of_their_own() -> None:
    loop = built("loops/greedy.onnx")
    doc = told(loop)
    (holder,) = [s for s in doc["graphs"][0]["steps"] if s.get("bodies")][:1]
    inside = doc["graphs"][holder["bodies"][0]]
    assert len(doc["graphs"]) == sum(1 for _ in loop.nested())
    assert inside["name"].startswith(holder["name"])


def test_of_sets_of_kernels_the_first_profile_s_is_shown(plan: Plan) -> None:
    artifact = KernelArtifact("tactix.sets@1", params={kernel_sets.KEY: [1]})
    buffers = tuple(replace(b, first=min(b.first, 0), last=min(b.last, 0)) for b in plan.buffers)
    other = replace(plan, steps=plan.steps[:1], buffers=buffers)
    holder = Step("sets", artifact, (), (), plans=(other, plan))
    doc = told(replace(other, steps=(holder,), ledger={**plan.ledger, "nodes": {}}))
    assert doc["graphs"][doc["main"]]["name"] == "sets / 1"
    assert len(doc["graphs"][doc["main"]]["steps"]) == len(plan.steps)
    assert [n["name"] for n in doc["nodes"]] == list(plan.ledger["nodes"])


def test_a_profile_is_told_by_step(plan: Plan) -> None:
    profile = profile_of(plan)
    doc = told(plan, profile=profile)
    assert [s["seconds"] for s in doc["profile"]["steps"]] == [s.seconds for s in profile.steps]
    assert doc["profile"]["roofline"] == {"flops": {"f32": 1e11}, "nbytes": 1e10, "spread": 0.0}


def test_steps_of_bodies_are_no_steps_of_the_plan(plan: Plan) -> None:
    profile = profile_of(plan)
    inner = replace(profile.steps[0], name="of a body", inside=profile.steps[0].name)
    doc = told(plan, profile=replace(profile, steps=(inner, *profile.steps)))
    assert doc["profile"]["steps"] == told(plan, profile=profile)["profile"]["steps"]


def test_a_profile_of_another_plan_is_refused(plan: Plan) -> None:
    profile = profile_of(plan)
    other = replace(profile, steps=(replace(profile.steps[0], name="other"),))
    with pytest.raises(InvalidArgument, match="of another plan"):
        told(plan, profile=other)
    with pytest.raises(InvalidArgument, match="of another plan"):
        told(plan, profile=replace(profile, steps=(replace(profile.steps[0], index=99),)))


# -- the page --------------------------------------------------------------------------------------


class Parts(HTMLParser):
    """Elements with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.texts:
            self.texts[self._inside][-1] += data

    @property
    def document(self) -> Any:
        return json.loads(self.texts["script"][0])


def test_the_page_holds_the_document(plan: Plan) -> None:
    doc = told(plan, profile=profile_of(plan))
    assert Parts(page(doc, "a < b")).document == json.loads(json.dumps(doc))
    assert Parts(page(doc, "a < b")).texts["title"] == ["a < b – tactix report"]


def test_the_page_asks_for_nothing(plan: Plan) -> None:
    parts = Parts(page(told(plan), "it"))
    for tag, attributes in parts.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert not [a for a in attributes if a.startswith("on") or a == "style"]
        assert (attributes.get("href") or "#").startswith("#")
    for text in (*parts.texts["script"][1:], *parts.texts["style"]):
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(|fetch\(|import\(", text
        )


def test_the_policy_names_what_is_there(plan: Plan) -> None:
    parts = Parts(page(told(plan), "it"))
    (policy,) = [a["content"] or "" for t, a in parts.elements if "http-equiv" in a]
    for text in (parts.texts["script"][1], parts.texts["style"][0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_hostile_names_stay_texts(plan: Plan) -> None:
    evil = hostile(plan)
    parts = Parts(page(told(evil), evil.name))
    assert len(parts.texts["script"]) == 2
    assert not [t for t, _ in parts.elements if t == "img"]
    assert parts.document["plan"]["name"] == evil.name
    assert parts.document["graphs"][0]["steps"][0]["name"].endswith(HOSTILE)
    assert len(Parts(page(told(plan), "it")).elements) == len(parts.elements)


def test_scripts_make_no_html() -> None:
    script = Parts(page(told(large(4)), "it")).texts["script"][1]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in script


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_one_file(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other, times = (tmp_path / n for n in ("a.plan", "b.plan", "p.json"))
    container.save(plan, file)
    container.save(built("lenet.onnx", threads=2), other)
    times.write_text(json.dumps(profile_of(plan).to_json()))
    assert cli.main(["report", str(file)]) == 0
    assert "a.html" in capsys.readouterr().out
    assert Parts((tmp_path / "a.html").read_text()).document["differences"] is None
    out = tmp_path / "out.html"
    more = ["--profile", str(times), "--against", str(other), "--shapes", "x:3x1x28x28"]
    capsys.readouterr()
    assert cli.main(["report", str(file), "-o", str(out), *more, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"plan": str(file), "output": str(out), "bytes": out.stat().st_size}
    doc = Parts(out.read_text()).document
    assert doc["differences"]["files"] == ["a.plan", "b.plan"]
    assert doc["differences"]["meta"] == plan_diff.report(str(file), str(other), {})["meta"]
    assert doc["plan"]["sizes"] == {"batch": 3}
    assert doc["profile"]["runs"] == 3


def test_what_is_no_profile_is_refused(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, times = tmp_path / "a.plan", tmp_path / "p.json"
    container.save(plan, file)
    for text, why in (("{", "no JSON"), ("{}", "no profile")):
        times.write_text(text)
        assert cli.main(["report", str(file), "--profile", str(times)]) != 0
        assert f"{times}: {why}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a.html").exists()


def test_a_damaged_ledger_is_one_error(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.plan"
    container.save(replace(plan, ledger={"nodes": {"a": {"candidates": 3}}}), file)
    assert cli.main(["report", str(file)]) != 0
    assert "the plan's ledger cannot be read" in capsys.readouterr().err
