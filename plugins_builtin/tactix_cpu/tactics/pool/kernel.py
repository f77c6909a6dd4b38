"""The text of a pooling kernel in C: windows of channels, or windows of a row side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand
from tactix_codegen.c.scalar import int_range
from tactix_codegen.c.space import strides_in
from tactix_codegen.c.text import Args, block, loop
from tactix_codegen.operations.pool import PoolWindow

UNROLLED = 16
"""Taps of the last axis that are written out at most: it bounds the text, not the speed. No
measurement of it is on record.
"""
BYTES = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class CpuPoolWork:
    """What to pool, and what follows."""

    node: Node
    window: PoolWindow
    epilogue: Epilogue


def operand_strides(node: Node, found: Epilogue, variant: Variant) -> dict[int, tuple[Dim, ...]]:
    """Strides of each operand, by given input, along the stored output. Raises ShapeError."""
    fmt = variant.output_format(0)
    return {
        o.index: strides_in(
            node.given[o.index].spec, variant.input_format(o.index), found.shape, fmt
        )
        for o in found.operands.values()
    }


class PoolKernel:
    """The text of one kernel. Axis ``i`` has names ``o<i>`` (window), ``b<i>`` (its first element),
    ``k<i>`` (tap).
    """

    def __init__(self, args: Args, work: CpuPoolWork, variant: Variant) -> None:
        self.args, self.w, self.epilogue = args, work.window, work.epilogue
        self.format = variant.input_format(0)
        spec = args.node.given[0].spec
        self.dtype, self.batch, self.planes = spec.dtype, spec.shape[0], spec.shape[1]
        self.x = args.input(0)
        self.outputs = [args.output(j) for j in range(len(args.node.outputs))]
        self.strides = operand_strides(args.node, self.epilogue, variant)
        self.last = self.w.rank - 1
        self.out_strides = c_text.contiguous_strides(self.format.storage_shape(self.epilogue.shape))
        self.pixel = self.args.dim(
            {"linear": 1, "nhwc": self.planes}.get(self.format.name, self.format.lanes)
        )

    # Windows

    def _begin(self, axis: int) -> str:
        w = self.w
        return (
            f"const int64_t b{axis} = o{axis} * {w.strides[axis]} "
            f"- {self.args.dim(w.before[axis])};"
        )

    def _range(self, axis: int) -> list[str]:
        """Declare the first tap inside, the end of those inside, and how many count."""
        w, a = self.w, axis
        size = self.args.dim(w.size[a])
        out = [
            self._begin(a),
            f"const int64_t f{a} = tx_first_tap(b{a}, {w.dilations[a]});",
            f"const int64_t e{a} = tx_end_tap(b{a}, {w.dilations[a]}, {size}, {w.kernel[a]});",
        ]
        if w.with_pads:
            padded = self.args.dim(w.size[a] + w.after[a])
            out.append(
                f"const int64_t n{a} = tx_end_tap(b{a}, {w.dilations[a]}, {padded}, {w.kernel[a]});"
            )
        elif w.average:
            out.append(f"const int64_t n{a} = e{a} - f{a};")
        return out

    def _inside(self) -> tuple[str, str]:
        """Windows of the last axis that lie inside: from the first of them to behind the last."""
        w, a = self.w, self.last
        span = (w.kernel[a] - 1) * w.dilations[a] + 1
        first = dims.dmin(dims.ceildiv(w.before[a], w.strides[a]), w.out[a])
        end = f"({self.args.dim(w.size[a] + w.before[a] - span)} + {w.strides[a]}) / {w.strides[a]}"
        return self.args.dim(first), end

    def _taps(self, element: str, full: bool, single: bool = False) -> list[str]:
        """Join every tap inside to ``acc``, or to the number ``one`` if ``single``.

        ``element``: a form of the tap's pointer ``{p}``. ``full``: all taps of the last axis are
        inside.
        """
        w, a = self.w, self.last
        kind, join = ("float", self._join("one", "TX_MAX")) if single else ("vf", self._join())

        def tap(k: str) -> list[str]:
            return [
                (
                    f"const {kind} v = "
                    f"{element.format(p=f'row + {k} * {w.dilations[a]} * {self.pixel}')};"
                ),
                join,
            ]

        if full and w.kernel[a] <= UNROLLED:
            text = "\n".join(block("", *tap(str(k))) for k in range(w.kernel[a]))
        else:
            first, end = ("0", str(w.kernel[a])) if full else (f"f{a}", f"e{a}")
            text = loop(f"k{a}", first, end, *tap(f"k{a}"))
        text = f"const {c_text.ctype(self.dtype)}* row = plane + {self._row()};\n{text}"
        for i in reversed(range(a)):
            text = loop(f"k{i}", f"f{i}", f"e{i}", text)
        return [block("", text)]

    def _join(self, acc: str = "acc", largest: str = "tx_max") -> str:
        return f"{acc} = {acc} + v;" if self.w.average else f"{acc} = {largest}({acc}, v);"

    def _neutral(self) -> str:
        """The vector that changes nothing that it is joined to."""
        return "tx_zero()" if self.w.average else f"tx_splat({self._lowest()})"

    def _row(self) -> str:
        """Offset in the plane of the last axis's first tap, at the taps of the other axes."""
        place = ""
        for i in range(self.w.rank):
            here = f"b{i}" if i == self.last else f"b{i} + k{i} * {self.w.dilations[i]}"
            place = f"({place}) * {self.args.dim(self.w.size[i])} + {here}" if place else here
        return f"({place}) * {self.pixel}"

    def _count(self, full: bool) -> str:
        """The number of elements that an average is over."""
        counts = [f"n{i}" for i in range(self.w.rank)]
        if full:
            counts[-1] = str(self.w.kernel[-1])
        return " * ".join(counts)

    def _lowest(self) -> str:
        """The number that no element is below."""
        return f"{int_range(self.dtype)[0]}.0f" if self.dtype in BYTES else "-__builtin_inff()"

    # Results

    def _finish(self, value: str, names: Sequence[str], count: str, keep: str = "") -> list[str]:
        """Epilogue and stores at the storage position ``names``, the last being where the vector
        begins.
        """

        def place(o: EpilogueOperand) -> str:
            strides = self.strides[o.index]
            base = f"{self.args.input(o.index)} + {self.args.offset(strides, names)}"
            return (
                c_text.splat(o.dtype, base)
                if strides[-1] == 0
                else c_text.load(o.dtype, base, count or keep)
            )

        sums = f"tx_to_i({value})" if self.dtype in BYTES else value
        code = self.epilogue.emit([sums], place, tag="t")
        out = list(code.statements)
        for y, name, t in zip(self.outputs, code.results, code.dtypes, strict=True):
            held = c_text.keep(t, name, keep) if keep else name
            out.append(
                c_text.store(t, f"{y} + {self.args.offset(self.out_strides, names)}", held, count)
            )
        return out

    # Channels in vectors

    def channels(self) -> list[str]:
        """nhwc and ``cB``: windows of the last axis one after the other, those at the ends with
        fewer taps.
        """
        blocks = self.format.lanes > 1
        planes = [("c", dims.ceildiv(self.planes, self.format.lanes))] if blocks else []
        outer = [("n", self.batch), *planes, *((f"o{i}", self.w.out[i]) for i in range(self.last))]
        total = self.args.dim(dims.prod(size for _, size in outer))
        area = self.args.dim(dims.prod(self.w.size))
        plane = f"(n * {self.args.dim(planes[0][1])} + c) * {area}" if blocks else f"n * {area}"
        o, size = f"o{self.last}", self.args.dim(self.w.out[self.last])
        first, end = self._inside()
        body = [
            c_text.decode("u", [name for name, _ in outer], [self.args.dim(s) for _, s in outer]),
            f"const {c_text.ctype(self.dtype)}* plane = {self.x} + ({plane}) * {self.pixel};",
            *(line for i in range(self.last) for line in self._range(i)),
            f"const int64_t inside = {end}, end = inside < {size} ? inside : {size};",
            f"int64_t {o} = 0;",
            block(f"for (; {o} < {first}; {o}++)", *self._range(self.last), *self._vectors(False)),
            block(f"for (; {o} < end; {o}++)", self._begin(self.last), *self._vectors(True)),
            block(f"for (; {o} < {size}; {o}++)", *self._range(self.last), *self._vectors(False)),
        ]
        return [c_text.split(total), loop("u", "lo", "hi", *body)]

    def _vectors(self, full: bool) -> list[str]:
        if self.format.lanes > 1:
            exact = dims.mod(self.planes, self.format.lanes) == 0
            keep = "" if exact else f"({self.args.dim(self.planes)} - c * TX_LANES)"
            names = ["n", "c", *(f"o{i}" for i in range(self.w.rank)), "0"]
            return self._vector("0", names, "", keep, full)
        c = self.args.dim(self.planes)
        names = ["n", *(f"o{i}" for i in range(self.w.rank)), "c"]
        return [
            "int64_t c = 0;",
            block(
                f"for (; c + TX_LANES <= {c}; c += TX_LANES)",
                *self._vector("c", names, "", "", full),
            ),
            block(f"if (c < {c})", *self._vector("c", names, f"{c} - c", "", full)),
        ]

    def _vector(
        self, channel: str, names: Sequence[str], count: str, keep: str, full: bool
    ) -> list[str]:
        element = c_text.load(self.dtype, "{p}" if channel == "0" else "{p} + c", count)
        element = f"tx_to_f({element})" if self.dtype in BYTES else element
        mean = f"acc = acc / (float)({self._count(full)});" if self.w.average else ""
        return [
            f"vf acc = {self._neutral()};",
            *self._taps(element, full),
            mean,
            *self._finish("acc", names, count, keep),
        ]

    # Windows in vectors

    def linear(self) -> list[str]:
        """Windows of a row side by side; those that are not wholly inside, and all of floats of 16
        bits, are computed one after the other.
        """
        outer = [
            ("n", self.batch),
            ("c", self.planes),
            *((f"o{i}", self.w.out[i]) for i in range(self.last)),
        ]
        total = self.args.dim(dims.prod(size for _, size in outer))
        size = self.args.dim(self.w.out[self.last])
        first, end = self._inside()
        plane = f"(n * {self.args.dim(self.planes)} + c) * {self.args.dim(dims.prod(self.w.size))}"
        body = [
            c_text.decode("u", [name for name, _ in outer], [self.args.dim(s) for _, s in outer]),
            f"const {c_text.ctype(self.dtype)}* plane = {self.x} + {plane};",
            *(line for i in range(self.last) for line in self._range(i)),
            f"const int64_t inside = {end}, end = inside < {size} ? inside : {size};",
            block(f"for (int64_t g = 0, w; g < {size}; g += w)", *self._group(first, size)),
        ]
        return [c_text.split(total), loop("u", "lo", "hi", *body)]

    def _group(self, first: str, size: str) -> list[str]:
        """Up to a vector of windows from ``g`` on, ``w`` of them; the last vector inside overlaps
        the one before.
        """
        names = ["n", "c", *(f"o{i}" for i in range(self.last)), "g"]
        singles = [
            f"const int64_t stop = g < {first} ? {first} : g < end ? end : {size};",
            "w = stop - g < TX_LANES ? stop - g : TX_LANES;",
            "float part[TX_LANES] = {0};",
            loop(f"o{self.last}", "g", "g + w", *self._range(self.last), *self._single()),
            "acc = tx_load_f32(part);",
        ]
        if self.dtype in (DType.FP16, DType.BF16):
            return [f"vf acc = {self._neutral()};", *singles, *self._finish("acc", names, "w")]
        mean = f"acc = acc / (float)({self._count(True)});" if self.w.average else ""
        load = f"tx_load_step{f'_{self.dtype.value}' if self.dtype in BYTES else ''}"
        taps = self._taps(f"{load}({{p}}, {self.w.strides[self.last]})", True)
        return [
            f"const int whole = g >= {first} && g < end && end - TX_LANES >= {first};",
            f"vf acc = {self._neutral()};",
            block(
                "if (whole)",
                "w = TX_LANES;",
                "g = g + TX_LANES <= end ? g : end - TX_LANES;",
                f"const int64_t o{self.last} = g;",
                self._begin(self.last),
                *taps,
                mean,
            ),
            block("else", *singles),
            *self._finish("acc", names, "w"),
        ]

    def _single(self) -> list[str]:
        """One window, into ``part``."""
        a, place = self.last, "*({p})"
        element = (
            place if self.dtype in (DType.FP32, *BYTES) else f"tx_from_{self.dtype.value}({place})"
        )
        value = f"one / (float)({self._count(False)})" if self.w.average else "one"
        return [
            f"float one = {'0.0f' if self.w.average else self._lowest()};",
            *self._taps(element, False, single=True),
            f"part[o{a} - g] = {value};",
        ]
