"""docs/layers.md tells every built-in layer as it is."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from layers_page import COMMAND, PAGE, page, section, spans

from tactix.contracts.layer import Layer
from tactix_ops.layers import all_layers

WITHOUT_EXAMPLE = {
    "If",
    "Loop",
    "Scan",
    "Range",
    "SequenceConstruct",
    "SequenceEmpty",
    "Optional",
    "SplitToSequence",
}
"""Beside layers that take sequences and optionals, whose specs an example's text cannot say."""


@dataclass(frozen=True)
class TwiceAttrs:
    """``times``: how often."""

    times: int
    name: str = "a|b"


class Twice(Layer):
    """The input ``times`` times; a*b, and a < b."""

    key = "acme.Twice@1"
    takes_epilogue = True
    imports = ("onnx:acme::Twice",)
    Attrs = TwiceAttrs


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), f"write it anew: {COMMAND}"


def test_every_layer_is_there_with_its_meaning() -> None:
    text = PAGE.read_text()
    assert re.findall(r"^### (.*)$", text, flags=re.M) == [layer.key for layer in all_layers()]
    sections = {s.split("\n")[0]: s for s in text.split("\n### ")[1:]}
    for layer in all_layers():
        assert spans((layer.__doc__ or "").split("\n")[0]) in sections[layer.key]
        objects = layer.takes_objects or layer.name in WITHOUT_EXAMPLE
        assert objects or "Such as: " in sections[layer.key], layer.key


def test_a_section_tells_attributes_operators_and_traits() -> None:
    text = section(Twice())
    assert "The input `times` times; a\\*b, and a \\< b." in text
    assert "| `times` | `int` | needed |" in text
    assert "`times`: how often." in text
    assert "Takes an epilogue; ONNX `acme::Twice`." in text
