"""Random numbers in C: those of numpy's generators, which the references use, from the same seeds.

A generator can skip ahead, so that threads share what is drawn; but of the normal distribution,
where each number takes as many draws as it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tactix.base import dims
from tactix.base.arrays import Array
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_cpu.tactics.dot_tile import without_fma
from tactix_ops.layers.random import generator

DRAW, NORMAL, TWIST = 2e-9, 8e-9, 2e-9
"""Seconds that a number in [0, 1), one of the normal distribution and one of the Mersenne twister
take on a thread. Sapphire Rapids.
"""
WORDS = 4
"""Of 64 bits, that a generator without a seed starts from."""
BLOCK = 64
"""Numbers that are drawn at once."""
LAYERS, PLACE_BITS = 256, 52
"""Of the ziggurat, and bits of a place in a layer."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [DrawTactic(), MultinomialTactic(), DropoutTactic()]


def _preludes() -> tuple[str, ...]:
    return (*c_copy.preludes(), c_text.prelude("random.h"))


def _generator(args: Args, seed: float | None) -> list[str]:
    """Declare ``g``; of a seed always the same. Without one the first of two launches asks the
    system.
    """
    if seed is not None:
        pcg = generator(seed).bit_generator.state["state"]
        state, step = (_words(pcg[name]) for name in ("state", "inc"))
        return [f"tx_pcg g = {{{state}, {step}}};"]
    words = args.workspace(0, "uint64_t")
    no_numbers = args.refuse("the system gives no random numbers", "0", do="Give the node a seed")
    return [
        block(
            f"if ({args.phase()} == 0)",
            block(f"if (!tid && !tx_pcg_fresh({words}))", no_numbers),
            "return;",
        ),
        f"tx_pcg g = tx_pcg_of({words});",
    ]


def _words(number: int) -> str:
    return f"TX_U128(0x{number >> 64:x}ULL, 0x{number % (1 << 64):x}ULL)"


def _kernel(
    args: Args, body: Sequence[str], ctx: CompileContext, seed: float | None, room: Dim = 0
) -> KernelArtifact:
    """``room``: bytes of the workspace behind the words that a generator starts from."""
    fresh = seed is None
    made = c_text.kernel(
        args,
        body,
        ctx,
        preludes=_preludes(),
        workspace=8 * WORDS + room if fresh or room != 0 else 0,
        phases=2 if fresh else 1,
    )
    return without_fma(made)


def _rounded(dtype: DType, value: str) -> str:
    """A double as a stored element, rounded once, as numpy does; bfloat16 by way of float32."""
    if dtype is DType.FP16:
        return f"tx_to_f16(tx_marked({value}))"
    return f"tx_to_bf16((float)({value}))" if dtype is DType.BF16 else f"({value})"


