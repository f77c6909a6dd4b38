"""What notebooks show of engines, networks and profiles; without a pack that draws it is nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from report_plans import HOSTILE, built, hostile, large, profile_of

import tactix
from tactix.contracts.presenter import Presenter
from tactix.plan.schema import Plan
from tactix_inspect.pictures import plan_picture

BEGIN = """
import sys, tactix
builder = tactix.Builder()
net = builder.create_network("small")
net.mark_output(net.add_layer("tactix.Relu", [net.add_input("x", "f32", [3])])[0], "y")
config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
engine = tactix.Runtime(session=builder.session).load(builder.build_plan(net, config))
engine.create_execution_context().run({"x": [1.0, 2.0, 3.0]})
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return built("lenet.onnx")


def parsed(html: str | None) -> list[ElementTree.Element]:
    """The SVGs of a fragment, which is well formed."""
    assert html is not None
    elements = list(ElementTree.fromstring(html).iter())
    kinds = {e.tag.rpartition("}")[2] for e in elements}
    assert kinds <= {"div", "b", "br", "span", "svg", "path", "rect", "line", "title"}
    attributes = {a for e in elements for a in e.attrib}
    assert not [a for a in attributes if a.startswith("on") or a in ("src", "href")]
    assert "url(" not in "".join(e.get("style", "") + e.get("fill", "") for e in elements)
    return [e for e in elements if e.tag.endswith("svg")]


def test_an_engine_is_drawn(plan: Plan) -> None:
    engine = tactix.Runtime(on_untrusted="allow").load(plan)
    html = engine._repr_html_()
    labels = [s.get("aria-label") for s in parsed(html)]
    assert labels[0] == f"graph of {len(plan.steps) + 2} nodes"
    assert html is not None
    for told in ("lenet", f"{len(plan.steps)} steps", "time by tactic", "lower bound"):
        assert told in html


def test_a_network_is_drawn() -> None:
    net = tactix.Builder().create_network("small")
    x = net.add_input("x", "f32", ["n", 3])
    (h,) = net.add_layer("tactix.Relu", [x])
    w = net.add_constant(np.float32([1, 2, 3]), "c")
    net.mark_output(net.add_layer("tactix.Mul", [h, w])[0], "y")
    html = net._repr_html_()
    assert [s.get("aria-label") for s in parsed(html)] == ["graph of 2 nodes", "layers by kind"]
    assert html is not None
    for told in ("2 layers", "x: f32(n, 3)", "gives y", "Relu 1", "Mul 1"):
        assert told in html
    assert net.copy()._repr_html_() == html


def test_an_empty_network_is_drawn() -> None:
    assert parsed(tactix.Builder().create_network("")._repr_html_()) == []


def test_a_profile_is_drawn(plan: Plan) -> None:
    profile = profile_of(plan)
    html = profile._repr_html_()
    assert next(s.get("aria-label") for s in parsed(html)) == f"timeline of {len(plan.steps)} steps"
    assert "median of 3" in html
    assert parsed(replace(profile, steps=())._repr_html_()) == []


def test_names_are_escaped(plan: Plan) -> None:
    html = plan_picture(hostile(plan))
    assert parsed(html)
    assert HOSTILE not in html
    assert "&lt;/script&gt;" in html


def test_a_picture_of_a_large_plan_is_small() -> None:
    html = plan_picture(large(3000))
    assert parsed(html)
    assert len(html) < 400_000


def test_a_presenter_of_a_pack_is_asked_once_it_is_enabled() -> None:
    class Own(Presenter):
        key = "acme.own"

        def html(self, subject: object) -> str | None:
            return "<p>mine</p>" if subject == 3 else None

    class Broken(Presenter):
        key = "acme.broken"

        def html(self, subject: object) -> str | None:
            raise ValueError("no picture")

    pack = tactix.plugins.pack.BasePack("acme")
    pack.presenter(Broken())
    pack.presenter(Own())
    session = tactix.Session("runtime", plugins=[pack])
    assert session.presented(3) is None
    session.enable("acme")
    assert session.presented(3) == "<p>mine</p>"


def test_without_a_pack_there_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_DISABLE", "inspect")
    code = "print(net._repr_html_(), engine._repr_html_())"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None None\n"


FLAVOUR = "tactix_inspect.shadowing"
IMPORTED = str(["tactix_inspect", "tactix_inspect.plugin", FLAVOUR, f"{FLAVOUR}.flavour"])
"""A runtime asks for flavours, to find its own."""


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    code = "print(sorted(m for m in sys.modules if m.startswith('tactix_inspect')))"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == IMPORTED
