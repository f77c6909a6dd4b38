"""What circular padding means, and the ONNX operators that mean it."""

from typing import Any

import numpy as np

from tactix_sdk import TensorSpec, errors, layer, onnx_converter

Array = np.ndarray[Any, Any]


def padded(x: TensorSpec, *, pads: tuple[int, ...]) -> TensorSpec:
    """The output's dtype and shape. Raises ShapeError."""
    if len(pads) != 2 * x.rank or min(pads, default=0) < 0 or any(n == 0 for n in x.shape):
        raise errors.ShapeError(
            f"pads {pads} do not suit {x}",
            do="Give all begins, then all ends, of 0 and more; no axis may be empty",
        )
    return TensorSpec(
        x.dtype, tuple(b + n + e for b, n, e in zip(pads, x.shape, pads[x.rank :], strict=False))
    )


@layer(
    "acme_circular.CircularPad@1", onnx="acme::CircularPad", infer=padded,
    examples=[({"pads": (0, 1, 2, 3)}, "f32 3 5"), ({"pads": (0, 0, 1, 0, 0, 0, 2, 9)}, "f32 2 3 4 5")],
)  # fmt: skip
def circular_pad(x: Array, *, pads: tuple[int, ...] = ()) -> Array:
    """Each axis goes on at its other end. ``pads``: elements before each axis, then those after
    each, as in Pad.
    """
    before, after = pads[: x.ndim], pads[x.ndim :]
    for axis, n in enumerate(x.shape):
        x = np.take(x, np.arange(-before[axis], n + after[axis]) % n, axis)
    return x


@onnx_converter("ai.onnx::CircPadPlugin")
def circ_pad_plugin(ctx: Any, node: Any) -> Any:
    """The operator of TensorRT's sample plugin: ``pads`` are pairs of before and after, the last
    axis first.
    """
    pads = ctx.attr("pads")
    left = (0,) * (ctx.spec().rank - len(pads) // 2)
    return ctx.layer(circular_pad, [ctx.tensor()], pads=(*left, *pads[-2::-2], *left, *pads[::-2]))
