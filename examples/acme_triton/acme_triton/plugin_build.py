"""The pack's tactic: MatMul by a constant matrix, with bias, residual, and relu or the exact GELU behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acme_triton import offline
from tactix.words.dims import ceildiv, evaluate, prod, symbols
from tactix_sdk import (
    Binary,
    CompileContext,
    DeviceProperties,
    Dim,
    DType,
    KernelArtifact,
    Launch,
    Node,
    Reject,
    Tactic,
    Variant,
    hookimpl,
)
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out

TYPES = {DType.FP16: "fp16", DType.BF16: "bf16"}
TILES = (
    (128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 128, 4, 3), (32, 64, 128, 4, 4),
    (16, 64, 128, 4, 4),
)  # fmt: skip
"""Rows, columns, depth, warps, stages."""
FLOPS, START = 4e14, 3e-6


@dataclass(frozen=True)
class Product:
    """``y = act(a b + bias + rest)``: given inputs by index (-1: absent), sizes, what to do last."""

    a: int
    b: int
    bias: int
    rest: int
    m: Dim
    n: int
    k: int
    act: str


class TritonMatMul(Tactic):
    """float16 and bfloat16, summed in float32, of any sizes; for sm_80 and newer. Needs Triton to build, not to run."""

    key = "acme_triton.matmul@1"
    implements = ("tactix.MatMul@1",)
    device = "cuda"
    source = "triton"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        if why := offline.why_missing():
            return Reject(why)
        if not device.has(feature(device)):
            return Reject(f"Triton's code for {device.name} needs {feature(device)}")
        room = device.facts["shared_per_block"]
        fit = [t for t in TILES if t[4] * (t[0] + t[1]) * t[2] * 2 <= room]
        return [Variant.of(rows=r, columns=c, depth=d, warps=w, stages=s) for r, c, d, w, s in fit]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        p = product(node)
        assert isinstance(p, Product)
        if not symbols(p.m) <= set(ctx.opt):
            return None
        rows, columns = variant.knob("rows"), variant.knob("columns")
        tiles = -(-evaluate(p.m, ctx.opt) // rows) * -(-p.n // columns)
        waves = -(-tiles // ctx.device.cores)
        return START + waves * ctx.device.cores * 2 * rows * columns * p.k / FLOPS

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        """Raises CompilerError."""
        p, knob = product(node), variant.knob
        assert isinstance(p, Product)
        constants = {
            "N": p.n, "K": p.k, "BM": knob("rows"), "BN": knob("columns"), "BK": knob("depth"), "GROUP": 8,
            "BIAS": p.bias >= 0, "REST": p.rest >= 0, "ACT": p.act,
        }  # fmt: skip
        dtype = TYPES[node.given[p.a].spec.dtype]
        capability = ctx.device.facts["capability"]
        kernel = offline.compiled(dtype, tuple(constants.items()), knob("warps"), knob("stages"), capability)
        inputs = [tensor_in(i) if i >= 0 else scalar(0) for i in (p.a, p.b, p.bias, p.rest)]
        scratch = (scalar(0), scalar(0))  # Triton's own last two parameters: global and profile scratch, not used
        grid = ceildiv(p.m, knob("rows")) * -(-p.n // knob("columns"))
        launch = Launch(
            (*inputs, tensor_out(), scalar(p.m), *scratch), (grid,), (kernel.threads,), shared_bytes=kernel.shared
        )
        return KernelArtifact(
            launcher="tactix.cuda.cubin@1",
            launches=(launch,),
            code=Binary(kernel.cubin, kernel.name),
            requires=(feature(ctx.device),),
        )


def feature(device: DeviceProperties) -> str:
    """What a device must have to load the code: Triton compiles for 9.0 and newer with what only that one has."""
    capability = device.facts["capability"]
    return f"cubin_{capability}{'a' if capability >= 90 else ''}"


def product(node: Node) -> Product | Reject:
    """The node as a product of this pack, or why it is none."""
    body, anchor = node.body, node.anchor
    if anchor is None or body.anchor != 0:
        return Reject("something comes before the product")
    a, b = (node.given[i].spec for i in anchor.inputs)
    if a.dtype not in TYPES or any(v.spec.dtype is not a.dtype for v in (*node.given, *node.outputs)):
        return Reject("all of float16, or all of bfloat16")
    if b.const is None or b.rank != 2 or a.rank < 2 or 0 in (*a.shape, *b.shape):
        return Reject("a given matrix times a constant one")
    k, n = (int(d) for d in b.const.shape)
    plain = Product(*anchor.inputs, -1, -1, prod(a.shape[:-1]), n, k, "")
    return _behind(node, plain)


def _behind(node: Node, p: Product) -> Product | Reject:
    """What follows, layer by layer."""
    body, bias, rest, act = node.body, -1, -1, ""
    if len(body.results) != 1:
        return Reject("several results")
    for place, layer in enumerate(body.nodes[1:], 1):
        last = body.first_id(place - 1)
        others = [i for i in layer.inputs if i != last]
        name = layer.layer.key
        if last not in layer.inputs or act:
            return Reject("what follows is not a chain that ends with an activation")
        if name == "tactix.Add@1" and len(others) == 1 and others[0] < body.arity:
            spec = node.given[others[0]].spec
            if spec.shape == node.outputs[0].spec.shape and rest < 0:
                rest = others[0]
            elif spec.shape == (p.n,) and bias < 0:
                bias = others[0]
            else:
                return Reject("it adds more than a row and a tensor of the result's shape")
        elif name == "tactix.Relu@1" or (name == "tactix.Gelu@1" and layer.attrs.approximate == "none"):
            act = layer.layer.name.lower()
        else:
            return Reject(f"{name} behind the product")
    return Product(p.a, p.b, bias, rest, p.m, p.n, p.k, act)


@hookimpl
def tactix_tactics() -> list[Tactic]:
    return [TritonMatMul()]
