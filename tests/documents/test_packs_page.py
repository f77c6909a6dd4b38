"""docs/architecture.md and the packs' READMEs say what the code does, and answer where things would
change.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from packs_page import ARCHITECTURE, COMMAND, ROOT, drawing, packs, pages, table, with_lines


@pytest.mark.parametrize(
    ("path", "wanted"), list(pages()), ids=lambda v: v.parent.name if isinstance(v, Path) else ""
)
def test_pages_are_current(path: Path, wanted: str) -> None:
    assert path.read_text() == wanted, f"write it anew: {COMMAND}"


def test_the_table_follows_the_code() -> None:
    rows = {row.split("`")[1]: row for row in table().splitlines()[2:]}
    assert set(rows) == {p.name for p in packs()}
    assert "| devices, allocators, launchers, tactics, compilers |" in rows["tactix_cpu"]
    assert rows["tactix_cublaslt"].endswith(
        "the core, `tactix_codegen`, `tactix_cuda`, `tactix_sdk` |"
    )
    assert rows["tactix_tools"].endswith("| every pack |")


def test_the_drawing_leaves_out_what_others_imply() -> None:
    lines = drawing().splitlines()
    assert "  tactix_ops --> tactix_sdk" in lines
    assert "  tactix_ops --> tactix_codegen" not in lines
    assert "    fuse --> network" in lines


def test_a_readme_without_its_lines_is_told() -> None:
    (cpu,) = (p for p in packs() if p.name == "tactix_cpu")
    with pytest.raises(
        ValueError, match=r"tactix_cpu/README.md has 0 lines of the kind - \*\*Provides"
    ):
        with_lines("# tactix_cpu\n", cpu)


def test_each_readme_says_where_things_lie() -> None:
    for pack in packs():
        _, _, where = (pack.folder / "README.md").read_text().partition("Where things lie:\n")
        assert where.strip().startswith("- `"), pack.name


def test_the_page_says_where_things_would_change() -> None:
    section = ARCHITECTURE.read_text().split("## Where would it change?")[1].split("\n## ")[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| a new ")]
    first = {change.strip("| "): re.findall(r"`([^`]+)`", file)[0] for change, file, _ in rows}
    assert list(first) == [
        "a new activation",
        "a new conv tiling",
        "a new plan section",
        "a new CLI flag",
        "a new ONNX operator",
        "a new Hopper epilogue",
    ]
    assert [path for path in first.values() if not (ROOT / path).exists()] == []
