"""What a Resize node does to images; and, where only running tells the sizes, places and roundings
as formulas of C and CUDA, in float64, or in float32 where ``is_single`` says so.

They say what ``COORDINATES`` and ``ROUNDINGS`` of the layer say of sizes that are known.
"""

from __future__ import annotations

import re

from tactix.contracts.graph import Node

_PLACES = {
    "half_pixel": "({i} + 0.5) / {scale} - 0.5",
    "half_pixel_symmetric": "{size} / 2.0 * (1.0 - {out} / ({scale} * {size}))"
    " + ({i} + 0.5) / {scale} - 0.5",
    "pytorch_half_pixel": "({out} > 1.0 ? ({i} + 0.5) / {scale} - 0.5 : 0.0)",
    "align_corners": "({out} > 1.0 ? {i} * ({size} - 1.0) / ({out} - 1.0) : 0.0)",
    "asymmetric": "{i} / {scale}",
    "tf_half_pixel_for_nn": "({i} + 0.5) / {scale}",
}
"""Where element ``i`` of the output lies between those of the input."""

_CROPPED = (
    "({out} > 1.0 ? {start} * ({size} - 1.0) + {i} * ({end} - {start}) * ({size} - 1.0)"
    " / ({out} - 1.0) : 0.5 * ({start} + {end}) * ({size} - 1.0))"
)
"""The same for ``tf_crop_and_resize``."""

ROUNDED = {
    "round_prefer_floor": "ceil({x} - 0.500001)",
    "round_prefer_ceil": "floor({x} + 0.500001)",
    "floor": "floor({x})",
    "ceil": "ceil({x})",
    "simple": "({scale} < 1.0 ? ceil({x}) : floor({x}))",
}
"""The nearest element."""

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Elements that a result is made of, along one axis, without antialias."""


def place(node: Node, i: str, size: str, out: str, scale: str, start: str, end: str) -> str:
    """Where result ``i`` of a Resize node lies between elements, as a formula of numbers of any
    type.
    """
    mode = node.attrs.coordinate_transformation_mode
    form = _CROPPED if mode == "tf_crop_and_resize" else _PLACES[mode]
    kind = "double"
    if node.attrs.is_single:
        kind, form = "float", re.sub(r"\d+\.\d+", r"\g<0>f", form)
    numbers = {"i": i, "size": size, "out": out, "scale": scale, "start": start, "end": end}
    return form.format(**{name: f"({kind}){text}" for name, text in numbers.items()})


def moves_pixels_alone(node: Node) -> bool:
    """Whether a Resize node keeps batch and channels, and makes every pixel of others: then whole
    pixels may be stored, or mixed, before or after.
    """
    attrs, shape = node.attrs, node.given[0].spec.shape
    kept = shape[:2] == tuple(attrs.sizes[:2]) and all(s == 1 for s in attrs.scales[:2])
    # what lies outside the region is filled with a number of its own
    filled = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    return len(shape) > 2 and kept and not filled
