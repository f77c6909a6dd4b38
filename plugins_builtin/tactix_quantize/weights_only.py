"""Weights of few bits in blocks, activations as they are: MatMul becomes MatMulNBits, an operator
of ONNX Runtime's domain ``com.microsoft``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import onnx
from onnx import helper

from tactix.base.arrays import Array
from tactix.base.errors import ConfigError
from tactix_quantize import onnx_model
from tactix_quantize.onnx_model import Initializers

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class FewBits:
    """``bits``: 4 or 8. ``block``: elements along K that share a scale, 16 or more, a power of two.
    ``symmetric``: the zero point is the middle of the integers; otherwise every block has its own.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = True


@dataclass(frozen=True)
class WeightBlocks:
    """``packed``: uint8 (N, blocks, bytes), of two numbers in a byte the lower first. ``scales``:
    float32 (N, blocks). ``zeros``: packed as well, uint8 (N, bytes); None: they are the middle.
    """

    packed: Array
    scales: Array
    zeros: Array | None


def in_blocks(w: Array, kind: FewBits) -> WeightBlocks:
    """Weights (K, N), float, rounded to the nearest."""
    k, n = w.shape
    blocks = -(-k // kind.block)
    padded = np.zeros((n, blocks * kind.block), np.float32)
    padded[:, :k] = w.T
    x = padded.reshape(n, blocks, kind.block)
    high = (1 << kind.bits) - 1
    scales, zeros = _symmetric(x, kind.bits) if kind.symmetric else _asymmetric(x, high)
    whole = np.rint(x / scales[..., None]) + zeros[..., None]
    numbers = np.clip(whole, 0, high).astype(np.uint8)
    stored = None if kind.symmetric else _packed(zeros.astype(np.uint8), kind.bits)
    return WeightBlocks(_packed(numbers, kind.bits), scales, stored)


def _symmetric(x: Array, bits: int) -> tuple[Array, Array]:
    """The number that is furthest from zero is the lowest integer: that side has one more."""
    middle = 1 << bits - 1
    furthest = np.take_along_axis(x, np.abs(x).argmax(axis=2)[..., None], 2)[..., 0]
    return _usable(furthest / np.float32(-middle)), np.full(furthest.shape, middle, np.float32)


def _asymmetric(x: Array, high: int) -> tuple[Array, Array]:
    low, top = np.minimum(x.min(axis=2), 0), np.maximum(x.max(axis=2), 0)
    scales = _usable((top - low) / np.float32(high))
    return scales, np.clip(np.rint(-low / scales), 0, high)


def _usable(scales: Array) -> Array:
    """WeightBlocks of zeros have a scale, too."""
    out: Array = np.where(np.abs(scales) > np.finfo(np.float32).tiny, scales, 1)
    return out.astype(np.float32)


def _packed(numbers: Array, bits: int) -> Array:
    """Numbers of 8 bits, or two of 4 bits in a byte."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    out: Array = numbers[..., ::2] | numbers[..., 1::2] << 4
    return out


def with_few_bits(
    path: str, kind: FewBits, exclude: Sequence[str] = ()
) -> tuple[onnx.ModelProto, int, int]:
    """The model, how many products have constant weights, and how many of these became so.

    Raises ModelImportError; ConfigError where there is none, and for a pattern that none fits.
    """
    model = onnx_model.load(path)
    stored = Initializers(model.graph)
    found = [n for n in model.graph.node if _is_product(n, stored)]
    for pattern in exclude:
        if not any(fnmatchcase(n.name, pattern) for n in found):
            do = f"Give names of products: {', '.join(n.name for n in found[:5])}"
            raise ConfigError(f"no layer fits --exclude {pattern!r}", do=do)
    chosen = [n for n in found if not any(fnmatchcase(n.name, p) for p in exclude)]
    if not chosen:
        why = "it has no MatMul with constant float32 weights, or all are excluded"
        raise ConfigError("there is nothing to quantise", who=path, why=why)
    made: dict[str, list[str]] = {}
    for node in chosen:
        _replace(node, stored, kind, made)
    if all(o.domain != DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    onnx_model.drop_unread(model.graph)
    return model, len(found), len(chosen)


def _is_product(node: onnx.NodeProto, stored: Initializers) -> bool:
    if node.op_type != "MatMul" or node.domain not in ("", "ai.onnx"):
        return False
    weights = node.input[1]
    if weights not in stored or len(shape := stored.shape(weights)) != 2 or 0 in shape:
        return False
    return stored.is_float(weights)


def _replace(
    node: onnx.NodeProto, stored: Initializers, kind: FewBits, made: dict[str, list[str]]
) -> None:
    name = node.input[1]
    k, n = stored.shape(name)
    if name not in made:
        blocks = in_blocks(stored.array(name), kind)
        made[name] = [
            stored.add(blocks.packed, f"{name}/bits"),
            stored.add(blocks.scales.reshape(-1), f"{name}/scales"),
        ]
        if blocks.zeros is not None:
            made[name].append(stored.add(blocks.zeros.reshape(-1), f"{name}/zero_points"))
    node.op_type, node.domain = "MatMulNBits", DOMAIN
    node.input[1:] = made[name]
    attributes = {"K": k, "N": n, "bits": kind.bits, "block_size": kind.block}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
