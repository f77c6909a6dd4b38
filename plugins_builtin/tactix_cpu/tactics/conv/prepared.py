"""Convolution of single pixels, of what pointwise layers make of the input: of a block of pixels at
a time, into memory of one thread, which the tiles of all panels then read from a cache.
"""

from __future__ import annotations

from tactix.base.dims import Dim, prod
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c.text import comment, loop
from tactix_codegen.c.tile import grid
from tactix_cpu.tactics.conv.kernel import ConvKernel
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, prepared

MADE_BYTES, FAR_BYTES = 1 << 14, 1 << 18
"""Bytes of a block of pixels: half of a first cache of 32 KiB; where weights do not stay in the
second cache, a quarter of it, so that they are read less often. An Intel guest with AMX, gates
behind depthwise convolutions of 32 to 144 channels: 0.78 to 0.88 of the time of a multiplication by
itself with 16 KiB, 0.85 to 0.91 with 32 KiB, 0.89 to 0.98 with 256 KiB; of 1152 channels of 7 x 7
pixels, whose weights take 884 KB, 1.01 with 16 KiB and 0.96 with 256 KiB.
"""
FAR_WEIGHTS = 1 << 18
"""Bytes of weights that count as not staying there: a quarter of 1 MiB."""

PREPARING = 1
"""Panels that take as long as preparing their input: threads that share panels prepare all pixels
each, of what lies in the caches of others. No measurement of other numbers is on record.
"""


class PreparedKernel(ConvKernel):
    """The loops of ConvKernel over tiles of pixels, behind a loop that prepares their input."""

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        super().__init__(win, variant, ctx)
        self.threads = max(1, ctx.threads)

    def _tiles_of_sweep(self) -> int:
        rows, pixels = self.tile.rows, prod(self.win.spatial)
        far = self.panels * self.deep * self.slab * 4 > FAR_WEIGHTS
        most = max(1, (FAR_BYTES if far else MADE_BYTES) // (rows * self.deep * self.cell * 4))
        return min(most, -(-pixels // rows)) if isinstance(pixels, int) else most

    def _plane(self) -> Dim:
        """An odd number of lines: planes at a multiple of 4 KiB would collide in the cache."""
        return (self._tiles_of_sweep() * self.tile.rows | 1) * self.cell

    def _made_bytes(self) -> Dim:
        return self._plane() * (self.deep * 4)

    def _workspace(self) -> Dim:
        return super()._workspace() + self._made_bytes() * self.threads

    def _input(self, size: Dim) -> str:
        return self.args.workspace(size - self._made_bytes() * self.threads)

    def _helpers(self) -> str:
        assert self.win.before is not None
        return f"{self.win.before.helpers}\n{super()._helpers()}"

    def _grid(self) -> str:
        return grid(PREPARING)

    def _pointwise(self) -> str:
        made = self.args.size("MADE", self._made_bytes())
        first = [
            f"if (tid >= {self.threads}) return;",
            f"if (nt > {self.threads}) nt = {self.threads};",
            f"float* made = {self.x} + tid * ({made} / 4);",
        ]
        return "\n".join([*first, super()._pointwise()])

    def _prepare(self) -> list[str]:
        plane = self.args.size("GIVEN_PLANE", super()._plane())
        image = self.args.size("GIVEN_IMAGE", super()._plane() * self.deep)
        x = f"{self.args.input(self.win.x)} + image * {image} + block * {plane}"
        return [
            comment("what stands before the convolution, of the pixels [from, end)"),
            f"const int64_t from = t * {self.tile.rows};",
            loop("block", "0", "DEEP", *prepared(self.site, x, "made + block * X_PLANE")),
        ]

    def _from_start(self, pixel: str) -> str:
        return f"({pixel} - from)"

    def _image(self) -> str:
        return "made"
