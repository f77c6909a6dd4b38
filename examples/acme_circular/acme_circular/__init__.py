"""The acme-circular pack: circular padding for tactix, with kernels for the CPU and NVIDIA GPUs."""

from typing import Any

from tactix_sdk import Dim, Kernel, Operation, Pack, TensorSpec, ceildiv, errors, mod, prod

pack = Pack("acme_circular")


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


@pack.layer(
    onnx="acme::CircularPad", infer=padded, takes_epilogue=True,
    examples=[({"pads": (0, 1, 2, 3)}, "f32 3 5"), ({"pads": (0, 0, 1, 0, 0, 0, 2, 9)}, "f32 2 3 4 5")],
)  # fmt: skip
def circular_pad(x: Any, *, pads: tuple[int, ...] = ()) -> Any:
    """Each axis goes on at its other end. ``pads``: elements before each axis, then those after
    each, as in Pad.
    """
    import numpy as np

    before, after = pads[: x.ndim], pads[x.ndim :]
    for axis, n in enumerate(x.shape):
        x = np.take(x, np.arange(-before[axis], n + after[axis]) % n, axis)
    return x


@pack.onnx_converter("ai.onnx::CircPadPlugin")
def circ_pad_plugin(ctx: Any, node: Any) -> Any:
    """The operator of TensorRT's sample plugin: ``pads`` are pairs of before and after, the last
    axis first.
    """
    pads = ctx.attr("pads")
    left = (0,) * (ctx.spec().rank - len(pads) // 2)
    return ctx.layer(circular_pad, [ctx.tensor()], pads=(*left, *pads[-2::-2], *left, *pads[::-2]))


def source(op: Operation) -> tuple[str, dict[str, Dim]]:
    """Statements that make of ``i``, an element of the result, ``at``, one of the input; and the
    sizes they name.
    """
    (x,), y, text, sizes = (
        op.inputs,
        op.output,
        "int64_t rest = i, at = 0;\n",
        {"total": op.output.numel},
    )
    for axis in reversed(range(x.rank)):
        n, out = x.shape[axis], y.shape[axis]
        shift = mod(-op.attrs.pads[axis], n)
        sizes |= {
            f"n{axis}": n,
            f"out{axis}": out,
            f"shift{axis}": shift,
            f"step{axis}": prod(x.shape[axis + 1 :]),
        }
        text += (
            f"at += (rest % out{axis} + shift{axis}) % n{axis} * step{axis}; rest /= out{axis};\n"
        )
    return text, sizes


@circular_pad.kernel("c", by_signature=True)
def on_cpu(op: Operation) -> Kernel:
    """Elements are shared between the threads, 64 at a time."""
    text, sizes = source(op)
    body = f"""
    int64_t begin, end;
    tx_split(total, 64, tid, nt, &begin, &end);
    for (int64_t i = begin; i < end; i++) {{
        {text}
        TX_STORE(i, TX_IN0(at));
    }}
    """
    return Kernel(body, sizes=sizes)


@circular_pad.kernel("cuda", by_signature=True)
def on_cuda(op: Operation) -> Kernel:
    """A thread for each element."""
    text, sizes = source(op)
    body = f"""
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= total) return;
    {text}
    TX_STORE(i, TX_IN0(at));
    """
    return Kernel(body, sizes=sizes, grid=ceildiv(op.output.numel, 256), threads=256)
