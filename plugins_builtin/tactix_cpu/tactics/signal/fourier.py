"""DFT and STFT in C: transforms of any length, of many signals side by side.

What factors the length has decides how much work it is (``c/lib/fourier.h``). They are computed in
float64, as the reference: what is zero by cancellation would be 1e-6 in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, comment, loop
from tactix_codegen.operations.fourier import FourierTransform, Signals

COMPUTED = DType.FP64
"""The dtype of all sums and products."""
SIDE_BY_SIDE = 16
"""Signals that are transformed at once: two vectors of float64 at most."""
TOGETHER = 1 << 14
"""Numbers of these signals at most, of each of four arrays: 512 KiB of float64, which a second
cache of 1 MiB holds. Longer signals are transformed one by one.
"""
SECONDS_A_TERM = 4e-10
"""Of a complex product and sum: eight operations, of which a vector of eight does a few a cycle. No
measurement of it is on record.
"""
SOME_TERMS = 12
"""Terms of a result where the length is not known: those of 4096."""
LONGEST_SUM = 100
"""``TX_LONGEST_SUM`` of ``fourier.h``. On a Xeon with AMX sums took 0.38 ns a term, and a chirp 25
to 45 ns an element, as the inner length is 2 to 4 times as long.
"""
INNER = 4
"""An inner length is less than so many times the length."""
TABLES = 2 * (INNER + 1 + INNER)
"""Numbers for each element of the length, at most, in the tables of ``fourier.h``."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [FourierTactic()]


