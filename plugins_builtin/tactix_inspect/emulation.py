"""Steps of a float32 plan as if they had been built in fewer bits: the plan's own kernels, over
operands that are rounded first.

A build for the CPU rounds the operands of products alone to bfloat16, and so to 8-bit integers; one
for a GPU keeps all tensors in 16 bits, and rounds what a step makes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.contracts.launcher import Step
from tactix.contracts.layer import Layer
from tactix.contracts.reference import computed
from tactix.contracts.region import Body, decode, resolve
from tactix.plan.schema import Plan
from tactix.run.arrays import address_of
from tactix.run.observed import RunningStep
from tactix.select.bench import Bench
from tactix_inspect.replay import meaning_of, operand
from tactix_ops.rules.sixteen import CARRIERS, PRODUCTS, SENSITIVE

OPERANDS: Mapping[str, int] = {
    "Convolution": 2, "ConvTranspose": 2, "MatMul": 2, "Gemm": 2, "Attention": 3,
    "TokenAttention": 3, "LSTM": 3, "GRU": 3, "RNN": 3,
}  # fmt: skip
"""Products, and how many of their inputs are multiplied; what follows is added."""
ROUNDED_WEIGHTS = 2 << 30
"""Bytes of rounded weights that are kept from replay to replay."""
STEPS = 127
"""Of an 8-bit integer on either side of 0."""

Rounding = Callable[[Array], Array]


def to_bf16(x: Array) -> Array:
    """Float32 rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    rounded &= np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def to_fp16(x: Array) -> Array:
    """Float32 rounded to the nearest float16: infinite beyond 65504."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def to_int8(x: Array) -> Array:
    """Float32 rounded to 8-bit integers times one scale, by the largest magnitude that is there."""
    top = float(np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max(initial=0))
    scale = np.float32(top / STEPS or 1.0)
    return np.clip(np.rint(x / scale), -STEPS, STEPS) * scale


ROUNDINGS: Mapping[str, Rounding] = {"bf16": to_bf16, "fp16": to_fp16, "int8": to_int8}


@dataclass(frozen=True)
class LowerStep:
    """A step of the plan that a build could lower. ``layers``: names of the model that
    ``--layer-precision`` takes. ``inputs``: places of inputs that are rounded. ``makes``: whether
    what it makes is, too. ``inner``: whether a product reads what the step makes inside, which its
    kernels do not round: its reference does.
    """

    step: Step[Plan]
    layers: tuple[str, ...]
    inputs: frozenset[int]
    makes: bool = False
    inner: bool = False


class Emulation:
    """``precision``: bf16, fp16 or int8. ``find``: a layer by its key. ``whole``: whether tensors
    between layers are of it, as on a GPU; of float16 they always are, as only a GPU computes in it.
    Raises ConfigError.
    """

    def __init__(self, precision: str, find: Callable[[str], Layer], whole: bool = False) -> None:
        if precision not in ROUNDINGS:
            raise ConfigError(f"no precision {precision!r}", do=f"Choose {', '.join(ROUNDINGS)}")
        self._rounding = ROUNDINGS[precision]
        self._find, self._whole = find, whole or precision == "fp16"
        self._kept: dict[tuple[int, int], Array] = {}
        self._bytes = 0

    def lowerable(self, plan: Plan) -> Iterator[LowerStep]:
        """The steps that would be lowered, in order; of a plan's bodies as well."""
        for p in plan.nested():
            for i, s in enumerate(p.steps):
                lower = None if i in p.produced else self._lower(s)
                if lower is not None:
                    yield lower

    def _lower(self, s: Step[Plan]) -> LowerStep | None:
        nodes = body_of(s)
        floats = [i for i, o in enumerate(s.inputs) if o.spec.dtype is DType.FP32]
        products = [n for n in nodes if n.kind in OPERANDS]
        if self._whole:
            if not nodes or not _carried(nodes) or not _makes_floats(s):
                return None
            named = products or [n for n in nodes if n.kind in PRODUCTS | CARRIERS] or nodes
            inner = any(map(_reads_inner, products))
            return LowerStep(s, _names(s, named), frozenset(floats), makes=True, inner=inner)
        read = {i for n in products for i in n.inputs[: OPERANDS[n.kind]]}
        chosen, inner = read.intersection(floats), any(map(_reads_inner, products))
        if not chosen and not inner:
            return None
        return LowerStep(s, _names(s, products), frozenset(chosen), inner=inner)

    def run(self, running: RunningStep, lower: LowerStep) -> None:
        """The step, lowered. Raises ExecutionError."""
        if lower.inner:
            self._by_reference(running)
        else:
            self._by_kernels(running, lower)
        for o in running.step.outputs if lower.makes else ():
            if o.spec.dtype is DType.FP32:
                running.store(o, self._rounding(running.stored(o)))

    def _by_kernels(self, running: RunningStep, lower: LowerStep) -> None:
        """By the plan's own, over rounded operands."""
        step, addresses, held = running.step, dict[int, int](), list[Array]()
        for i in lower.inputs:
            o = step.inputs[i]
            if o.buffer >= 0 and running.plan.buffers[o.buffer].kind != "weight":
                held.append(Bench.aligned(self._rounding(running.stored(o))))
                addresses[o.buffer] = address_of(held[-1])
        for buffer in self._weights(running.plan, step, lower.inputs):
            held.append(self._weight(running.plan, buffer))
            addresses[buffer] = address_of(held[-1])
        with np.errstate(all="ignore"), running.placed(addresses):
            running.run()

    def _by_reference(self, running: RunningStep) -> None:
        """By the step's reference, with all operands of its products rounded. Raises
        ExecutionError.
        """
        step, meaning = running.step, meaning_of(running.step)
        assert meaning is not None
        layer, attrs = decode(meaning, self._find)
        body = resolve(layer, attrs, running.env)
        assert isinstance(body, Body)
        known = [operand(running, i) for i in range(body.arity)]
        with np.errstate(all="ignore"):
            for n in body.nodes:
                args = [known[i] if i >= 0 else None for i in n.inputs]
                for k in range(min(len(args), OPERANDS.get(_kind(n.layer.key), 0))):
                    x = args[k]
                    args[k] = self._rounding(x) if x is not None and x.dtype == np.float32 else x
                known += computed(n.layer, n.attrs, args, n.name)
        for o, i in zip(step.outputs, body.results, strict=True):
            running.write(o, known[i])

    def _weights(self, plan: Plan, s: Step[Plan], inputs: frozenset[int]) -> Iterator[int]:
        """Buffers of constants that are made of these inputs, or of the step's inputs by more than
        moving them: those stand for weights.
        """
        for name, packed in s.artifact.constants:
            buffer = s.constants.get(name, -1)
            float32 = buffer >= 0 and plan.buffers[buffer].dtype is DType.FP32
            if float32 and (packed.index in inputs or packed.index < 0):
                yield buffer
        for i in inputs:
            b = s.inputs[i].buffer
            if b >= 0 and plan.buffers[b].kind == "weight" and plan.buffers[b].dtype is DType.FP32:
                yield b

    def _weight(self, plan: Plan, buffer: int) -> Array:
        key = (id(plan), buffer)
        if key in self._kept:
            return self._kept[key]
        stored = plan.buffers[buffer]
        shape = tuple(map(int, stored.shape))  # type: ignore[arg-type]
        plain = np.frombuffer(plan.blobs[stored.blob], np.float32).reshape(shape)
        made: Array = Bench.aligned(self._rounding(plain))
        if self._bytes + made.nbytes <= ROUNDED_WEIGHTS:
            self._kept[key] = made
            self._bytes += made.nbytes
        return made


