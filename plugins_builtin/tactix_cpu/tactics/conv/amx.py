"""Convolution of float32 in the blocked format on AMX, by parts as in c_gemm_amx, to the accuracy
of float32.

The rows of a are pixels of the output; a step of k is 32 channels of one tap. The first launch
gathers them and cuts them, zeros for taps beyond the border: it pays where few pixels meet many
channels. Groups of whole channel blocks are products of their own, each with its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from tactix.base.dims import evaluate, prod, symbols
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import loop
from tactix_codegen.c.tile import TileSite
from tactix_cpu.tactics.conv.window import (
    BlockedSite,
    CpuConvolutionWindow,
    formats,
    prepared,
    prepared_window,
)
from tactix_cpu.tactics.dot_tile import HALVES, has_tiles
from tactix_cpu.tactics.matmul.gemm_amx import DEPTH, FEWEST, WIDTH, PartsKernel, seconds

LANES = 16
"""float32 of a vector of AVX-512, which is what AMX comes with: a block of the blocked format; two
make a step of k.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [AmxConvTactic()]


class AmxConvTactic(Tactic[CpuConvolutionWindow]):
    """float32, up to three spatial axes, constant finite weights of at least as many channels as
    lanes; groups of whole channel blocks.
    """

    key = "tactix.c_conv_amx@1"
    implements = ("tactix.Convolution@1",)
    source = "c"
    by_signature = True
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        if not has_tiles(device, HALVES):
            return Reject("it needs AMX with bfloat16, and AVX-512")
        win = prepared_window(node, axes=(1, 2, 3))
        if isinstance(win, Reject):
            return win
        pixels = prod(win.spatial)
        if win.c < LANES or (isinstance(pixels, int) and pixels < FEWEST):
            return Reject("it takes at least 16 channels, and images of at least 8 pixels")
        if win.group > 1 and (win.c // win.group % LANES or win.co // win.group % LANES):
            return Reject("groups of whole channel blocks only")
        if not np.isfinite(node.given[win.w].array).all():
            return Reject("a weight is not finite")
        return win

    def variants(
        self, win: CpuConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        found = formats(win, blocked(LANES), blocked(LANES))
        return (
            found
            if isinstance(found, Reject)
            else [Variant.of(found, (blocked(LANES),) * len(win.node.outputs))]
        )

    def cost(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> float | None:
        pixels = prod(win.spatial)
        if not symbols(pixels * win.n) <= set(ctx.opt):
            return None
        m, images = evaluate(pixels, ctx.opt), evaluate(win.n, ctx.opt)
        if m < FEWEST:
            return inf
        columns, groups = win.co // win.group, win.group
        return seconds(m, columns, depth(win), ctx.threads, images * groups, groups)

    def compile(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _ConvKernel(win, ctx).artifact()


def depth(win: CpuConvolutionWindow) -> int:
    """Elements of a row: the channels of a group for every tap, filled up to steps."""
    return win.all_taps * -(-win.c // win.group // DEPTH) * DEPTH


class _ConvKernel(PartsKernel):
    """Pixels of blocked images, into blocked images. Every group of an image counts as an image,
    with a matrix of its own.
    """

    def __init__(self, win: CpuConvolutionWindow, ctx: CompileContext) -> None:
        groups = win.group
        super().__init__(
            win.node,
            ctx,
            prod(win.spatial),
            win.co // groups,
            depth(win),
            win.epi,
            win.n * groups,
            groups,
        )
        self.win, self.x = win, self.args.input(win.x)
        self.channels = win.c // groups

    def panels(self) -> Packed:
        win, count, groups = self.win, -(-self.n // WIDTH), self.win.group
        filled = depth(win)
        columns = (0, count * WIDTH - self.n)
        fill = (0, 0), columns, (0, filled // win.all_taps - self.channels), (0, 0)
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (groups, self.n, self.channels, win.all_taps)),
            ("pad", fill),
            ("transpose", (0, 3, 2, 1)),
            ("reshape", (groups, filled, count, WIDTH)),
            ("pad", ((0, 0), (0, self.steps * DEPTH - filled), (0, 0), (0, 0))),
            ("transpose", (0, 2, 1, 3)),
        )
        return Packed(win.w, steps)

    def place(self) -> list[str]:
        win, dim = self.win, self.args.dim
        each, plane = -(-self.channels // DEPTH), dim(win.depth.size * win.size[0] * win.size[1])
        at, valid, lines = "row", f"row < {dim(self.m)}", []
        if not win.is_pointwise:
            high, wide, across, kw = (
                dim(win.size[0]),
                dim(win.size[1]),
                dim(win.out[1]),
                win.kernel[1],
            )
            (down, right), (dy, dx) = win.strides, win.dilations
            y, ky = f"row / {across}", f"tap / {kw}"
            if win.has_depth:
                y, ky = f"{y} % {dim(win.out[0])}", f"{ky} % {win.kernel[0]}"
            lines = [
                f"const int64_t tap = step / {each};",
                f"const int64_t i = {y} * {down} + {ky} * {dy} - {win.pads[0]};",
                f"const int64_t j = row % {across} * {right} + tap % {kw} * {dx} - {win.pads[1]};",
            ]
            at, valid = (
                f"i * {wide} + j",
                f"{valid} && i >= 0 && i < {high} && j >= 0 && j < {wide}",
            )
            if win.has_depth:
                lines.append(self._depth())
                deep, of_depth = dim(win.depth.size), dim(win.size[0] * win.size[1])
                at, valid = f"z * {of_depth} + {at}", f"{valid} && z >= 0 && z < {deep}"
        if self.steps > win.all_taps * each:
            valid = f"{valid} && step < {win.all_taps * each}"
        # Groups of an image follow each other, each of so many blocks.
        blocks = f"image * {-(-self.channels // LANES)}"
        left = f"const int64_t left = {valid} ? {self.channels} - step % {each} * {DEPTH} : 0;"
        if win.before:
            return [left, *self._prepared(f"{self.x} + ({blocks} + block) * {plane} * {LANES}")]
        place = f"(({blocks} + step % {each} * 2) * {plane} + {at}) * {LANES}"
        return [
            *lines,
            left,
            f"const float* x = {self.x} + {place};",
            f"const int64_t half = {plane} * {LANES};",
        ]

    def _prepared(self, given: str) -> list[str]:
        """C lines that declare ``x`` and ``half`` of what stands before the convolution; ``given``:
        a channel block of an image.
        """
        one = prepared(BlockedSite(self.args, self.win, LANES, ""), given, f"made + h * {LANES}")
        head = "const int64_t block = step * 2 + h, from = row, end = row + 1;"
        return [
            f"float made[{2 * LANES}] __attribute__((aligned(64)));",
            loop("h", "0", f"(left > {LANES} ? 2 : left > 0)", head, *one),
            "const float* x = made;",
            f"const int64_t half = {LANES};",
        ]

    def helpers(self) -> str:
        return self.win.before.helpers if self.win.before else ""

    def _depth(self) -> str:
        """C text that declares ``z``, where the tap of a row lies along the depth."""
        d, dim = self.win.depth, self.args.dim
        place = f"row / {dim(self.win.out[0] * self.win.out[1])} * {d.stride}"
        return f"const int64_t z = {place} + tap / {self.win.taps} * {d.dilation} - {d.pad};"

    def site(self) -> tuple[TileSite, str]:
        blocks, groups = -(-self.n // LANES), self.win.group
        before = f"const int64_t block = col / {LANES}, pixel = row;"
        if groups > 1:
            first = f"image % {groups} * {blocks}"
            before = (
                f"const int64_t block = {first} + col / {LANES}, pixel = row;\nimage /= {groups};"
            )
        left = f"({blocks} * {LANES} - col)" if blocks % 2 else ""
        return BlockedSite(self.args, self.win, LANES, left), before
