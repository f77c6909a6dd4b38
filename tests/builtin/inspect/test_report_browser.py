"""The report in a browser: mouse, keys, screen reader, paper, and names that mean harm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import browser
import pytest
from browser import Browser, Page, browsing
from report_plans import built, hostile, large, profile_of

from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_inspect.profile import PlanProfile
from tactix_inspect.report.document import ReportSubject, document, tuned_sizes
from tactix_inspect.report.html import page
from tactix_tools import plan_diff
from tactix_tools.explanation import explain

pytestmark = pytest.mark.skipif(not browser.found(), reason="no Chromium is installed")

LARGE = 3000
VIEWS = 8


def write(folder: Path, name: str, plan: Plan, profile: PlanProfile | None = None) -> Path:
    """A report with what there is, beside the same plan with another name."""
    file, other = folder / f"{name}.plan", folder / f"{name}2.plan"
    differences = {}
    if profile is not None:
        container.save(plan, file)
        container.save(built("lenet.onnx", threads=2), other)
        differences = plan_diff.report(str(file), str(other), {})
    subject = ReportSubject(plan, "it", 1, tuned_sizes(plan), explain(plan), differences, profile)
    out = folder / f"{name}.html"
    out.write_text(page(document(subject), plan.name), encoding="utf-8")
    return out


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    small = built("lenet.onnx")
    return {
        "small": write(folder, "small", small, profile_of(small)),
        "hostile": write(folder, "hostile", hostile(large(40))),
        "large": write(folder, "large", large(LARGE)),
    }


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def tab(chromium: Browser) -> Page:
    found = chromium.page()
    found.sized(1440, 900)
    return found


def shown(tab: Page) -> str:
    """The heading of the details."""
    return str(tab.run("document.querySelector('#details h2').textContent"))


def middle(tab: Page, selector: str) -> tuple[float, float]:
    told = tab.run(
        f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
        ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    return told[0], told[1]


def chosen(tab: Page) -> str:
    """The node that the graph shows as chosen; empty for none."""
    return str(tab.run("document.querySelector('.node.chosen')?.dataset.node ?? ''"))


@pytest.mark.parametrize("name", ["small", "hostile", "large"])
def test_nothing_is_asked_for_and_nothing_fails(
    tab: Page, pages: dict[str, Path], name: str
) -> None:
    tab.open(pages[name])
    for i in range(VIEWS):
        tab.press(str(i + 1))
        tab.press("Tab", "ArrowRight", "ArrowRight")
    tab.press("/")
    tab.write("matmul")
    tab.press("Enter")
    assert tab.run("document.querySelector('#view-graph svg.graph') !== null")
    assert tab.errors == []
    assert tab.requests == [pages[name].as_uri()]
    assert tab.run("window.hacked") is None
    assert tab.run("document.images.length") == 0


def test_a_click_shows_a_step(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["large"])
    assert shown(tab) == "large"
    tab.click(*middle(tab, "[data-node='1'] .label"))
    assert chosen(tab) == "1"
    assert shown(tab) == "MatMul + Relu"
    details = tab.run("document.getElementById('details').textContent")
    for told in ("/block.0/layer.1/MatMul", "c_conv", "onnx tensor 1", "inner relu", "near tie"):
        assert told in details
    assert "the processor has no tiles" in details
    tab.click(*middle(tab, "#details .close"))
    assert shown(tab) == "large"


def test_a_group_opens(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["large"])
    before = tab.run("document.querySelector(\"[data-node='1'] .body\").getAttribute('height')")
    tab.click(*middle(tab, "[data-node='1'] .opener"))
    assert "inner relu" in tab.run("document.querySelector(\"[data-node='1']\").textContent")
    after = tab.run("document.querySelector(\"[data-node='1'] .body\").getAttribute('height')")
    assert float(after) > float(before)
    tab.press("Tab")
    tab.run("document.querySelector('svg.graph').focus()")
    tab.press("Enter")
    assert "inner relu" not in tab.run("document.querySelector(\"[data-node='1']\").textContent")


def test_search_finds_tensors_of_the_model(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["large"])
    tab.press("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.write("onnx tensor 2999")
    assert tab.run("document.querySelectorAll('#found [role=option]').length") == 1
    assert tab.run("document.activeElement.getAttribute('aria-activedescendant')") == "found-0"
    tab.press("Enter")
    assert chosen(tab) == "2999"
    assert tab.run("document.activeElement.classList.contains('graph')")
    tab.press("Escape")
    assert chosen(tab) == ""
    assert tab.run("document.getElementById('search').value") != ""
    tab.press("Escape")
    assert tab.run("document.getElementById('search').value") == ""


def test_the_graph_is_walked_by_arrows(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["large"])
    tab.run("document.querySelector('svg.graph').focus()")
    tab.press("Home")
    assert chosen(tab) == "0"
    tab.press("ArrowDown")
    assert chosen(tab) not in ("", "0")
    tab.press("ArrowUp", "ArrowUp")
    assert tab.run("document.getElementById('announce').textContent").startswith("input x")
    tab.press("End")
    assert chosen(tab) == str(LARGE - 1)
    assert tab.run("document.getElementById('announce').textContent").startswith("step 2999")


def test_everything_is_reached_by_the_keyboard(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["small"])
    tab.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    reached = []
    while "svg" not in reached:
        tab.press("Tab")
        reached.append(tab.run("document.activeElement.id || document.activeElement.tagName"))
        outline = tab.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", reached
    assert reached[:3] == ["search", "help-button", "tab-graph"]
    tab.run("document.getElementById('tab-graph').focus()")
    for name in ("timeline", "time", "memory", "roofline"):
        tab.press("ArrowRight")
        assert tab.run("document.activeElement.id") == f"tab-{name}"
        assert tab.run(f"!document.getElementById('view-{name}').hidden")
    tab.press("?")
    assert tab.run("document.getElementById('help').open")
    tab.press("Escape")
    assert not tab.run("document.getElementById('help').open")


def test_rows_of_tables_are_walked_and_chosen(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["large"])
    tab.press("3")
    tab.run("document.querySelector('#view-time section > div:last-child tbody tr').focus()")
    tab.press("ArrowDown", "Enter")
    assert tab.run("document.activeElement.getAttribute('aria-current')") == "true"
    assert shown(tab) == "MatMul + Relu"
    tab.click(*middle(tab, "#view-time .table button"))
    assert tab.run("document.querySelectorAll('#view-time [aria-sort]').length") == 1


def test_charts_are_walked_by_arrows(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["small"])
    for view in ("2", "4", "5", "7"):
        tab.press(view)
        tab.run("document.querySelector('[role=tabpanel]:not([hidden]) svg.chart').focus()")
        tab.press("Home", "ArrowRight")
        assert tab.run("document.getElementById('announce').textContent").startswith("step 1,")
    assert tab.run("document.querySelector('#view-timeline .mark') !== null")


def test_controls_have_names(tab: Page, pages: dict[str, Path]) -> None:
    roles = {
        "button", "combobox", "searchbox", "textbox", "tab", "tablist", "tabpanel", "listbox",
        "option", "link", "application", "dialog", "img", "table", "complementary",
    }  # fmt: skip
    tab.open(pages["small"])
    seen = set()
    for i in range(VIEWS + 1):
        tab.press(str(i + 1))
        for node in tab.do("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value", "")
            known = {p["name"] for p in node.get("properties", ())}
            is_row = role == "row" and "focusable" in known
            if (role in roles or is_row) and not node.get("ignored"):
                seen.add(role)
                assert node.get("name", {}).get("value", "").strip(), (i, role, node)
    assert {"button", "combobox", "tab", "application", "table"} <= seen


def test_colours_have_contrast_in_both_schemes(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["small"])
    found = {}
    for scheme in ("light", "dark"):
        tab.media(prefers_color_scheme=scheme)
        names = [
            "page",
            "surface",
            "ink",
            "muted",
            "accent",
            "on-bar",
            *(f"c{i}" for i in range(9)),
        ]
        colours = {
            n: tab.run(
                f"getComputedStyle(document.documentElement).getPropertyValue('--{n}').trim()"
            )
            for n in names
        }
        found[scheme] = colours
        for ink, ground in product(("ink", "muted", "accent"), ("page", "surface")):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (scheme, ink, ground)
        for i in range(9):
            assert contrast(colours[f"c{i}"], colours["page"]) >= 3, (scheme, i)
        for i in range(8):
            assert contrast(colours[f"c{i}"], colours["on-bar"]) >= 4.5, (scheme, i)
    assert found["light"] != found["dark"]
    tab.media()


def contrast(a: str, b: str) -> float:
    """Of two colours, by WCAG 2."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_paper_has_every_view(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["small"])
    assert tab.paper().startswith(b"%PDF")
    assert tab.errors == []
    assert tab.run("document.querySelector('.paper') === null")
    tab.media(media="print")
    panels = "[...document.querySelectorAll('[role=tabpanel]')]"
    assert tab.run(f"{panels}.every((p) => getComputedStyle(p).display === 'block')")
    assert tab.run(f"{panels}.every((p) => p.firstChild)")
    assert tab.run("getComputedStyle(document.getElementById('tabs')).display") == "none"
    tab.media()