@dataclass(frozen=True)
class LayerOf:
    """A layer inside a step. ``kind``: its name without namespace and version. ``inputs``: where
    each of its inputs stands among the step's; -1 for what is made inside.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]


def body_of(s: Step[Plan]) -> Sequence[LayerOf]:
    """The layers that a step computes, as its reference tells; none where it does not."""
    meaning: Any = meaning_of(s)
    if meaning is None:
        return ()
    body = meaning.get("body")
    if not isinstance(body, Mapping):
        return [LayerOf(s.name, _kind(meaning["layer"]), tuple(range(len(s.inputs))))]
    arity = body["arity"]
    return [
        LayerOf(
            n["name"], _kind(n["layer"]), tuple(i if 0 <= i < arity else -1 for i in n["inputs"])
        )
        for n in body["nodes"]
    ]


def _reads_inner(n: LayerOf) -> bool:
    return -1 in n.inputs[: OPERANDS[n.kind]]


def _kind(key: str) -> str:
    return key.partition("@")[0].rpartition(".")[2]


def _carried(nodes: Sequence[LayerOf]) -> bool:
    """Whether a build for a GPU keeps 16 bits there: products and what reads them, but for layers
    that lose too much.
    """
    return any(n.kind in PRODUCTS | CARRIERS for n in nodes) or not any(
        n.kind in SENSITIVE for n in nodes
    )


def _makes_floats(s: Step[Plan]) -> bool:
    return any(o.spec.dtype is DType.FP32 for o in s.outputs)


def _names(s: Step[Plan], layers: Sequence[LayerOf]) -> tuple[str, ...]:
    """Names of the model for layers of a step: rules may have given these others."""
    told = s.info.get("origin")
    origin = [str(x) for x in told] if isinstance(told, list) else []
    found = dict.fromkeys(name for n in layers for name in origin if name == n.name)
    return tuple(found) or tuple(origin)
