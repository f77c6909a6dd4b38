"""The guide does what it says: every page's Python and shell runs, page by page, with the output
that it shows.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import guide
import pytest

from tactix_sdk.testing import CHECKS, ordered

FOLDER = Path(__file__).parents[2] / "docs" / "plugins"
PAGES = sorted(FOLDER.glob("*.md"))
RUNNING = [p for p in PAGES if any(b.runs for b in guide.blocks(p.read_text()))]


@pytest.mark.skipif(os.name != "posix", reason="the guide's shell is bash")
@pytest.mark.parametrize("page", RUNNING, ids=lambda p: p.stem)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = [tmp_path / "env" / "bin" / "python", guide.__file__, page]
    done = subprocess.run(
        command,
        cwd=work,
        env=guide.environment(tmp_path / "env"),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]


def test_all_numbered_pages_run_and_the_first_page_leads_to_each() -> None:
    assert [p.name[:2] for p in RUNNING if p.name[0].isdigit()] == [f"{n}-" for n in range(1, 10)]
    links = set(re.findall(r"\]\(([^)#]+\.md)\)", (FOLDER / "README.md").read_text()))
    assert {p.name for p in PAGES} - {"README.md"} <= links


def test_the_product_has_forty_lines() -> None:
    found = guide.blocks((FOLDER / "4-tactics.md").read_text())
    (text,) = (b.text for b in found if b.options.get("file", "").startswith("acme-gemm/"))
    assert len(text.splitlines()) <= 40


def test_the_page_of_checks_has_every_check_in_order() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.+?) \| .+ \|$", (FOLDER / "checks.md").read_text(), re.M
    )
    assert rows == [(name, CHECKS[name].about) for name in ordered()]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "shown is"),
        ("```python\n1 / 0\n```\n", "line 2: ZeroDivisionError"),
        ("```sh\nfalse\necho after\n```\n", "exit status 1"),
        ("```sh fails\ntrue\n```\n", "exit status 0"),
        ("```python file=b.py\nx = 3\n```\n```python in=b.py\nx = 4\n```\n", "is not in b.py"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=why):
        list(guide.Page(text).run())


def test_what_a_page_may_leave_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, left = "```python file=a/b.py\nx = 3\n```\n", "```python norun\n1 / 0\n```\n"
    shown = "```python\nprint('one two')\n```\n```text\none...\n```\n"
    assert [got for _, got in guide.Page(kept + left + shown).run()] == ["", "one two\n"]
    assert (tmp_path / "a" / "b.py").read_text() == "x = 3\n"
