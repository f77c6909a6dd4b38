"""docs/layers.md, made from the built-in layers: meaning, inputs, attributes, operators, and the
shapes of an example.

python tests/documents/layers_page.py    # writes it anew
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix.contracts.layer import Layer
from tactix_ops.layers import FAMILIES
from tactix_sdk.scalar_layer import PointwiseLayer
from tactix_sdk.testing.examples import examples_of, specs_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "layers.md"
COMMAND = "python tests/documents/layers_page.py"

HEAD = f"""# Layers

What every built-in operation means. Written by `{COMMAND}` from
`plugins_builtin/tactix_ops/layers`; a test holds that it is current. [The guide](plugins/2-layers.md) tells how to
add one.

*Pointwise* layers broadcast their inputs as numpy does and fuse anywhere; behind layers that *take an epilogue* they
become part of the kernel. A `Dim` is an integer or an expression over symbols, as `2*n + 1`; the attribute `symbol`
names sizes that only running tells, and is set by importers. *Such as* is an example: attributes, specs of inputs, and
what follows from them. ONNX operators that are layers under their own name are listed; others have converters
([coverage](onnx.md)).
"""


def page() -> str:
    """The whole document."""
    families = [(name, import_module(f"tactix_ops.layers.{name}")) for name in FAMILIES]
    links = [f"[{name}](#{name})" for name, _ in families]
    parts = [HEAD, " · ".join(links) + "\n"]
    for name, module in families:
        parts.append(f"## {name}\n\n{spans(_text(module.__doc__))}\n")
        parts += [section(layer) for layer in module.LAYERS]
    return "\n".join(parts)


def section(layer: Layer) -> str:
    """One layer: what it means, its attributes, where it comes from, an example."""
    lines = [f"### {layer.key}", "", spans(_text(layer.__doc__)), ""]
    if isinstance(layer, PointwiseLayer):
        lines += [f"Inputs: {', '.join(f'`{n}`' for n in _parameters(layer))}.", ""]
    if rows := list(_attributes(layer)):
        if text := _meaning(layer.Attrs):
            lines += [spans(text), ""]
        lines += ["| attribute | type | default |", "|---|---|---|", *rows, ""]
    facts = [*_traits(layer), *(f"ONNX `{i.removeprefix('onnx:')}`" for i in layer.imports)]
    if facts:
        text = "; ".join(facts)
        lines += [f"{text[0].upper()}{text[1:]}.", ""]
    if example := _example(layer):
        lines += [f"Such as: {example}", ""]
    return "\n".join(lines)


def spans(text: str) -> str:
    """Docstrings mark code by two backquotes, pages by one; marks of the page outside of code are
    escaped.
    """
    parts = re.split(r"``(.+?)``", text, flags=re.S)
    return "".join(
        f"`{p}`" if i % 2 else re.sub(r"([*_<|])", r"\\\1", p) for i, p in enumerate(parts)
    )


def _text(doc: str | None) -> str:
    return inspect.cleandoc(doc or "")


def _parameters(layer: PointwiseLayer) -> list[str]:
    parameters = inspect.signature(layer.function).parameters.values()
    named = {f.name for f in dataclasses.fields(layer.Attrs)}
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in named]


def _meaning(schema: Any) -> str:
    """What the schema says of its fields; a dataclass without a docstring has its signature there."""
    doc = _text(schema.__doc__)
    return "" if doc.startswith(f"{schema.__name__}(") else doc


def _attributes(layer: Layer) -> Iterator[str]:
    for f in dataclasses.fields(layer.Attrs):
        kind = f.type if isinstance(f.type, str) else f.type.__name__
        is_needed = f.default is dataclasses.MISSING
        default = (
            "needed"
            if is_needed
            else "its networks"
            if kind == "Bodies"
            else f"`{_value(f.default)}`"
        )
        yield f"| `{f.name}` | `{kind.replace(' | ', ', ')}` | {default} |"


def _value(value: Any) -> str:
    return value.value if isinstance(value, DType) else repr(value)


def _traits(layer: Layer) -> Iterator[str]:
    if layer.is_pointwise:
        yield "pointwise"
    if layer.takes_epilogue:
        yield "takes an epilogue"
    if layer.commutative:
        yield "commutative"


def _example(layer: Layer) -> str:
    """The first example that infers: specs of inputs and outputs. Layers over objects and bodies
    have none.
    """
    for attributes, text in examples_of(layer):
        inputs = specs_of(text)
        try:
            outputs = layer.infer(layer.Attrs(**attributes), inputs)
        except TactixError:
            continue
        given = ", ".join(f"{name}={_value(value)}" for name, value in attributes.items())
        call = "; ".join(
            [*([f"`{given}`"] if given else []), ", ".join(f"`{s}`" for s in inputs) or "no inputs"]
        )
        return f"{call} gives {', '.join(f'`{s}`' for s in outputs)}."
    return ""


if __name__ == "__main__":
    PAGE.write_text(page())
