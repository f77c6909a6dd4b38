"""A network as text, one line per layer: for people, golden tests and logs."""

from __future__ import annotations

import dataclasses
from typing import Any

from tactix.base.dims import Expr
from tactix.base.dims import show as show_dims
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition


def show(net: NetworkDefinition) -> str:
    """Inputs, layers in order with attributes and specs, outputs."""
    lines = [f"input {v.name}: {v.spec}" for v in net.inputs]
    lines += [show_node(n) for n in net.nodes]
    lines += [f"output {k}: {v.name}" for k, v in zip(net.output_names, net.outputs, strict=True)]
    return "\n".join(lines)


def show_node(n: Node) -> str:
    """``conv1: Convolution(x, w) {strides=(2, 2)} -> f32(1, 64, 112, 112)``."""
    what = "[" + ", ".join(b.layer.name for b in n.body.nodes) + "]" if n.is_fused else n.layer.name
    inputs = ", ".join("-" if v is None else v.name for v in n.inputs)
    fields = "" if n.is_fused else _attrs(n.attrs)
    return f"{n.name}: {what}({inputs}){fields} -> {', '.join(str(v.spec) for v in n.outputs)}"


def _attrs(attrs: Any) -> str:
    changed = [
        f"{f.name}={_text(getattr(attrs, f.name))}"
        for f in dataclasses.fields(attrs)
        if getattr(attrs, f.name) != f.default
    ]
    return f" {{{', '.join(changed)}}}" if changed else ""


def _text(v: Any) -> str:
    return show_dims(v) if isinstance(v, tuple) and any(isinstance(x, Expr) for x in v) else str(v)