class DrawTactic(Tactic[Node]):
    """Uniform and normal numbers, and ones and zeros."""

    key = "tactix.c_draw@1"
    implements = ("tactix.RandomUniform@1", "tactix.RandomNormal@1", "tactix.RandomBernoulli@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        numbers = [v.spec.dtype for v in (*node.given, *node.outputs)]
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(*numbers):
            return Reject(f"no random numbers of {numbers[-1].value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        each = NORMAL if _is_normal(node) else DRAW / max(1, ctx.threads)
        return c_text.seconds(ctx, (node.outputs[0].spec.numel, each))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        lines = {"RandomUniform": _uniform, "RandomNormal": _normal, "RandomBernoulli": _hits}
        body = [*_generator(args, node.attrs.seed), *lines[node.layer.name](args, node)]
        return _kernel(args, body, ctx, node.attrs.seed)


def _is_normal(node: Node) -> bool:
    return node.layer.name == "RandomNormal"


def _each(args: Args, node: Node, value: str) -> list[str]:
    """Every element ``i`` is one draw, ``drawn[j]``; a block is drawn, then vectors run over it."""
    y = node.outputs[0].spec
    block_of = [
        f"double drawn[{BLOCK}];",
        f"const int64_t n = hi - first < {BLOCK} ? hi - first : {BLOCK};",
        loop("j", "0", "n", "drawn[j] = tx_pcg_double(&g);"),
        loop(
            "j",
            "0",
            "n",
            "const int64_t i = first + j;",
            f"{args.output()}[i] = {_rounded(y.dtype, value)};",
        ),
    ]
    return [
        c_text.split(args.size("COUNT", y.numel), BLOCK),
        "tx_pcg_skip(&g, (uint64_t)lo);",
        loop("first", "lo", "hi", *block_of, step=BLOCK),
    ]


def _uniform(args: Args, node: Node) -> list[str]:
    a = node.attrs
    return _each(args, node, f"{a.low!r} + {a.high - a.low!r} * drawn[j]")


def _hits(args: Args, node: Node) -> list[str]:
    x, y = node.given[0].spec, node.outputs[0].spec
    hit = f"drawn[j] < (double){element(x.dtype, f'{args.input(0)}[i]')}"
    return _each(args, node, f"(double)({hit})" if y.dtype.is_float else hit)


def _normal(args: Args, node: Node) -> list[str]:
    a, y = node.attrs, node.outputs[0].spec
    width, height, inner = ziggurat()
    tables = [
        args.constant("width", Packed(-1, array=width), DType.FP64),
        args.constant("height", Packed(-1, array=height), DType.FP64),
        args.constant("inner", Packed(-1, array=inner), DType.UINT64),
    ]
    end = repr(float(width[-1]) * 2.0**PLACE_BITS)
    value = f"{a.mean!r} + {a.scale!r} * tx_pcg_normal(&g, {', '.join(tables)}, {end})"
    return [
        comment("How many draws a number takes is known when it is drawn."),
        "if (tid) return;",
        loop(
            "i",
            "0",
            args.size("COUNT", y.numel),
            f"{args.output()}[i] = {_rounded(y.dtype, value)};",
        ),
    ]


def ziggurat() -> tuple[Array, Array, Array]:
    """Of the layers of numpy's ziggurat: widths of a place, densities at the ends, and the places
    that lie inside of the layer above.

    Widths are read off numpy's own numbers, as their last bits follow from how its tables were
    made: a generator is given the bits of place 2**40 in every layer. In layer 1 no place is
    inside; one draw more, of 0, accepts it. The others need not be exact: that would decide for a
    few places in 2**52.
    """
    draws = [(1 << 40) << 9 | layer for layer in range(LAYERS)]
    draws.insert(2, 0)
    twister = np.random.MT19937()
    words = [word for d in draws for word in (d >> 32, d & 0xFFFFFFFF)]
    state = twister.state
    state["state"] = {"key": np.resize([_untempered(w) for w in words], 624), "pos": 0}
    twister.state = state
    width = np.random.Generator(twister).standard_normal(LAYERS) / 2.0**40
    x = width * 2.0**PLACE_BITS
    height = np.exp(-0.5 * x * x)
    height[0] = 1
    inner = np.array([x[-1] / x[0], 0, *(x[1:-1] / x[2:])]) * 2.0**PLACE_BITS
    return width, height, inner.astype(np.uint64)


def _untempered(word: int) -> int:
    """The word of a Mersenne twister's state that gives ``word``."""
    y = word ^ word >> 18
    y ^= y << 15 & 0xEFC60000
    x = y
    for _ in range(4):
        x = y ^ (x << 7 & 0x9D2C5680)
    y = x
    for _ in range(2):
        x = y ^ x >> 11
    return x & 0xFFFFFFFF


class MultinomialTactic(Tactic[Node]):
    """Classes by their weights' running sums, which a search finds a draw in."""

    key = "tactix.c_multinomial@1"
    implements = ("tactix.RandomMultinomial@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, y = node.given[0].spec, node.outputs[0].spec
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype, y.dtype):
            return Reject(f"no draws of {y.dtype.value} by {x.dtype.value} in C")
        if not isinstance(x.shape[1], int) or not x.shape[1]:
            return Reject("the number of classes is not known, or there are none")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        x, y = node.given[0].spec, node.outputs[0].spec
        exponential, step = 8e-9, 2e-9
        steps = dims.evaluate(x.shape[1], ctx.opt).bit_length()
        return c_text.seconds(ctx, (x.numel, exponential), (y.numel, DRAW + steps * step))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x, threads = Args(node), node.given[0].spec, max(1, ctx.threads)
        sample, classes = (
            args.size("SAMPLE", node.attrs.sample_size),
            args.size("CLASSES", x.shape[1]),
        )
        own = f"{args.workspace(8 * WORDS, 'double')} + tid * {classes}"
        weight = f"(double){element(x.dtype, f'{args.input(0)}[row * {classes} + k]')}"
        row = [
            comment("Running sums of the weights, of which the largest is 1."),
            "double most = -INFINITY, total = 0;",
            loop(
                "k",
                "0",
                classes,
                f"const double v = {weight};",
                "most = v > most || v != v ? v : most;",
            ),
            loop("k", "0", classes, f"sums[k] = total += exp({weight} - most);"),
            loop("i", "0", sample, *_found(args, node, classes, sample)),
        ]
        body = [
            *_generator(args, node.attrs.seed),
            *c_text.at_most(threads),
            c_text.split(args.size("ROWS", x.shape[0])),
            f"tx_pcg_skip(&g, (uint64_t)(lo * {sample}));",
            f"double* const sums = {own};",
            loop("row", "lo", "hi", *row),
        ]
        room = 8 * x.shape[1] * threads
        return _kernel(args, body, ctx, node.attrs.seed, room)


def _found(args: Args, node: Node, classes: str, sample: str) -> list[str]:
    """The first class whose sum is above the draw; what is no number is above all."""
    kind = c_text.ctype(node.outputs[0].spec.dtype)
    above = "at < sums[middle] || (sums[middle] != sums[middle] && at == at)"
    return [
        "const double at = tx_pcg_double(&g) * total;",
        f"int64_t first = 0, last = {classes};",
        block(
            "while (first < last)",
            "const int64_t middle = (first + last) / 2;",
            f"if ({above}) last = middle;",
            "else first = middle + 1;",
        ),
        f"{args.output()}[row * {sample} + i] = ({kind})first;",
    ]


class DropoutTactic(Tactic[Node]):
    """TrainingDropout: one thread draws, as numpy's RandomState does."""

    key = "tactix.c_training_dropout@1"
    implements = ("tactix.TrainingDropout@1",)
    source = "c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x = node.given[0].spec.dtype
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not x.is_float or not all(c_text.has_ctype(v.spec.dtype) for v in node.given):
            return Reject(f"no dropout of {x.value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.seconds(ctx, (node.outputs[0].spec.numel, TWIST))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x = Args(node), node.given[0].spec
        ratio, training = _scalar(args, node, 1), _scalar(args, node, 2)
        count, made, kept = args.size("COUNT", x.numel), args.output(0), args.output(1)
        size = args.size("BYTES", x.nbytes())
        if training is None:
            body = ["if (tid) return;", *_all_kept(args, size, count)]
            return c_text.kernel(args, body, ctx, preludes=_preludes())
        key = np.random.RandomState(node.attrs.seed).get_state(legacy=False)["state"]["key"]
        name = args.constant("key", Packed(-1, array=key), DType.UINT32)
        number = "double" if x.dtype is DType.FP64 else "float"
        value = f"{element(x.dtype, f'{args.input(0)}[i]')} / left"
        stored = {DType.FP16: f"tx_to_f16({value})", DType.BF16: f"tx_to_bf16({value})"}
        draw = [
            "const int64_t i = first + j;",
            f"const {c_text.ctype(x.dtype)} scaled = {stored.get(x.dtype, value)};",
            f"{made}[i] = numbers[j] >= drop ? scaled : 0;",
            f"{kept}[i] = numbers[j] >= drop;",
        ]
        rest = f"{count} - first"
        blocks = [
            "double numbers[TX_TWISTER_NUMBERS];",
            "tx_twister(key, numbers);",
            f"const int64_t n = {rest} < TX_TWISTER_NUMBERS ? {rest} : TX_TWISTER_NUMBERS;",
            loop("j", "0", "n", *draw),
        ]
        body = [
            "if (tid) return;",
            f"const double drop = {'0.5' if ratio is None else ratio};",
            block(f"if (!{training} || drop == 0)", *_all_kept(args, size, count), "return;"),
            f"const {number} left = ({number})(1 - drop);",
            "uint32_t key[TX_TWISTER_WORDS];",
            f"memcpy(key, {name}, sizeof key);",
            loop("first", "0", count, *blocks, step="TX_TWISTER_NUMBERS"),
        ]
        return without_fma(c_text.kernel(args, body, ctx, preludes=_preludes()))


def _scalar(args: Args, node: Node, index: int) -> str | None:
    """The number in an input that need not be there, as a double."""
    place = node.place(index)
    if place < 0:
        return None
    return f"(double){element(node.given[place].spec.dtype, f'{args.input(place)}[0]')}"


def _all_kept(args: Args, size: str, count: str) -> list[str]:
    return [
        f"memcpy({args.output(0)}, {args.input(0)}, {size});",
        f"memset({args.output(1)}, 1, {count});",
    ]
