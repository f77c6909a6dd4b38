"""What the accelerator takes: the restrictions of NVIDIA's DLA, in the small."""

from tactix_sdk import DType, Node

LAYERS = frozenset({
    "Convolution", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Concat", "Reshape", "Reformat",
    "Add", "Sub", "Mul", "Min", "Max", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "Cast",
})  # fmt: skip
DTYPES = frozenset({DType.FP16, DType.INT8})
WINDOW, STRIDE, BATCH = 32, 16, 4096
"""Largest kernel and stride along an axis, and batch."""
SUBGRAPHS = 16
"""Most pieces of a network: each is one loadable, with steps of the host between them."""


def seconds(nbytes: int) -> float:
    """How long a layer takes that reads and writes so many bytes: the data sheet has 20 us, and 10
    GB/s.
    """
    return 2e-5 + nbytes / 1e10


def why_not(node: Node) -> str:
    """Why the accelerator cannot run a node; empty if it can."""
    body = node.body
    specs = body.infer([v.spec for v in node.given])
    for index, n in enumerate(body.nodes):
        ids = [
            *(i for i in n.inputs if i >= 0),
            *range(body.first_id(index), body.first_id(index) + n.outputs),
        ]
        dtypes = (
            {specs[i].dtype for i in ids}
            - DTYPES
            - ({DType.FP32} if n.layer.name == "Cast" else set())
        )
        if n.layer.name not in LAYERS:
            return f"the DLA has no {n.layer.name}"
        if dtypes:
            return f"the DLA computes in float16 and int8, not in {min(d.value for d in dtypes)}"
        if any(not isinstance(d, int) for i in ids for d in specs[i].shape):
            return "the DLA takes fixed shapes: give the dimensions of the inputs"
        if any(0 in specs[i].shape or specs[i].shape[:1] > (BATCH,) for i in ids):
            return f"the DLA takes batches of up to {BATCH}, and nothing empty"
        if why := _window(
            n.attrs, specs[ids[1]].shape[2:] if n.layer.name == "Convolution" else ()
        ):
            return why
    return ""


def _window(attrs: object, kernel: tuple[int, ...]) -> str:
    sides = getattr(attrs, "kernel_shape", kernel)
    if any(k > WINDOW for k in sides):
        return f"the DLA has windows of up to {WINDOW} by {WINDOW}, not of {' by '.join(map(str, sides))}"
    if any(s > STRIDE for s in getattr(attrs, "strides", ())):
        return f"the DLA has strides of up to {STRIDE}"
    return ""