@dataclass(frozen=True)
class FourierWork(FourierTransform):
    """``told``: the body has declared all sizes before, under the names that ``transforms`` gives
    them.
    """

    told: bool = False

    def named(self, args: Args, name: str, d: Dim) -> str:
        """``name``, which is declared as that dim."""
        return name if self.told else args.size(name, d)

    @property
    def terms(self) -> int:
        """Products for each result."""
        return terms_of(self.length) if isinstance(self.length, int) else SOME_TERMS

    @property
    def together(self) -> Dim:
        """Numbers of an array that has all signals side by side."""
        if isinstance(self.length, int):
            inner = inner_length(self.length)
            return inner * max(1, min(SIDE_BY_SIDE, TOGETHER // inner))
        return most_together(self.length)

    @property
    def room(self) -> Dim:
        """Numbers that a thread needs: four arrays, and tables of a length that is not known."""
        return 4 * self.together + (0 if isinstance(self.length, int) else TABLES * self.length)


def most_together(length: Dim) -> Dim:
    """Numbers of an array that has signals of this length side by side, at most."""
    return dims.dmin(SIDE_BY_SIDE * INNER * length, TOGETHER + INNER * length)


def inner_length(length: int) -> int:
    """``tx_inner_length`` of ``fourier.h``: the length of the transforms that this one takes."""
    left, r = length, 2
    while left > LONGEST_SUM and r <= LONGEST_SUM:
        left, r = (left // r, r) if left % r == 0 else (left, r + 1)
    return length if left <= LONGEST_SUM else 1 << (2 * length - 2).bit_length()


def terms_of(length: int) -> int:
    """Products for each result: the sum of the factors that the transform takes, where butterflies
    count as one of two; twice those of the inner length, and those by a chirp.
    """
    inner = inner_length(length)
    if inner != length:
        return -(-2 * inner * (terms_of(inner) + 1) // length) + 2
    total, left, r = 0, length, 3
    while left % 2 == 0:
        left, total = left // 2, total + 1
    while left > 1:
        r = r if left % r == 0 else left if r * r > left else r + 2
        if left % r == 0:
            left, total = left // r, total + r
    return max(1, total)


class FourierTactic(Tactic[FourierWork]):
    """f64, f32, f16 and bf16, linear; lengths known or not."""

    key = "tactix.c_fourier@1"
    implements = ("tactix.DFT@1", "tactix.STFT@1")
    source = "c"
    spreads = True  # every number is in every sum, in another order

    def match(self, node: Node, device: DeviceProperties) -> FourierWork | Reject:
        x = node.given[0].spec
        if node.is_fused:
            return Reject("transforms take no epilogue")
        if not x.dtype.is_float or not c_text.has_ctype(x.dtype):
            return Reject(f"no transform of {x.dtype.value} in C")
        work = FourierWork.of(node)
        return Reject("signals of no elements") if work.length == 0 else work

    def cost(self, work: FourierWork, variant: Variant, ctx: CompileContext) -> float | None:
        terms = work.count * work.length * work.terms
        moved = work.node.given[0].spec.nbytes() + work.node.outputs[0].spec.nbytes()
        return c_text.seconds(ctx, (terms, SECONDS_A_TERM), (moved, 2 * SECONDS_A_TERM))

    def compile(self, work: FourierWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(work.node), max(1, ctx.threads)
        body = transforms(args, work, threads)
        preludes = (*c_text.vector_preludes(), c_text.prelude("fourier.h"))
        room = work.room * COMPUTED.itemsize * threads
        return c_text.kernel(args, body, ctx, preludes=preludes, workspace=room)


# -- text ------------------------------------------------------------------------------------------


def transforms(args: Args, work: FourierWork, threads: int) -> list[str]:
    """Every thread has signals, and room for some side by side and their transforms."""
    real = c_text.ctype(COMPUTED)
    work.named(args, "LENGTH", work.length)
    work.named(args, "SIZE", work.size)
    work.named(args, "BINS", work.bins)
    room = work.named(args, "ROOM", work.together)
    tables = "" if isinstance(work.length, int) else f" + {TABLES} * LENGTH"
    own = f"{args.workspace(0, real)} + tid * (4 * {room}{tables})"
    swapped = ("im", "re") if work.inverse else ("re", "im")
    parts = f"{{{', '.join(f'own + {i} * {room}' for i in range(2))}}}"
    others = f"{{{', '.join(f'own + {i} * {room}' for i in range(2, 4))}}}"
    group = [
        "const int64_t batch = hi - first < side ? hi - first : side;",
        f"{real}* const re = x.{swapped[0]};",
        f"{real}* const im = x.{swapped[1]};",
        *_load(args, work),
        f"const tx_parts_{real} y = tx_transform_{real}(x, spare, turns, LENGTH, INNER, batch);",
        *_store(args, work, swapped),
    ]
    return [
        *c_text.at_most(threads),
        c_text.split(work.named(args, "SIGNALS", work.count)),
        "if (lo >= hi || LENGTH < 1) return;",
        f"{real}* const own = {own};",
        f"const tx_parts_{real} x = {parts}, spare = {others};",
        *_turns(args, work, real),
        comment("So many signals lie side by side: vectors run over them."),
        f"const int64_t many = {TOGETHER} / INNER;",
        f"const int64_t side = many < 1 ? 1 : many < {SIDE_BY_SIDE} ? many : {SIDE_BY_SIDE};",
        loop("first", "lo", "hi", *group, step="side"),
    ]


def _turns(args: Args, work: FourierWork, real: str) -> list[str]:
    """The inner length, and tables of powers of the root of one: a constant, or made by each
    thread.
    """
    if not isinstance(work.length, int):
        return [
            "const int64_t INNER = tx_inner_length(LENGTH);",
            f"{real}* const turns = own + 4 * ROOM;",
            f"tx_turns_{real}(turns, LENGTH, INNER, x, spare);",
        ]
    args.size("INNER", inner_length(work.length))
    name = args.constant("turns", Packed(-1, array=tables(work.length)), COMPUTED)
    return [f"const {real}* const turns = {name};"]


def tables(length: int) -> np.ndarray:
    """What ``tx_turns`` of ``fourier.h`` makes: pairs, f64(n, 2)."""
    inner = inner_length(length)
    turns = np.exp(-2j * math.pi * np.arange(inner) / inner)
    parts = [turns]
    if inner != length:
        squares = np.array([k * k % (2 * length) for k in range(length)])
        chirp = np.exp(-1j * math.pi * squares / length)
        kernel = np.zeros(inner, np.complex128)
        kernel[:length] = kernel[-np.arange(length)] = chirp.conj() / inner
        parts += [chirp, np.fft.fft(kernel)]
    whole = np.concatenate(parts)
    return np.stack([whole.real, whole.imag], axis=1).astype(COMPUTED.numpy)


def _place(args: Args, work: FourierWork, name: str, signals: Signals) -> str:
    """Declare where signal ``first + b`` begins."""
    if work.told:
        side = {"from": "IN", "to": "OUT"}[name]
        each, outer, inner = (f"{size}_{side}" for size in ("EACH", "OUTER", "INNER"))
    else:
        each = args.dim(signals.each)
        outer, inner = args.dim(signals.outer), args.dim(signals.inner)
    return (
        f"const int64_t {name} = (first + b) / {each} * {outer} + (first + b) % {each} * {inner};"
    )


def _load(args: Args, work: FourierWork) -> list[str]:
    """The signals side by side, cut or filled with zeros."""
    x, dtype, real = args.input(0), work.node.given[0].spec.dtype, c_text.ctype(COMPUTED)
    window = _window(args, work)
    step = work.named(args, "STEP_IN", work.source.step)
    factor = " * factor" if window else ""

    def part(i: int) -> str:
        if i == 1 and (work.source.parts == 1 or (work.real and not work.half)):
            return "0"
        return f"{c_scalar.element(dtype, f'{x}[from + t * {step} + {i}]')}{factor}"

    most = "LENGTH / 2 + 1" if work.half else "LENGTH"
    store = ["re[t * batch + b] = a;", "im[t * batch + b] = c;"]
    if work.half:
        store = [
            comment("The other half are the conjugates."),
            "const int alone = t == 0 || 2 * t == LENGTH;",
            "re[t * batch + b] = a;",
            "im[t * batch + b] = alone ? 0 : c;",
            "if (alone) continue;",
            "re[(LENGTH - t) * batch + b] = a;",
            "im[(LENGTH - t) * batch + b] = -c;",
        ]
    each = [f"const {real} a = {part(0)}, c = {part(1)};", *store]
    places = _place(args, work, "from", work.source)
    known = loop("t", "0", "given", window, loop("b", "0", "batch", places, *each))
    zeros = "memset({0} + given * batch, 0, (LENGTH - given) * batch * sizeof *{0});"
    return [
        f"const int64_t given = SIZE < {most} ? SIZE : {most};",
        *(zeros.format(name) for name in ("re", "im")),
        known,
    ]


def _window(args: Args, work: FourierWork) -> str:
    """Declare the factor of element ``t``, if there is one."""
    if work.window < 0:
        return ""
    dtype, real = work.node.given[work.window].spec.dtype, c_text.ctype(COMPUTED)
    return f"const {real} factor = {c_scalar.element(dtype, f'{args.input(work.window)}[t]')};"


def _store(args: Args, work: FourierWork, parts: tuple[str, str]) -> list[str]:
    """The transforms where the result has them."""
    y, dtype, real = args.output(), work.node.outputs[0].spec.dtype, c_text.ctype(COMPUTED)
    step = work.named(args, "STEP_OUT", work.target.step)
    scale = " * scale" if work.inverse else ""
    stores = [
        f"{y}[to + k * {step} + {i}] = "
        + c_scalar.stored(dtype, f"y.{parts[i]}[k * batch + b]{scale}")
        + ";"
        for i in range(work.target.parts)
    ]
    walk = loop("k", "0", "BINS", *stores)
    head = f"const {real} scale = ({real})(1.0 / (double)LENGTH);" if work.inverse else ""
    return [head, loop("b", "0", "batch", _place(args, work, "to", work.target), walk)]
