"""docs/tensorrt-plugins.md tells every plugin of TensorRT that is read."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plugin_operators_page import COMMAND, PAGE, page

from tactix_trtops import operators


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), f"write it anew: {COMMAND}"


def test_every_name_is_there() -> None:
    text = PAGE.read_text()
    assert [n for o in operators() for n in o.names if f"`{n}`" not in text] == []
