"""A document and the page in one file, which needs no other and asks for none."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

SCRIPTS = (
    "format", "dom", "model", "table", "plot", "graph_drawing", "graph", "timeline", "memory",
    "shares", "roofline", "candidates", "precision", "shortfall", "differences", "details",
    "search", "main",
)  # fmt: skip
"""Files of JavaScript, in the order in which they are read: together they are one module."""

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""What might end a script element; JSON has these in texts alone."""


def page(document: Mapping[str, Any], title: str) -> str:
    """HTML. The browser runs the script with this digest and no other, and loads nothing."""
    script = "\n".join(_file(f"{name}.js") for name in SCRIPTS)
    style = _file("report.css")
    return Template(_file("report.html")).substitute(
        title=html.escape(title),
        style_digest=_digest(style),
        script_digest=_digest(script),
        style=style,
        script=script,
        document=embedded(document),
    )


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element, whatever its texts are."""
    told = json.dumps(_finite(document), separators=(",", ":"), allow_nan=False)
    for character, code in _UNSAFE.items():
        told = told.replace(character, code)
    return told


def _finite(value: Any) -> Any:
    """JSON knows no other numbers; a plan's notes may have them."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _file(name: str) -> str:
    return resources.files("tactix_inspect.report.page").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Of an element's text, as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
