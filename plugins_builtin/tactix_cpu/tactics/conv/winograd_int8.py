"""Winograd convolution of bytes, exact: patches and weights are turned in integers of 16 bits, and
their products summed in int32.

With patches of four pixels along an axis all factors are 0, 1, -1 and, of weights, a half, so that
twice the turned weights along every axis are integers, and sums are whole multiples of 2 or 4:
nothing is rounded. A turned byte has up to 10 bits of magnitude, a turned weight 11. F(2 x 2, 3 x
3) takes 4/9 of the multiplications of a direct convolution of bytes, which AVX2 without VNNI does
in 16 bits anyhow; where one instruction multiplies four bytes, that is as fast, without patches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv.int8_window import DotSite, DotWindow, dot_window, formats
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow
from tactix_cpu.tactics.conv.winograd import WinogradTactic, turnable
from tactix_cpu.tactics.conv.winograd_kernel import Turn, TurnedNumbers, WinogradKernel
from tactix_cpu.tactics.dot_tile import BYTES, WORDS, DotTile

LENGTH = 4
"""Of patches: longer ones have factors whose turned weights, as integers, leave 16 bits."""
LARGEST = 255 * 128
"""Magnitude of a product of two bytes."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteWinogradTactic()]


@dataclass(frozen=True)
class ByteWindow(DotWindow):
    """A window of bytes that is turned."""

    @property
    def dtype(self) -> DType:
        """Of turned numbers."""
        return DType.INT16

    @property
    def scale(self) -> int:
        """How many times the sums turned sums are: a power of 2."""
        return int(2 ** sum(taps > 1 for taps in self.kernel))


class ByteWinogradTactic(WinogradTactic):
    """u8 or i8 with constant i8 weights on AVX2 without VNNI, one or two spatial axes of static
    size; the rest as c_winograd has it.
    """

    key = "tactix.c_int8_winograd@1"
    beyond = "it is for AVX2 without VNNI"
    implements = ("tactix.IntegerConvolution@1",)
    spreads = False
    lengths = ((LENGTH,), (LENGTH,))

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        if not byte.dot_on(BYTES, device).widened:
            return Reject("it needs AVX2, and products of four bytes are faster")
        found = dot_window(node)
        if isinstance(found, Reject):
            return found
        if found.dilations != (1, 1):
            return Reject("windows that are not dilated only")
        fmt = blocked(device.lanes)
        known = formats(found, fmt, fmt)
        if isinstance(known, Reject):
            return known
        win = ByteWindow(**vars(found))
        if win.taps * win.c * win.scale * LARGEST >= 1 << 31:
            return Reject("so many channels that turned sums leave 32 bits")
        return turnable(cast(CpuConvolutionWindow, win), device, self.lengths)

    def compile(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return ByteWinogradKernel(win, variant, ctx).artifact()


class ByteWinogradKernel(WinogradKernel):
    """Its products take pairs of channels in 16 bits, on tiles of registers."""

    patch_numbers = TurnedNumbers("int16_t", "tx_s16", "tx_load_words", "tx_store_words")
    sum_numbers = TurnedNumbers("int32_t", "vi", "tx_load_i32", "tx_store_i32")

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.bytes = cast(ByteWindow, win)
        self.site = DotSite(self.args, self.bytes, self.lanes, "")  # type: ignore[assignment]
        down, right = self.turns
        self.turns = _in_integers(down), _in_integers(right)

    def _preludes(self) -> tuple[str, ...]:
        return byte.preludes(WORDS)

    def _finished(self, made: KernelArtifact) -> KernelArtifact:
        return byte.without_fma(made) if byte.rounds_sums(self.win.epi.results) else made

    def _taken(self, pixel: str) -> str:
        return f"tx_words_{self.given.value}({pixel})"

    def _put(self, pointer: str, value: str) -> str:
        return f"tx_store_words({pointer}, {value});"

    def _beyond(self) -> str:
        fill = self.bytes.fill
        signed = fill - 256 if self.bytes.flip and fill > 127 else fill
        return f" = {{{', '.join([str(signed)] * self.lanes)}}}" if fill else ""

    def _tile(self, size: int) -> tuple[list[str], str, list[str]]:
        offsets = tuple(m * self.lanes * WORDS.size for m in range(size))
        _, far = byte.ahead(self.blocks.results / self.tile.rows)
        tile = DotTile(WORDS, offsets, self.tile.vectors, self.lanes, far=far)
        begin = [tile.zero(), "const int8_t* pairs = (const int8_t*)w;"]
        cells = [
            "const uint8_t* row = (const uint8_t*)x;",
            tile.run(self.lanes // WORDS.group, "row", "pairs"),
        ]
        return begin, block("", *cells), tile.save("s")

    def _first(self) -> list[str]:
        size = self.site.blocks * self.lanes
        starts = byte.starts(self.win.node, self.bytes.inputs, size, 0, flipped=False)
        first = self.args.constant("first", starts, DType.INT32)
        return [f"const vi start = tx_load_i32({first} + block * {self.lanes});"]

    def _sum(self, value: str) -> str:
        return f"({value} >> {self.bytes.scale.bit_length() - 1}) + start"

    def _finish(self, sums: str) -> str:
        tile = DotTile(BYTES, (0,) * self.right.m, 1, self.lanes)
        return tile.finish_saved(self.win.epi, self.site, "wide", False, sums)


def _in_integers(turn: Turn) -> Turn:
    """Twice the weights, which are then whole numbers; of one tap nothing is turned."""
    if len(turn.weights) == 1:
        return turn
    return replace(turn, weights=tuple(tuple(2 * w for w in row) for row in turn.weights))
