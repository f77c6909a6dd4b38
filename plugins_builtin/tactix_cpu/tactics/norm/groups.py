"""Instance and group normalisation of images in ``cB``, in C, with a pointwise epilogue; f32, f16
and bf16.

A vector holds channels of one pixel, so that sums of single channels need nothing across lanes;
those of a group's channels are joined once. Blocks whose channels share groups are one unit. Mean
and variance are taken in two passes over them, so that nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.space import Space, collapse, strides_in
from tactix_codegen.c.text import Args, block, loop
from tactix_codegen.operations import rows

FLOATS = (DType.FP32, DType.FP16, DType.BF16)
_MOST_CHANNELS = 8192
"""Of one unit: two numbers of each are kept on the stack, 64 KiB."""
_WAYS = 4
"""Independent accumulators: an addition takes about 4 cycles (Agner Fog, Instruction tables)."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GroupNormTactic()]


@dataclass(frozen=True)
class GroupNormWork:
    """``each``: channels of a group. ``span``: blocks of a unit, the fewest whose channels are
    those of whole groups. ``parameters``: the given inputs that hold scale and bias.
    """

    node: Node
    epilogue: Epilogue
    channels: int
    each: int
    span: int
    parameters: tuple[int, ...]
    epsilon: float


class GroupNormTactic(Tactic[GroupNormWork]):
    """One variant: images, and operands as large, in ``cB``."""

    key = "tactix.c_group_norm@1"
    implements = tuple(f"tactix.{name}@1" for name in rows.PER_CHANNEL)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> GroupNormWork | Reject:
        found, anchor, x = epilogue(node), node.anchor, node.given[0].spec
        if isinstance(found, Reject):
            return found
        assert anchor is not None
        dtypes = [x.dtype, *(node.given[i].spec.dtype for i in anchor.inputs[1:])]
        if any(t not in FLOATS for t in dtypes):
            return Reject("channels or parameters are not of f32, f16 or bf16")
        if x.rank < 3 or not isinstance(x.shape[1], int) or not x.shape[1]:
            return Reject("no image with a known number of channels")
        channels = x.shape[1]
        grouped = anchor.layer.name == "GroupNormalization"
        each = channels // anchor.attrs.num_groups if grouped else 1
        span = min(math.lcm(each, device.lanes), -(-channels // device.lanes) * device.lanes)
        if span > _MOST_CHANNELS:
            return Reject(f"{span} channels share groups and vectors, of {_MOST_CHANNELS} at most")
        parameters = tuple(anchor.inputs[1:])
        return GroupNormWork(
            node, found, channels, each, span // device.lanes, parameters, anchor.attrs.epsilon
        )

    def variants(self, work: GroupNormWork, device: DeviceProperties) -> Sequence[Variant] | Reject:
        fmt = blocked(device.lanes)
        formats = [fmt, *[LINEAR] * (len(work.node.given) - 1)]
        for o in work.epilogue.operands.values():
            formats[o.index] = fmt if o.is_full else LINEAR
        made = Variant.of(formats, [fmt] * len(work.node.outputs))
        try:
            strides = _operand_strides(work, made)
        except ShapeError as e:
            return Reject(e.what)
        if any(s[-1] not in (0, 1) for s in strides.values()):
            return Reject("channels of an operand do not lie side by side")
        return [made]

    def cost(self, work: GroupNormWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: GroupNormWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _GroupKernel(c_text.Args(work.node), work, variant)
        return c_text.kernel(writer.args, writer.body(), ctx)


def _operand_strides(work: GroupNormWork, variant: Variant) -> dict[int, tuple[Dim, ...]]:
    """Strides of each operand, by given input, along the stored output. Raises ShapeError."""
    node, fmt = work.node, variant.output_format(0)
    return {
        o.index: strides_in(
            node.given[o.index].spec, variant.input_format(o.index), work.epilogue.shape, fmt
        )
        for o in work.epilogue.operands.values()
    }


class _GroupKernel:
    """The text of one kernel: ``n`` is a sample, ``first`` a unit's first block, ``b`` one of its
    blocks, ``s0``.. a pixel.

    ``mean`` and ``scale`` have a number for each channel of the unit: at first sums of the channel,
    then what its group has.
    """

    def __init__(self, args: Args, work: GroupNormWork, variant: Variant) -> None:
        self.args, self.w = args, work
        spec, fmt = work.node.given[0].spec, variant.input_format(0)
        self.dtype, self.lanes = spec.dtype, fmt.lanes
        self.blocks = -(-work.channels // self.lanes)
        self.is_exact = work.channels % self.lanes == 0
        self.x, self.batch = args.input(0), spec.shape[0]
        self.outputs = [args.output(j) for j in range(len(work.node.outputs))]
        self.area = dims.prod(spec.shape[2:])
        self.strides = _operand_strides(work, variant)
        self.loops = self._pixels(c_text.contiguous_strides(fmt.storage_shape(spec.shape)))

    def _pixels(self, own: Sequence[Dim]) -> Space:
        """Loops over the pixels, with strides of the image and of the operands."""
        sizes = self.w.node.given[0].spec.shape[2:]
        return collapse(sizes, [own[2:-1], *(s[2:-1] for s in self.strides.values())])

    def body(self) -> list[str]:
        """The statements for every unit, shared between threads."""
        units, n = -(-self.blocks // self.w.span), self.args.dim(self.batch)
        numbers = self.w.span * self.lanes
        plane = f"{self.args.dim(self.area)} * {self.lanes}"
        pointer = f"const {c_text.ctype(self.dtype)}* p"
        return [
            c_text.split(f"{n} * {units}"),
            loop(
                "u",
                "lo",
                "hi",
                f"const int64_t n = u / {units}, first = u % {units} * {self.w.span};",
                f"const int64_t rest = {self.blocks} - first;",
                f"const int64_t blocks = rest < {self.w.span} ? rest : {self.w.span};",
                f"const int64_t rest_channels = {self.w.channels} - first * {self.lanes};",
                f"const int64_t channels = rest_channels < {numbers} ? rest_channels : {numbers};",
                f"float mean[{numbers}], scale[{numbers}];",
                loop("b", "0", "blocks", f"{pointer} = {self._plane(plane)};", *self._sums()),
                self._joined("mean", "sum / count"),
                loop("b", "0", "blocks", f"{pointer} = {self._plane(plane)};", *self._squares()),
                self._joined(
                    "scale", f"1.0f / sqrtf(sum / count + {float_literal(self.w.epsilon)})"
                ),
                loop("b", "0", "blocks", *self._map()),
            ),
        ]

    def _plane(self, plane: str) -> str:
        return f"{self.x} + (n * {self.blocks} + first + b) * {plane}"

    def _sums(self) -> list[str]:
        """The sum of each channel of a block."""
        return [*self._sweep("{v}"), f"tx_store_f32(mean + b * {self.lanes}, t0);"]

    def _squares(self) -> list[str]:
        return [
            f"const vf m = tx_load_f32(mean + b * {self.lanes});",
            *self._sweep("({v} - m) * ({v} - m)"),
            f"tx_store_f32(scale + b * {self.lanes}, t0);",
        ]

    def _sweep(self, term: str) -> list[str]:
        """``t0``: the sum over the plane ``p`` of what ``term`` makes of a vector ``v``."""
        area, names = self.args.dim(self.area), [f"t{w}" for w in range(_WAYS)]

        def at(place: str, name: str) -> str:
            load = c_text.load(self.dtype, f"p + ({place}) * {self.lanes}")
            return f"{{ const vf v = {load}; {name} += {term.format(v='v')}; }}"

        return [
            f"vf {', '.join(f'{t} = tx_zero()' for t in names)};",
            "int64_t i = 0;",
            block(
                f"for (; i + {_WAYS} <= {area}; i += {_WAYS})",
                *(at(f"i + {w}", t) for w, t in enumerate(names)),
            ),
            block(f"for (; i < {area}; i++)", at("i", "t0")),
            "t0 = (t0 + t1) + (t2 + t3);",
        ]

    def _joined(self, name: str, value: str) -> str:
        """For every group the sum of its channels' numbers, and ``value`` of that in their place.

        Channels that fill up the last block keep their own, sums of zeros.
        """
        each = self.w.each
        return loop(
            "c",
            "0",
            "channels",
            f"const float count = (float){each} * (float){self.args.dim(self.area)};",
            "float sum = 0;",
            loop("k", "0", str(each), f"sum += {name}[c + k];"),
            f"const float joint = {value};",
            loop("k", "0", str(each), f"{name}[c + k] = joint;"),
            step=each,
        )

    def _map(self) -> list[str]:
        """Results of a block: what belongs to its channels, then all its pixels."""
        scale, bias = (self._parameter(i) for i in self.w.parameters)
        *_, last = names = [f"s{i}" for i in range(len(self.loops.sizes))]
        text = block(
            f"for (int64_t {last} = 0; {last} < {self.args.dim(self.loops.sizes[-1])}; {last}++)",
            *self._pixel(names),
        )
        for i in reversed(range(len(names) - 1)):
            text = loop(names[i], "0", self.args.dim(self.loops.sizes[i]), text)
        return [
            f"const int64_t block = first + b, begin = (n * {self.blocks} + block) "
            f"* {self.args.dim(self.area)} * {self.lanes};",
            f"const vf m = tx_load_f32(mean + b * {self.lanes});",
            f"const vf factor = tx_load_f32(scale + b * {self.lanes}) * {scale};",
            f"const vf term = {bias};",
            text,
        ]

    @property
    def _count(self) -> str:
        """Channels of this block and behind; empty where all blocks are full."""
        return "" if self.is_exact else f"({self.w.channels} - block * {self.lanes})"

    def _parameter(self, index: int) -> str:
        dtype = self.w.node.given[index].spec.dtype
        pointer = f"{self.args.input(index)} + block * {self.lanes}"
        return c_text.load(dtype, pointer, self._count)

    def _pixel(self, names: Sequence[str]) -> list[str]:
        own, *others = self.loops.strides
        place = self.args.sum("begin", self.args.offset(own, names))
        by_index = dict(zip(self.strides, others, strict=True))

        def operand(o: EpilogueOperand) -> str:
            batch, channel, *_, lane = self.strides[o.index]
            walked = [batch, channel, *by_index[o.index]]
            offset = self.args.offset(walked, ["n", "block", *names])
            pointer = f"{self.args.input(o.index)} + {offset}"
            if lane == 0:
                return c_text.splat(o.dtype, pointer)
            return c_text.load(o.dtype, pointer, self._count)

        code = self.w.epilogue.emit(["y"], operand)
        out = [
            f"const vf v = {c_text.load(self.dtype, f'{self.x} + {place}')};",
            "const vf y = (v - m) * factor + term;",
            *code.statements,
        ]
        for target, name, t in zip(self.outputs, code.results, code.dtypes, strict=True):
            held = name if self.is_exact else c_text.keep(t, name, self._count)
            out.append(c_text.store(t, f"{target} + {place}", held))
        return out
