"""LSTM, GRU and RNN in CUDA: one product of all steps with the input weights, then the steps one
after the other.

``slices`` blocks share the hidden units of some rows of the batch in one direction; they exchange
states through memory and wait for each other after each step. A block takes its number when it
starts, so that those of a group come one after the other and are on the device together (it must
hold ``slices`` blocks at a time). Knob: ``slices``.

Memory order: before its block counts itself as arrived a thread fences (``__threadfence``), and
after it has seen all arrivals it does so again; states of others are read by volatile loads,
relaxed ones of the system's scope (``tx_meet``, ``tx_take_states``; CUDA C++ Programming Guide,
"Memory Fence Functions", whose example counts blocks so; PTX ISA, ``ld.volatile``). Since blocks
wait for each other, the steps say ``cooperative``: no two such kernels run at a time, or each might
have blocks that keep those of the other from starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, ceildiv, evaluate, symbols
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.scalar import element
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.rnn_steps import Steps
from tactix_cuda.tactics.rows import FLOATS
from tactix_ops.layers.rnn import Recurrent

PROJECT_THREADS, STEP_THREADS = 256, 256
"""Of blocks of the two launches; ``tx_project``'s tiles are written for 256, as 16 x 16."""
MOST_HIDDEN = 4096
"""Units: a block keeps the states of its rows in shared memory, 64 KiB for this many."""
_ROWS = 4
"""Rows of the batch that a group of blocks takes at most: a weight is read once for all of them."""
RESIDENT = 4
"""Blocks that a multiprocessor holds in the estimate."""
PRODUCTS = 64
"""Products that a block makes in a cycle in the estimate, whose weights come from the cache. No
measurement of it is recorded.
"""
LEAST_UNITS = 4
"""Units that a slice has at least: with fewer a step is all waiting."""


@dataclass(frozen=True)
class CudaRecurrence:
    """Sizes of a recurrent node; ``at``: given inputs x, w, r, bias, lengths, states (two),
    peepholes; -1 if absent.
    """

    node: Node
    layer: Recurrent
    at: tuple[int, ...]
    steps: Dim
    batch: Dim
    inputs: int
    hidden: int

    @property
    def attrs(self) -> Any:
        """Of the layer."""
        return self.node.attrs

    @property
    def directions(self) -> int:
        return int(self.attrs.directions)

    @property
    def wide(self) -> int:
        """Sums of one step of one sample in one direction."""
        return self.layer.gates * self.hidden

    @property
    def rows(self) -> int:
        return min(_ROWS, self.batch) if isinstance(self.batch, int) and self.batch else _ROWS

    @property
    def gate_bytes(self) -> Dim:
        return self.directions * self.steps * self.batch * self.wide * 4

    @property
    def state_bytes(self) -> Dim:
        return self.directions * self.batch * self.hidden * 4


def recurrence(node: Node) -> CudaRecurrence | Reject:
    """What the node computes, or why this kernel cannot take it."""
    layer = node.layer
    if node.is_fused or not isinstance(layer, Recurrent):
        return Reject("an epilogue is not fused by this tactic")
    at = (*node.body.nodes[0].inputs, *(-1,) * 8)[:8]
    specs: list[TensorSpec | None] = [node.given[i].spec if i >= 0 else None for i in at]
    x, w, r = specs[:3]
    assert x is not None
    assert w is not None
    assert r is not None
    if any(s is not None and s.dtype not in FLOATS for i, s in enumerate(specs) if i != 4):
        return Reject("this kernel takes f32, f16 and bf16")
    depth, hidden = w.shape[2], r.shape[2]
    if not isinstance(depth, int) or not isinstance(hidden, int) or not 0 < hidden <= MOST_HIDDEN:
        return Reject(
            f"the sizes of the weights must be known, the hidden size up to {MOST_HIDDEN}"
        )
    steps, batch = x.shape[:2] if node.attrs.layout == 0 else x.shape[1::-1]
    found = CudaRecurrence(node, layer, at, steps, batch, depth, hidden)
    try:
        Steps(found, KernelEntry(node, STEP_THREADS), 1).functions()
    except InvalidArgument as e:
        return Reject(e.what)
    return found


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaRecurrentTactic()]


