"""Squeeze and excitation in CUDA: a cluster of blocks takes the means of an image's channels and
both products of them, where three kernels would each be over before their launches have paid.

A block has a slice of the channels and of the results. Hidden sums are the only thing that needs
all channels: blocks leave theirs in shared memory and add up those of all. Without clusters one
block has all channels. Knob: ``blocks`` of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, dmax, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC
from tactix.contracts.artifact import KernelArtifact, Launch, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.text import block
from tactix_codegen.cuda import results, scalar, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_codegen.cuda.text import struct
from tactix_cuda.tactics.hopper.flow import FEATURE
from tactix_cuda.tactics.rows import FLOATS
from tactix_cuda.tactics.tile import START
from tactix_ops.layers.squeeze import ACTIVATIONS

THREADS = 512
"""Of a block, a vector of channels of a pixel each; chosen by hand."""
BLOCKS = (8, 4)
"""Of a cluster: eight are the most that every device has (CUDA C++ Programming Guide, "Thread Block
Clusters").
"""
READ = 60e9
"""Bytes a second that estimates let one block read; no measurement of it is recorded."""
MEETING = 1e-6
"""Seconds from the last pixel to the first result, and between blocks; likewise."""
BYTES = 16
"""Bytes that one access moves."""
MOST_SHARED = 48 << 10
"""Shared memory that every device gives a block without being asked."""
ABOUT = {
    "THREADS": "of a block",
    "WIDTH": "channels of an access",
    "SLICE": "channels of a block",
    "OUT_SLICE": "results of a block",
    "LINE": "numbers of a slice",
    "HIDDEN": "numbers between both products",
    "HIDDEN_PITCH": "the same in fours",
}


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [SqueezeTactic()]


@dataclass(frozen=True)
class SqueezeWork:
    """Channels, hidden numbers and results of images; given inputs by what they are, -1 if absent.
    ``epi`` has operand strides along (image, result).
    """

    node: Node
    x: int
    first: int
    first_bias: int
    second: int
    second_bias: int
    channels: int
    hidden: int
    out: int
    images: Dim
    pixels: Dim
    dtype: DType
    epi: Epilogue

    @property
    def width(self) -> int:
        """Channels of an access."""
        return BYTES // self.dtype.itemsize

    def sliced(self, count: int, blocks: int) -> int:
        """Of so many channels those of a block: runs of eight, as results are stored."""
        return -(-count // (blocks * WIDTH)) * WIDTH

    def pitch(self) -> int:
        """Hidden numbers in fours."""
        return -(-self.hidden // 4) * 4

    def shared_bytes(self, blocks: int) -> int:
        """Of a block, as ``tx_squeezed`` has it."""
        line = max(self.sliced(c, blocks) for c in (self.channels, self.out))
        return 4 * (THREADS * self.width + line + 2 * self.pitch())

    def fits(self, blocks: int) -> bool:
        """Whether a block's threads and memory hold its slices."""
        line = max(self.sliced(c, blocks) for c in (self.channels, self.out))
        return line // self.width <= THREADS and self.shared_bytes(blocks) <= MOST_SHARED


class SqueezeTactic(Tactic[SqueezeWork]):
    """f32, f16 and bf16 in nhwc, channels in whole accesses of 16 bytes."""

    key = "tactix.cuda_squeeze@1"
    implements = ("tactix.SqueezeExcitation@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> SqueezeWork | Reject:
        epi, anchor = epilogue(node, vector=False), node.anchor
        if isinstance(epi, Reject):
            return epi
        assert anchor is not None
        places = (*anchor.inputs, -1, -1)[:5]
        x, first, second = (node.given[places[i]] for i in (0, 1, 3))
        if x.spec.dtype not in FLOATS or first.const is None or second.const is None:
            return Reject("this kernel takes f32, f16 and bf16 and constant weights")
        lead = [replace(o, strides=o.strides[:2]) for o in epi.operands.values()]
        work = SqueezeWork(
            node=node,
            x=places[0],
            first=places[1],
            first_bias=places[2],
            second=places[3],
            second_bias=places[4],
            channels=first.array.shape[1],
            hidden=first.array.shape[0],
            out=second.array.shape[0],
            images=x.spec.shape[0],
            pixels=prod(x.spec.shape[2:]),
            dtype=x.spec.dtype,
            epi=replace(epi, operands=dict(zip(epi.operands, lead, strict=True))),
        )
        if work.channels % work.width or work.out % work.width or not work.hidden:
            return Reject("channels fill no accesses of 16 bytes")
        if not any(work.fits(b) for b in _blocks(device)):
            return Reject("a block has no room for its channels")
        reason = results.why_not(epi) or _unknown(work)
        return Reject(reason) if reason else work

    def variants(self, work: SqueezeWork, device: DeviceProperties) -> Sequence[Variant]:
        inputs = tuple(NHWC if i == work.x else LINEAR for i in range(len(work.node.given)))
        outputs = (LINEAR,) * len(work.node.outputs)
        return [Variant.of(inputs, outputs, blocks=b) for b in _blocks(device) if work.fits(b)]

    def cost(self, work: SqueezeWork, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(work.images * work.pixels) <= set(ctx.opt):
            return None
        blocks, size = variant.number("blocks"), work.dtype.itemsize
        images, pixels = (evaluate(d, dict(ctx.opt)) for d in (work.images, work.pixels))
        own = (pixels + work.hidden) * work.channels + work.hidden * work.out
        waves = -(-images * blocks // max(1, ctx.device.cores))
        return START + MEETING + waves * own * size / blocks / READ

    def compile(self, work: SqueezeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        blocks = variant.number("blocks")
        e = KernelEntry(work.node, THREADS)
        kernel = _struct(work, blocks) + e.kernel(*_body(work, e, blocks))
        grid, cluster = (dmax(work.images, 1) * blocks,), (blocks,) if blocks > 1 else ()
        launch = Launch(e.arguments(), grid, (THREADS,), cluster, work.shared_bytes(blocks))
        more = ("ptx.cuh", *(("hopper.cuh",) if cluster else ()), "squeeze.cuh")
        return artifact([kernel], [launch], [e], ctx, more=more)


def _blocks(device: DeviceProperties) -> tuple[int, ...]:
    """Of a cluster, those that the device may have."""
    return (*BLOCKS, 1) if device.has(FEATURE) else (1,)


def _unknown(work: SqueezeWork) -> str:
    """Why the activation cannot be written; empty if it can."""
    return scalar.why_not([_activation(work)], [DType.FP32])


def _activation(work: SqueezeWork) -> Any:
    anchor = work.node.anchor
    assert anchor is not None
    act = ACTIVATIONS[anchor.attrs.activation]
    return act.scalar(act.Attrs(), 1)


def _struct(work: SqueezeWork, blocks: int) -> str:
    slices = [work.sliced(c, blocks) for c in (work.channels, work.out)]
    values = {
        "THREADS": THREADS,
        "WIDTH": work.width,
        "SLICE": slices[0],
        "OUT_SLICE": slices[1],
        "LINE": max(slices),
        "HIDDEN": work.hidden,
        "HIDDEN_PITCH": work.pitch(),
    }
    return struct("squeeze", values, ABOUT)


def _packed(work: SqueezeWork, index: int, blocks: int, turned: bool) -> Packed:
    """Weights as (slices, hidden numbers, channels of a slice), zero past the last; ``turned``:
    they are (results, hidden numbers) as they come.
    """
    count = work.out if turned else work.channels
    own = work.sliced(count, blocks)
    flat = (count, work.hidden) if turned else (work.hidden, count)
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", flat),
        *((("transpose", (1, 0)),) if turned else ()),
        ("pad", ((0, 0), (0, own * blocks - count))),
        ("reshape", (work.hidden, blocks, own)),
        ("transpose", (1, 0, 2)),
    )
    return Packed(index, steps)


def _body(work: SqueezeWork, e: KernelEntry, blocks: int) -> list[str]:
    kind, t = text.number_type(work.dtype), work.dtype.value
    first = e.constant("first", _packed(work, work.first, blocks, False), work.dtype)
    second = e.constant("second", _packed(work, work.second, blocks, True), work.dtype)
    pixels, images = e.dim(work.pixels), e.dim(work.images)
    place = f"{e.input(work.x)} + (row * {pixels} + p) * {work.channels} + at"
    load = [
        "const int at = rank * S::SLICE + c;",
        f"if (at < {work.channels}) tx_load_{t}<S::WIDTH>(v, {place});",
        "else",
        "for (int k = 0; k < S::WIDTH; k++) v[k] = 0;",
    ]
    rows = RowResults(e, work.node, work.epi, (work.images,), work.out)
    call = "tx_squeeze<S>(m, pixels, load, from_first, from_second, meet, all, act);"
    return [
        "typedef TX_NAME(squeeze) S;",
        "TX_SHARED(memory);",
        "tx_squeezed<S>& m = *(tx_squeezed<S>*)memory;",
        f"const int rank = {'(int)tx_rank()' if blocks > 1 else '0'};",
        f"const int64_t row = blockIdx.x / {blocks}, pixels = {pixels};",
        f"if (row >= {images}) return;",
        block(f"const auto load = [&]({kind}* v, int64_t p, int c)", *load) + ";",
        *_weights(first, "first", "S::SLICE", kind, t),
        *_weights(second, "second", "S::OUT_SLICE", kind, t),
        *_meeting(blocks),
        _act(work, e),
        call,
        *_results(work, e, rows),
        *(["// nobody leaves while others read", "tx_cluster_sync();"] if blocks > 1 else []),
    ]


def _weights(pointer: str, name: str, own: str, kind: str, t: str) -> list[str]:
    """Declare the loader of a slice's weights."""
    load = f"tx_load_{t}<S::WIDTH>(w, of_{name} + i);"
    return [
        f"const auto of_{name} = {pointer} + rank * (int64_t)(S::HIDDEN * {own});",
        block(f"const auto from_{name} = [&]({kind}* w, int i)", load) + ";",
    ]


def _meeting(blocks: int) -> list[str]:
    """Declare how blocks wait for each other, and read four hidden sums of all."""
    if blocks == 1:
        own = "for (int k = 0; k < 4; k++) sum[k] = m.sums[r + k];"
        return [
            block("const auto meet = [&]", "__syncthreads();") + ";",
            block("const auto all = [&](float (&sum)[4], int r)", "#pragma unroll", own) + ";",
        ]
    far = [
        "float far[4];",
        "tx_read_far4(far, tx_shared((char*)(m.sums + r)), b);",
        "#pragma unroll",
        "for (int k = 0; k < 4; k++) sum[k] = b == 0 ? far[k] : sum[k] + far[k];",
    ]
    return [
        block("const auto meet = [&]", "tx_cluster_sync();") + ";",
        block(
            "const auto all = [&](float (&sum)[4], int r)",
            "#pragma unroll",
            block(f"for (int b = 0; b < {blocks}; b++)", *far),
        )
        + ";",
    ]


def _act(work: SqueezeWork, e: KernelEntry) -> str:
    """Declare what follows hidden sum ``r``; past the last one it is 0."""
    bias = _bias(work, e, work.first_bias, "r")
    code = scalar.emit([_activation(work)], {0: "x"}, [DType.FP32], "t")
    return (
        block(
            "const auto act = [&](float sum, int r)",
            "if (r >= S::HIDDEN) return 0.0f;",
            f"const float x = sum{bias};",
            *code.statements,
            f"return (float)({code.results[0]});",
        )
        + ";"
    )


def _bias(work: SqueezeWork, e: KernelEntry, index: int, place: str) -> str:
    """The text of a term, if there is one."""
    return "" if index < 0 else f" + {text.element(work.dtype, f'{e.input(index)}[{place}]')}"


def _results(work: SqueezeWork, e: KernelEntry, rows: RowResults) -> list[str]:
    """Store the slice's results, eight a thread."""
    bias = _bias(work, e, work.second_bias, "col + k")
    known = f"col + k < {work.out} ? m.line[c + k]{bias} : 0.0f"
    each = [
        "const int col = rank * S::OUT_SLICE + c;",
        f"float v[{WIDTH}];",
        "#pragma unroll",
        f"for (int k = 0; k < {WIDTH}; k++) v[k] = {known};",
        rows.store(),
    ]
    return [
        block(
            f"for (int c = threadIdx.x * {WIDTH}; c < S::OUT_SLICE; c += S::THREADS * {WIDTH})",
            *each,
        )
    ]
