"""What the site needs beside the pages: links that leave docs/ become the names of what they lead
to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Files beside docs/ are no pages of the site; tests/test_documents.py holds that they are
    there.
    """
    folder = (DOCS / page.file.src_uri).parent

    def kept(link: re.Match[str]) -> str:
        leaves = "://" not in link[2] and not (folder / link[2]).resolve().is_relative_to(DOCS)
        return link[1] if leaves else link[0]

    return LINK.sub(kept, markdown)
