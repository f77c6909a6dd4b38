"""LSTM, GRU and RNN: one product of all steps with the input weights, then the steps one after the
other.

Weights are packed so that a panel holds all gates of one vector of hidden units; a tile then has
everything that the new state of these units needs. The first launch is shared by all threads. The
second is split by direction and by rows of the batch, since a step needs the whole state of the
step before: one direction of one sequence is one thread's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_cpu.tactics.estimates import CLOCK, START
from tactix_cpu.tactics.rnn.kernel import (
    GRUKernel,
    LSTMKernel,
    RecurrentKernel,
    RNNKernel,
    one_pass,
)
from tactix_ops.layers.rnn import GateFunction, Recurrent, activation_functions

DTYPES = (DType.FP32, DType.BF16)
MOST_ROWS, MOST_ROWS_NARROW = 12, 6
"""Rows of an LSTM's tile at most, with 32 and with 16 registers: two passes of two gates each, of
24 and 12 sums (``RecurrentKernel._products``). More rows read the state's weights less often. No
measurement of others is on record.
"""
STEP = 0.6
"""Cycles for a vector's FMA: half a cycle, as two start at a time, and what loads add."""
STATE_WEIGHTS = 32
"""Bytes of the state's weights that come from the second cache per cycle: every step reads all of
them, so that with few rows they are what a step takes.
"""
GATES = 20
"""Cycles of the sigmoids and tangents of four units, about 80 for a vector of 16. No measurement of
these three is on record; the taggers of docs/benchmarks.md reach 39 to 43 % of the roofline
(float32, 1 thread).
"""
KERNELS: dict[int, type[RecurrentKernel]] = {4: LSTMKernel, 3: GRUKernel, 1: RNNKernel}
"""By the number of gates."""


@dataclass(frozen=True)
class CpuRecurrence:
    """x: (steps, batch, inputs), directions and hidden units; -1 for an absent bias, lengths, state
    or peepholes.

    ``dtype``: of x, the weights and the results; ``states``: the code of the first states' dtype;
    ``functions``: what gates make of their sums, direction by direction; ``clip``: bounds the
    sums, 0 for none.
    """

    node: Node
    x: int
    w: int
    r: int
    bias: int
    lengths: int
    h: int
    c: int
    peepholes: int
    steps: Dim
    batch: Dim
    inputs: Dim
    hidden: int
    directions: int
    gates: int
    reverse: bool
    linear_before_reset: bool
    input_forget: bool
    dtype: DType
    states: str
    functions: tuple[GateFunction, ...]
    clip: float


def recurrence(node: Node) -> CpuRecurrence | Reject:
    """What an LSTM, GRU or RNN node computes, or why this kernel cannot take it."""
    a = node.attrs
    if node.is_fused:
        return Reject("an epilogue is not fused by this tactic")
    if a.layout:
        return Reject("this kernel takes steps before samples, as a rule makes them")
    ids = (*node.body.nodes[0].inputs, *(-1,) * 8)[:8]
    specs = [node.given[i].spec if i >= 0 else None for i in ids]
    if (why := _unfit(specs)) is not None:
        return why
    hidden = node.outputs[0].spec.shape[-1]
    if not isinstance(hidden, int):
        return Reject("how many hidden units there are is not known")
    x, w, _ = (s for s in specs[:3] if s is not None)
    layer = node.body.nodes[0].layer
    assert isinstance(layer, Recurrent)
    at_x, at_w, at_r, bias, lengths, h, c, peepholes = ids
    return CpuRecurrence(
        node,
        at_x,
        at_w,
        at_r,
        bias,
        lengths,
        h,
        c,
        peepholes,
        x.shape[0],
        x.shape[1],
        w.shape[2],
        hidden,
        a.directions,
        layer.gates,
        a.direction == "reverse",
        bool(getattr(a, "linear_before_reset", False)),
        bool(getattr(a, "input_forget", False)),
        x.dtype,
        min({s.dtype for s in specs[5:7] if s is not None}, default=DType.FP32, key=str).value,
        tuple(activation_functions(a, layer.functions)),
        a.clip,
    )


def _unfit(specs: Sequence[TensorSpec | None]) -> Reject | None:
    """Why tensors of these dtypes and shapes are not taken; ``specs``: the layer's inputs."""
    x, w, r = (s for s in specs[:3] if s is not None)
    lengths = specs[4]
    rest = {s.dtype for s in (specs[3], *specs[5:]) if s is not None}
    if (
        x.dtype not in DTYPES
        or any(s.dtype is not x.dtype for s in (w, r))
        or not rest <= {x.dtype, DType.FP32}
    ):
        return Reject(
            "this kernel takes float32 or bfloat16, beside which biases and states may be float32"
        )
    if lengths is not None and lengths.dtype is not DType.INT32:
        return Reject("this kernel takes lengths of int32")
    if len({s.dtype for s in specs[5:7] if s is not None}) > 1:
        return Reject("the first states have different dtypes")
    if x.dtype is not DType.FP32 and not isinstance(w.shape[2], int):
        return Reject("this kernel takes known sizes of inputs of 16 bits")
    if any(d == 0 for d in (*x.shape, *w.shape)):
        return Reject("a tensor is empty")
    return None


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuRecurrentTactic()]


class CpuRecurrentTactic(Tactic[CpuRecurrence]):
    """float32, or bfloat16 of known inputs; layout 0, known hidden units; all else that the layers
    have.
    """

    key = "tactix.c_rnn@1"
    implements = ("tactix.LSTM@1", "tactix.GRU@1", "tactix.RNN@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuRecurrence | Reject:
        return recurrence(node)

    def variants(self, r: CpuRecurrence, device: DeviceProperties) -> Sequence[Variant]:
        most = (
            one_pass(r.gates, device)
            if r.gates < 4
            else MOST_ROWS
            if c_tile.registers(device) == 32
            else MOST_ROWS_NARROW
        )
        return [
            Variant.of(
                rows=-(-r.batch // -(-r.batch // most)) if isinstance(r.batch, int) else most
            )
        ]

    def cost(self, r: CpuRecurrence, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(r.steps * r.batch * r.inputs) <= set(ctx.opt):
            return None
        steps, batch, inputs = (evaluate(d, ctx.opt) for d in (r.steps, r.batch, r.inputs))
        per_cell = r.gates * r.hidden / max(4, ctx.device.lanes) * STEP
        matrix = r.gates * r.hidden * r.hidden * 4 / STATE_WEIGHTS  # of 4 bytes each
        cells = batch * per_cell * (inputs / max(1, ctx.threads) + r.hidden)
        each = max(cells, matrix) + GATES * batch * r.hidden / 4
        # Threads share the product with the inputs alone: a step needs all of the step before.
        return 2 * START + steps * r.directions * each / CLOCK

    def compile(self, r: CpuRecurrence, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KERNELS[r.gates](r, variant, ctx).artifact()
