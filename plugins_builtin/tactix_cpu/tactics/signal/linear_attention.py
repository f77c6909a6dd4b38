"""LinearAttention in C: step after step, the state of some columns of a head in the first cache.

Columns of a state do not depend on each other, so that threads share them out. 16-bit floats are
computed in float32.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_codegen.operations.linear_attention import (
    BETA,
    DECAY,
    STATE,
    K,
    LinearAttentionWork,
    Q,
    V,
    linear_attention_of,
)

TILE = 32
"""Columns of a state that a thread walks at once: with 128 keys 16 KiB of float32, half of the
first cache of 32 KiB that most processors have at least.
"""
SECONDS_AN_ELEMENT = 5e-10
"""Of a state in a step: it is scaled, corrected, added to and read. No measurement of it is on
record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [LinearAttentionTactic()]


class LinearAttentionTactic(Tactic[LinearAttentionWork[Dim]]):
    """Every rule; f64, f32, f16 and bf16, linear; heads of open sizes, too."""

    key = "tactix.c_linear_attention@1"
    implements = ("tactix.LinearAttention@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> LinearAttentionWork[Dim] | Reject:
        return linear_attention_of(node)

    def cost(
        self, work: LinearAttentionWork[Dim], variant: Variant, ctx: CompileContext
    ) -> float | None:
        steps = work.node.outputs[1].spec.numel * work.node.outputs[0].spec.shape[1]
        return c_text.seconds(ctx, (steps, SECONDS_AN_ELEMENT))

    def compile(
        self, work: LinearAttentionWork[Dim], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        body = _units(args, work, threads)
        return c_text.kernel(args, body, ctx, workspace=_room(work) * work.real.itemsize * threads)


def _room(work: LinearAttentionWork[Dim]) -> Dim:
    """Numbers that a thread keeps: columns of a state, and a gate for each key."""
    return work.keys * (TILE + 1)


def _units(args: Args, work: LinearAttentionWork[Dim], threads: int) -> list[str]:
    """Each thread has columns of states, and walks all steps for each group of them."""
    real = c_text.ctype(work.real)
    batch, steps = work.node.outputs[0].spec.shape[:2]
    args.size("STEPS", steps)
    args.size("KEYS", work.keys)
    args.size("VALUES", work.values)
    args.size("HEADS", work.heads)
    args.size("QUERIES", work.heads * work.shared)
    tiles = args.size("TILES", dims.ceildiv(work.values, TILE))
    units = args.size("UNITS", batch * work.heads * dims.ceildiv(work.values, TILE))
    own = f"{args.workspace(0, real)} + tid * {args.dim(_room(work))}"
    unit = [
        f"const int64_t head = unit / {tiles} % HEADS, b = unit / ({tiles} * HEADS);",
        f"const int64_t first = unit % {tiles} * TILE;",
        "const int64_t n = VALUES - first < TILE ? VALUES - first : TILE;",
        "const int64_t place = (b * HEADS + head) * KEYS * VALUES + first;",
        *_state(args, work),
        loop("t", "0", "STEPS", "const int64_t step = b * STEPS + t;", *_step(args, work)),
        *_last_state(args, work),
    ]
    return [
        f"enum {{ TILE = {TILE} }};",
        *c_text.at_most(threads),
        comment("Units are groups of columns of a state; [lo, hi) are this thread's."),
        c_text.split(units),
        f"{real}* const gate = {own};",
        f"{real}* const state = gate + KEYS;",
        loop("unit", "lo", "hi", *unit),
    ]


def _element(args: Args, work: LinearAttentionWork[Dim], source: int, place: str) -> str:
    """An element of one of the layer's inputs as a number."""
    index = work.places[source]
    dtype = work.node.given[index].spec.dtype
    return c_scalar.element(dtype, f"{args.input(index)}[{place}]")


def _over_state(*body: str) -> str:
    return loop("i", "0", "KEYS", loop("j", "0", "n", *body))


def _state(args: Args, work: LinearAttentionWork[Dim]) -> list[str]:
    """What the columns begin with."""
    if STATE not in work.places:
        return [_over_state("state[i * TILE + j] = 0;")]
    given = _element(args, work, STATE, "place + i * VALUES + j")
    return [_over_state(f"state[i * TILE + j] = {given};")]


def _last_state(args: Args, work: LinearAttentionWork[Dim]) -> list[str]:
    dtype = work.node.outputs[1].spec.dtype
    value = c_scalar.stored(dtype, "state[i * TILE + j]")
    return [_over_state(f"{args.output(1)}[place + i * VALUES + j] = {value};")]


def _step(args: Args, work: LinearAttentionWork[Dim]) -> list[str]:
    """Scale the state, correct what is added by what it says of the key, add that, and read."""
    real = c_text.ctype(work.real)
    key = _element(args, work, K, "(step * HEADS + head) * KEYS + i")
    value = _element(args, work, V, "(step * HEADS + head) * VALUES + first + j")
    out = [f"{real} fresh[TILE], read[{work.shared}][TILE] = {{{{0}}}};"]
    out.append(loop("j", "0", "n", f"fresh[j] = {value};"))
    gated = ["row[j] *= gate[i];"] if work.decays else []
    corrected = ["fresh[j] -= row[j] * key;"] if work.corrects else []
    head = [f"const {real} key = {key};", f"{real}* restrict const row = state + i * TILE;"]
    if work.decays:
        out += _gates(args, work)
    if gated or corrected:
        about = comment("What the state says of the key, after it has decayed.")
        names = head if corrected else head[1:]
        out += [about, loop("i", "0", "KEYS", *names, loop("j", "0", "n", *gated, *corrected))]
    if work.corrects and BETA in work.places:
        out += _weighed(args, work)
    return [*out, *_read(args, work, head)]


def _gates(args: Args, work: LinearAttentionWork[Dim]) -> list[str]:
    """The factor of each key: the decay is a logarithm, of a head or of each of its keys."""
    spec = work.node.given[work.places[DECAY]].spec
    args.size("DECAYS", dims.floordiv(spec.shape[2], work.heads))
    base, x = "(step * HEADS + head) * DECAYS", args.input(work.places[DECAY])
    one = _element(args, work, DECAY, base)
    each = _element(args, work, DECAY, f"{base} + i")
    exp = "exp" if work.real is DType.FP64 else "expf"
    single = loop("i", "0", "KEYS", "gate[i] = all;")
    kind = c_text.ctype(work.real)
    every = loop("i", "0", "KEYS", f"gate[i] = exp({each});")
    if work.real is DType.FP32:

        def vector(count: str) -> str:
            gates = f"tx_exp({c_text.load(spec.dtype, f'{x} + {base} + i', count)})"
            return c_text.store(DType.FP32, "gate + i", gates, count)

        every = "\n".join(
            [
                "int64_t i = 0;",
                block(
                    "for (; i + TX_LANES <= KEYS; i += TX_LANES)",
                    vector(""),
                ),
                f"if (i < KEYS) {{ {vector('KEYS - i')} }}",
            ]
        )
    return [c_text.choice("DECAYS == 1", [f"const {kind} all = {exp}({one});", single], [every])]


def _weighed(args: Args, work: LinearAttentionWork[Dim]) -> list[str]:
    """Times a number of the head, or one for all heads."""
    width = args.size("BETAS", work.node.given[work.places[BETA]].spec.shape[2])
    beta = _element(args, work, BETA, f"step * {width} + ({width} == 1 ? 0 : head)")
    real = c_text.ctype(work.real)
    return [f"const {real} beta = {beta};", loop("j", "0", "n", "fresh[j] *= beta;")]


def _read(args: Args, work: LinearAttentionWork[Dim], head: list[str]) -> list[str]:
    """Add key by value to the state, and ask it with the queries of the head."""
    real, dtype = c_text.ctype(work.real), work.node.outputs[0].spec.dtype
    asked = [
        f"const int64_t query = head * {work.shared} + r;",
        f"const {real} q = {_element(args, work, Q, '(step * QUERIES + query) * KEYS + i')};",
        loop("j", "0", "n", "read[r][j] += row[j] * q;"),
    ]
    add = loop("j", "0", "n", "row[j] += fresh[j] * key;")
    number = work.node.attrs.scale
    scale = float_literal(number, double=True) if number else "1.0 / sqrt((double)KEYS)"
    place = f"(step * QUERIES + head * {work.shared} + r) * VALUES + first + j"
    store = f"{args.output(0)}[{place}] = {c_scalar.stored(dtype, 'read[r][j] * scale')};"
    queries = str(work.shared)
    return [
        loop("i", "0", "KEYS", *head, add, loop("r", "0", queries, *asked)),
        f"const {real} scale = ({real})({scale});",
        loop("r", "0", queries, loop("j", "0", "n", store)),
    ]
