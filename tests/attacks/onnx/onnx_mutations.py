"""Changes of a sound model: of its bytes, and of single fields to values that mean nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import onnx

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    -5,
    127,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, left out or put in, near the ends as often as anywhere: weights lie
    between.
    """
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.choice(
            [rng.randrange(len(out)), rng.randrange(min(len(out), 4000)), -rng.randrange(1, 2000)]
        )
        kind = rng.randrange(4)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind == 2:
            del out[at]
        else:
            out.insert(at, rng.randrange(256))
    return bytes(out)


def _attribute(m: Any, rng: random.Random) -> Any:
    nodes = [n for n in m.graph.node if n.attribute]
    return rng.choice(rng.choice(nodes).attribute) if nodes else onnx.AttributeProto()


def change_attribute(m: Any, rng: random.Random) -> None:
    a = _attribute(m, rng)
    a.i = rng.choice(NUMBERS)
    if a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)


def change_length(m: Any, rng: random.Random) -> None:
    a = _attribute(m, rng)
    if rng.random() < 0.5 and a.ints:
        del a.ints[-1]
    else:
        a.ints.extend([1] * rng.choice([1, 2, 50]))


def change_kind(m: Any, rng: random.Random) -> None:
    _attribute(m, rng).type = rng.randrange(15)


def rename_attribute(m: Any, rng: random.Random) -> None:
    _attribute(m, rng).name = rng.choice(["axis", "value", "to", "", "perm"])


def change_operator(m: Any, rng: random.Random) -> None:
    names = sorted({s.name for s in onnx.defs.get_all_schemas()})
    rng.choice(m.graph.node).op_type = rng.choice(names)


def change_input(m: Any, rng: random.Random) -> None:
    """A node reads something else: a tensor of another shape or dtype, nothing, or too much."""
    node = rng.choice(m.graph.node)
    known = [t.name for t in m.graph.initializer] + [v.name for v in m.graph.input] + [""]
    known += [o for n in m.graph.node for o in n.output]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(known)
    elif node.input and rng.random() < 0.5:
        del node.input[-1]
    else:
        node.input.extend(rng.choices(known, k=3))


def change_dims(m: Any, rng: random.Random) -> None:
    t = rng.choice(m.graph.initializer)
    if t.dims and rng.random() < 0.7:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
    else:
        t.dims.extend([1] * rng.choice([1, 2, 40]))


def change_content(m: Any, rng: random.Random) -> None:
    """Other elements in a tensor of integers: shapes, axes, bounds."""
    whole = [
        t
        for t in m.graph.initializer
        if t.data_type == onnx.TensorProto.INT64 and len(t.raw_data) >= 8
    ]
    constants = [
        a.t for n in m.graph.node for a in n.attribute if a.t.data_type == onnx.TensorProto.INT64
    ]
    tensors = whole + [t for t in constants if len(t.raw_data) >= 8]
    if tensors:
        t = rng.choice(tensors)
        t.raw_data = rng.choice(NUMBERS).to_bytes(8, "little", signed=True) + t.raw_data[8:]


def change_dtype(m: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        rng.choice(m.graph.initializer).data_type = rng.randrange(30)
    else:
        rng.choice(m.graph.input).type.tensor_type.elem_type = rng.randrange(30)


def change_shape(m: Any, rng: random.Random) -> None:
    shape = rng.choice(m.graph.input).type.tensor_type.shape
    if shape.dim and rng.random() < 0.7:
        rng.choice(shape.dim).dim_value = rng.choice(NUMBERS)
    else:
        shape.dim.add().dim_value = rng.choice(NUMBERS)


def drop(m: Any, rng: random.Random) -> None:
    sections = [m.graph.node, m.graph.initializer, m.graph.input, m.graph.output, m.opset_import]
    section = rng.choice([s for s in sections if s])
    del section[rng.randrange(len(section))]


def repeat(m: Any, rng: random.Random) -> None:
    section = rng.choice([m.graph.node, m.graph.initializer, m.graph.input, m.graph.output])
    section.add().CopyFrom(rng.choice(section))


def change_version(m: Any, rng: random.Random) -> None:
    m.opset_import[0].version = rng.choice([*range(1, 25), *NUMBERS])


MUTATIONS: tuple[Callable[[Any, random.Random], None], ...] = (
    change_attribute, change_length, change_kind, rename_attribute, change_operator, change_input, change_dims,
    change_content, change_dtype, change_shape, drop, repeat, change_version,
)  # fmt: skip
