"""What the site needs beside the pages: links that leave docs/ become the names of what they lead
to, and what tests read of a block (the file that it is or goes on in) becomes its title.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
MARKED = re.compile(r"^```(\w+) ([^`\n]+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Files beside docs/ are no pages of the site; tests/test_documents.py holds that they are
    there.
    """
    folder = (DOCS / page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        leaves = "://" not in link[2] and not (folder / link[2]).resolve().is_relative_to(DOCS)
        return link[1] if leaves else link[0]

    return MARKED.sub(_titled, LINK.sub(kept, markdown))


def _titled(fence: re.Match[str]) -> str:
    """The first line of a block as the site's Markdown has it, which knows no bare words there."""
    what, _, path = fence[2].partition("=")
    return f'```{fence[1]} title="{path}"' if what in ("file", "in") else f"```{fence[1]}"
