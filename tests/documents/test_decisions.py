"""Pages of decisions are dated, say what was rejected, and are all in the list."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_page_is_dated_and_says_what_was_rejected(path: Path) -> None:
    text = path.read_text()
    number, _, _ = path.name.partition("-")
    assert text.startswith(f"# {int(number)}. ")
    (date,) = re.findall(r"^Date: (.*)$", text, flags=re.M)
    assert datetime.date.fromisoformat(date)
    assert re.findall(r"^## (.*)$", text, flags=re.M) == [
        "Context",
        "Decision",
        "Rejected",
        "What follows",
    ]
    rejected = text.split("## Rejected")[1].split("## ")[0]
    assert len(re.findall(r"^- \*\*", rejected, flags=re.M)) >= 2


def test_the_list_has_every_page_with_its_title_and_date() -> None:
    wanted = []
    for path in PAGES:
        title, date = re.findall(r"^# \d+\. (.*)\n\nDate: (.*)$", path.read_text(), flags=re.M)[0]
        wanted.append(f"| [{title}]({path.name}) | {date} |")
    rows = [
        line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| [")
    ]
    assert rows == wanted