class CudaRecurrentTactic(Tactic[CudaRecurrence]):
    """All options of ONNX; weights may be given or constant."""

    key = "tactix.cuda_rnn@1"
    implements = ("tactix.LSTM@1", "tactix.GRU@1", "tactix.RNN@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaRecurrence | Reject:
        return recurrence(node)

    def variants(self, r: CudaRecurrence, device: DeviceProperties) -> Sequence[Variant]:
        # chosen by hand; all blocks of a group must be on the device at a time, since they wait for
        # each other
        kept = [
            s
            for s in (16, 8, 32, 1)
            if s == 1 or (s <= device.cores and s * LEAST_UNITS <= r.hidden)
        ]
        return [Variant.of(slices=s) for s in kept]

    def cost(self, r: CudaRecurrence, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(r.steps * r.batch) <= set(ctx.opt):
            return None
        steps, batch = (evaluate(d, ctx.opt) for d in (r.steps, r.batch))
        slices = variant.number("slices")
        groups = r.directions * -(-batch // r.rows) * slices
        waves = -(-groups // (RESIDENT * max(1, ctx.device.cores)))
        work = r.wide / slices * r.hidden * (1 + r.rows) / PRODUCTS
        # two launches; a step waits for its states, and where slices meet for the last of them, too
        return (
            tile.START * 2
            + waves * steps * (work + (1 if slices == 1 else 2) * tile.LATENCY) / tile.CLOCK
        )

    def compile(self, r: CudaRecurrence, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        first = KernelEntry(r.node, PROJECT_THREADS)
        second = KernelEntry(r.node, STEP_THREADS, "steps")
        project = _project(r, first)
        steps = Steps(r, second, variant.number("slices"))
        body = steps.body()
        tiles = ceildiv(r.steps * r.batch, 64) * ceildiv(r.directions * r.wide, 64)
        launches = [first.launch(tiles), second.launch(steps.blocks, steps.shared)]
        texts = [first.kernel(*project), steps.functions() + second.kernel(*body)]
        more = ("ptx.cuh", "rnn.cuh")
        made = artifact(texts, launches, [first, second], ctx, more=more, workspace=steps.workspace)
        return replace(made, params={"cooperative": True}) if steps.slices > 1 else made


def _project(r: CudaRecurrence, e: KernelEntry) -> list[str]:
    """Input products with their bias, as (step, sample, direction, gate, unit); clears what the
    steps count with.
    """
    x, w = (e.input(i) for i in r.at[:2])
    steps, batch = e.dim(r.steps), e.dim(r.batch)
    dtypes = [e.node.given[i].spec.dtype for i in r.at[:2]]
    row = f"row % {batch} * {steps} + row / {batch}" if r.attrs.layout else "row"
    bias = "0.0f"
    if r.at[3] >= 0:
        place = f"{e.input(r.at[3])}[c / {r.wide} * {2 * r.wide} + c % {r.wide}]"
        bias = element(e.node.given[r.at[3]].spec.dtype, place)
    counters = e.workspace(r.gate_bytes + 5 * r.state_bytes, "uint32_t")
    count = e.dim(1 + r.directions * ceildiv(r.batch, r.rows))
    own, step = "blockIdx.x * 256 + threadIdx.x", "(int64_t)gridDim.x * 256"
    clear = f"for (int64_t i = {own}; i < {count}; i += {step})"
    return [
        f"{clear} {counters}[i] = 0;",
        f"tx_project({e.workspace(0)}, {steps} * {batch}, {r.directions * r.wide}, {r.inputs},",
        f"    [&](int64_t row) {{ return (int64_t)({row}) * {r.inputs}; }},",
        f"    [&](int64_t i) {{ return {element(dtypes[0], f'{x}[i]')}; }},",
        f"    [&](int64_t i) {{ return {element(dtypes[1], f'{w}[i]')}; }},",
        f"    [&](int64_t c) {{ return {bias}; }});",
    ]
