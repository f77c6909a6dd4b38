"""What the site's hook makes of a page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

HOOKS = Path(__file__).resolve().parents[2] / "docs" / "site_hooks.py"


@pytest.fixture(scope="module")
def on_page() -> object:
    spec = importlib.util.spec_from_file_location("site_hooks", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="plugins/page.md"))
    return lambda text: module.on_page_markdown(text, page=page)


@pytest.mark.parametrize(
    ("fence", "made"),
    [
        ("```python file=a/b.py", '```python title="a/b.py"'),
        ("```python in=a/b.py", '```python title="a/b.py"'),
        ("```python norun", "```python"),
        ("```sh", "```sh"),
    ],
)
def test_first_lines_of_blocks_are_what_the_site_knows(
    on_page: object, fence: str, made: str
) -> None:
    assert callable(on_page)
    assert on_page(f"{fence}\nx[0][1]\n```\n") == f"{made}\nx[0][1]\n```\n"


def test_links_that_leave_the_folder_become_names(on_page: object) -> None:
    assert callable(on_page)
    assert on_page("[a](../../README.md) [b](../cli.md)") == "a [b](../cli.md)"
