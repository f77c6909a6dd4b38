"""What ``tests/shared/structure.py`` says must be zero is zero."""

from __future__ import annotations

import pytest
import structure


@pytest.fixture(scope="module")
def found() -> list[structure.Module]:
    return structure.modules()


@pytest.mark.parametrize("name", structure.ZERO)
def test_nothing_is_counted(name: str, found: list[structure.Module]) -> None:
    places = structure.ZERO[name](found)
    assert not places, "\n".join(places)


def test_the_counts_see() -> None:
    path = structure.ROOT / "core" / "tactix" / "made_up.py"
    twice = (
        "class T:\n"
        " def cost(self, w, v, ctx): read(w, ctx.device)\n"
        " def compile(self, w, v, ctx): read(w, ctx.device)\n"
        "class Early:\n"
        " def cost(self, node: Node, v, ctx): read(node, v)\n"
        " def compile(self, node: Node, v, ctx): read(node, v)\n"
        "class Once:\n"
        " def variants(self, w, device): return sorted(MADE, key=lambda v: seconds(w, v, device))\n"
        " def cost(self, w, v, ctx): return seconds(w, v, ctx.device)\n"
    )
    text = f"from tactix_cuda.device import _inner\nclass Node: pass\n{twice}" + "x" * 101
    low = structure.Module(path, "tactix.made_up")
    low.__dict__["text"] = text
    high = structure.Module(structure.ROOT / "plugins_builtin" / "made_up.py", "tactix_cuda.other")
    high.__dict__["text"] = "from tactix.made_up import Node\nclass Node: pass"
    for name, count in (
        ("private-names", 1),
        ("same-names", 1),
        ("analysed-twice", 2),
        ("long-lines", 1),
    ):
        assert len(structure.ZERO[name]([low, high])) == count, name


def test_what_takes_the_place_of_a_module_has_its_names(found: list[structure.Module]) -> None:
    session, lean = (
        next(m for m in found if m.name == name)
        for name in ("tactix.plugins.session", "tactix_ship.lean.session")
    )
    assert not structure.same_names([session, lean])
    assert structure.same_names([session, session])
