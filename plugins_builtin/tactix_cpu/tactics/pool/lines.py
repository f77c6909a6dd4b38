"""The text of a pooling kernel in C for linear images whose windows share elements of a row.

The taps of all axes but the last are joined first, into a line of the row's elements with neutral
ones around it. Windows are parts of that line, so that none at a border is made by itself, and a
tap of the other axes is read once for all windows that have it.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import block, loop
from tactix_cpu.tactics.pool.kernel import BYTES, UNROLLED, PoolKernel

LINE = 4096
"""Elements of a row that are held joined, next to those of one window: 16 KiB of float32. No
measurement of it is on record.
"""


class LinePoolKernel(PoolKernel):
    """Windows of a row from ``g`` on, ``wide`` of them at a time, out of an array ``line``."""

    def linear(self) -> list[str]:
        """Each thread has a part of the rows of results."""
        outer = [
            ("n", self.batch),
            ("c", self.planes),
            *((f"o{i}", self.w.out[i]) for i in range(self.last)),
        ]
        total = self.args.dim(dims.prod(size for _, size in outer))
        plane = f"(n * {self.args.dim(self.planes)} + c) * {self.args.dim(dims.prod(self.w.size))}"
        unit = [
            c_text.decode("u", [name for name, _ in outer], [self.args.dim(s) for _, s in outer]),
            f"const {c_text.ctype(self.dtype)}* plane = {self.x} + {plane};",
            *(line for i in range(self.last) for line in self._range(i)),
            loop("j", "first", "end", *self._joined(), step="TX_LANES"),
            loop("j", "0", "wide", *self._windows(), step="TX_LANES"),
        ]
        size, held = self.args.dim(self.w.out[self.last]), self._held()
        part = [*self._part(held), loop("u", "lo", "hi", *unit)]
        return [c_text.split(total), loop("g", "0", size, *part, step=str(held))]

    def _held(self) -> int:
        """Windows of a row that a line is held of: whole vectors, and a line that lies in the
        innermost cache.
        """
        return max(16, min(256, LINE // self.w.strides[self.last] // 16 * 16))

    def _part(self, held: int) -> list[str]:
        """Declare the windows from ``g`` on, ``wide`` of them, and the line of their elements, of
        which those from ``first`` to ``end`` are inside.
        """
        w, a = self.w, self.last
        stride, span = w.strides[a], (w.kernel[a] - 1) * w.dilations[a] + 1
        size, out = self.args.dim(w.size[a]), self.args.dim(w.out[a])
        length = f"{held * stride + span} + TX_LANES"
        fill = c_text.store(DType.FP32, "line + j", self._neutral(), f"{length} - j")
        found = [
            f"const int64_t wide = {out} - g < {held} ? {out} - g : {held};",
            f"const int64_t b{a} = g * {stride} - {self.args.dim(w.before[a])};",
            f"const int64_t first = b{a} < 0 ? -b{a} : 0;",
            f"const int64_t need = (wide - 1) * {stride} + {span}, left = {size} - b{a};",
            "const int64_t end = left < need ? left : need;",
            f"float line[{length}];",
            loop("j", "0", length, fill, step="TX_LANES"),
        ]
        if w.average:
            count = [*self._range(a), f"counts[o{a} - g] = (float)n{a};"]
            found += [
                f"float counts[{held}] = {{0}};",
                loop(f"o{a}", "g", "g + wide", *count),
            ]
        return found

    def _joined(self) -> list[str]:
        """A vector of the line."""
        kind = c_text.ctype(self.dtype)
        loaded = c_text.load(self.dtype, "row + j", "end - j")
        value = f"tx_to_f({loaded})" if self.dtype in BYTES else loaded
        text = f"const {kind}* row = plane + {self._row()};\nconst vf v = {value};\n{self._join()}"
        for i in reversed(range(self.last)):
            text = loop(f"k{i}", f"f{i}", f"e{i}", text)
        # elements behind the last one inside are neutral
        store = f"tx_store_f32(line + j, tx_select(tx_first(end - j), acc, {self._neutral()}));"
        return [f"vf acc = {self._neutral()};", block("", text), store]

    def _windows(self) -> list[str]:
        """A vector of windows, and its stores."""
        w, a = self.w, self.last

        def tap(k: str) -> list[str]:
            place = f"line + j * {w.strides[a]} + {k} * {w.dilations[a]}"
            return [f"const vf v = tx_load_step({place}, {w.strides[a]});", self._join()]

        if w.kernel[a] <= UNROLLED:
            taps = [block("", *tap(str(k))) for k in range(w.kernel[a])]
        else:
            taps = [loop(f"k{a}", "0", str(w.kernel[a]), *tap(f"k{a}"))]
        others = " * ".join(f"n{i}" for i in range(a)) or "1"
        counts = f"tx_splat((float)({others})) * tx_load_f32(counts + j)"
        names = ["n", "c", *(f"o{i}" for i in range(a)), "(g + j)"]
        return [
            f"vf acc = {self._neutral()};",
            *taps,
            f"acc = acc / ({counts});" if w.average else "",
            *self._finish("acc", names, "wide - j"),
        ]