def test_a_narrow_window_shows_all(tab: Page, pages: dict[str, Path]) -> None:
    tab.open(pages["small"])
    tab.sized(420, 800)
    assert tab.run("document.documentElement.scrollWidth") <= 420
    tab.sized(1440, 900)


ANSWER = """
(async () => {
  const start = performance.now();
  %s;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
})()
"""


def test_clicks_are_answered_at_once(
    tab: Page, pages: dict[str, Path], record_property: Callable[[str, object], None]
) -> None:
    """How long, in milliseconds until the next picture, is told in the test's properties, with what
    the page's thread worked.
    """
    tab.open(pages["large"])
    press = (
        "const e = document.querySelector(\"[data-node='1'] .body\").getBoundingClientRect();"
        "for (const t of ['pointerdown', 'pointerup']) document.querySelector('svg.graph')"
        ".dispatchEvent(new PointerEvent(t, { bubbles: true, button: 0, clientX: e.x + 90,"
        " clientY: e.y + 10 }))"
    )
    clicks = {
        "a node": press,
        **{
            f"the view {view}": f"document.getElementById('tab-{view}').click()"
            for view in ("timeline", "time", "memory", "candidates", "precision", "graph")
        },
        "all of the graph": "document.querySelector('[aria-label=\"Show the whole graph\"]').click()",
        "a search": "const s = document.getElementById('search'); s.value = 'layer.29';"
        " s.dispatchEvent(new InputEvent('input'))",
    }
    for name, script in clicks.items():
        before = tab.busy()
        took = tab.run(ANSWER % script)
        record_property(name, f"{took:.0f} ms, {tab.busy() - before:.0f} ms of work")
        print(f"{name}: {took:.0f} ms, {tab.busy() - before:.0f} ms of work")
    assert shown(tab) == "MatMul + Relu"
    assert tab.run("document.querySelectorAll('#found [role=option]').length") > 1
