"""Kernels for the CPU and for NVIDIA GPUs. Both find an element's source alike, axis by axis."""

from tactix_sdk import Dim, Kernel, Operation, c_tactic, ceildiv, cuda_tactic, mod, prod

LAYER = "acme_circular.CircularPad@1"


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


@c_tactic("acme_circular.cpu@1", LAYER, by_signature=True)
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


@cuda_tactic("acme_circular.cuda@1", LAYER, by_signature=True)
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
