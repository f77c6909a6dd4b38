"""Running a plan without its host code: numpy references of installed layers in place of the steps
that have some.

A step's ``info`` tells what it computes. Weights that a kernel holds in another form are taken back
from there; a cast that lost something stays, as the kernel uses the same values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import AllocationError, PlanCompatibilityError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import Binary, KernelArtifact, Packed
from tactix.contracts.launcher import Operand, Step
from tactix.plan.schema import Buffer, Plan, Requirement, validate

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_STEPS = 64
"""Of one packing; what tactics write has few."""

MOST_TIMES = 16
"""Bytes of plain weights for one of the file."""

ALIGNMENT = 64

ON_REFERENCES = "on_references"
"""In ``Plan.meta``: it runs without the code that it was built with."""

NUMPY = "tactix.numpy@1"

UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    ImportError,
)
"""What damaged packing raises."""

NOTHING = "nothing"
"""The name of an empty blob."""


def on_references(plan: Plan, steps: Iterable[Step]) -> Plan:
    """The plan with references in place of those steps, of it and its bodies.

    Raises PlanCompatibilityError for a plan of another device, a stripped one, or a step without a
    reference or weights for it; AllocationError, PlanFormatError.
    """
    steps, kind = list(steps), plan.device.get("kind", "cpu")
    if steps and kind != "cpu":
        raise PlanCompatibilityError(
            "there are references on the CPU alone", reasons=(f"the plan is for {kind}",)
        )
    if plan.stripped:
        raise PlanCompatibilityError(
            "references need its weights, which were left out", do="Refit the plan first"
        )
    try:
        return validate(Rewriting(plan, steps).run())
    except MemoryError as e:
        raise AllocationError(
            "no memory for the weights of references", who=plan.name, why=str(e)
        ) from e


class Rewriting:
    """Of one file: to its blobs weights in their plain form are added, and those that nothing needs
    any more leave.
    """

    def __init__(self, plan: Plan, steps: Iterable[Step]) -> None:
        self._whole, self._replaced = plan, {id(s) for s in steps}
        self._blobs = {**plan.blobs, NOTHING: b""}
        self._bytes_left = MOST_TIMES * sum(
            memoryview(content).nbytes for content in plan.blobs.values()
        )
        self._plain: dict[Any, str] = {}
        self._before, self._after = set[str](), {""}

    def run(self) -> Plan:
        """All of it, marked as what it is."""
        out = self._plan(self._whole)
        out = replace(out, meta={**out.meta, ON_REFERENCES: True})
        for name in self._before - self._after:
            self._blobs.pop(name, None)
        return out

    def _plan(self, plan: Plan) -> Plan:
        buffers = list(plan.buffers)
        steps = tuple(self._step(s, buffers) for s in plan.steps)
        read = {b for s in steps for b in (*(o.buffer for o in s.inputs), *s.constants.values())}
        left = tuple(
            _empty(b) if b.kind == "weight" and i not in read else b for i, b in enumerate(buffers)
        )
        self._before |= {b.blob for b in plan.buffers}
        self._after |= {b.blob for b in left}
        found = (*plan.requirements, *_requirements(plan.meta.get("references")))
        meta = {
            k: v for k, v in plan.meta.items() if k not in ("refit", "stripped")
        }  # constants that are gone
        return replace(
            plan, buffers=left, steps=steps, blobs=self._blobs, requirements=found, meta=meta
        )

    def _step(self, s: Step, buffers: list[Buffer]) -> Step:
        plans = tuple(map(self._plan, s.plans))
        if id(s) not in self._replaced:
            return replace(s, plans=plans)
        params = s.info.get("reference")
        if not isinstance(params, dict) or plans:
            raise PlanCompatibilityError("it holds no reference", who=f"step {s.name!r}")
        _check_types(s)
        inputs = tuple(self._input(s, i, buffers) for i in range(len(s.inputs)))
        if isinstance(code := s.artifact.code, Binary):
            self._before |= {code.digest, sha256(code.source.encode()).hexdigest()}
        info = {**s.info, "tactic": NUMPY, "source": "numpy", "variant": "default", "seconds": None}
        del info["reference"]
        return Step(s.name, KernelArtifact(NUMPY, params=params), inputs, s.outputs, info=info)

    def _input(self, s: Step, index: int, buffers: list[Buffer]) -> Operand:
        """An input as it is, or with the weight that one of the step's packed constants was made
        of.
        """
        o = s.inputs[index]
        if o.buffer >= 0:
            return o
        packed, buffer = _kept(s, index)
        stored, spec = buffers[buffer], o.spec
        blob = self._unpacked(stored, packed, spec, f"step {s.name!r}: input {index}")
        buffers.append(
            Buffer("weight", stored.name, spec.dtype, spec.shape, LINEAR, spec.nbytes(), blob=blob)
        )
        return Operand(len(buffers) - 1, spec, LINEAR)

    def _unpacked(self, stored: Buffer, packed: Packed, spec: TensorSpec, who: str) -> str:
        """The name of the blob with the plain weight."""
        key = (stored.blob, packed.steps, spec.dtype, spec.shape)
        if key not in self._plain:
            try:
                self._bytes_left -= math.prod(spec.at({})) * spec.dtype.itemsize
                if self._bytes_left < 0:
                    raise ValueError(
                        f"weights would take more than {MOST_TIMES} times what the plan holds"
                    )
                found = unpacked(_content(stored, self._blobs), packed.steps, spec)
            except UNREADABLE as e:
                raise PlanCompatibilityError(
                    "its weight cannot be had", who=who, reasons=(str(e)[:200],)
                ) from e
            name = self._plain[key] = f"{stored.blob} unpacked {len(self._plain)}"
            self._blobs[name] = _aligned(found)
        return self._plain[key]


def _kept(s: Step, index: int) -> tuple[Packed, int]:
    """Which of a step's packed constants was made of an input, the one that has lost least, and its
    buffer. Raises PlanCompatibilityError where there is none.
    """
    known = [
        (p, s.constants[name])
        for name, p in s.artifact.constants
        if p.index == index and name in s.constants
    ]
    if not known:
        raise PlanCompatibilityError("it holds no weight", who=f"step {s.name!r}: input {index}")
    return min(known, key=lambda k: sum(name == "cast" for name, _ in k[0].steps))


def weight_operand(plan: Plan, s: Step, index: int) -> NDArray[Any]:
    """The plain form of a constant input that a step has packed alone, but for what casts have
    lost. Raises PlanCompatibilityError.
    """
    packed, buffer = _kept(s, index)
    try:
        return unpacked(
            _content(plan.buffers[buffer], plan.blobs), packed.steps, s.inputs[index].spec
        )
    except UNREADABLE as e:
        raise PlanCompatibilityError(
            "its weight cannot be had",
            who=f"step {s.name!r}: input {index}",
            reasons=(str(e)[:200],),
        ) from e


def _empty(b: Buffer) -> Buffer:
    """A weight that no step reads."""
    return Buffer("weight", b.name, DType.UINT8, (0,), LINEAR, 0, blob=NOTHING)


def _requirements(told: Any) -> tuple[Requirement, ...]:
    """Who provides the layers, as the plan's ``meta`` has it."""
    rows = told.items() if isinstance(told, Mapping) else ()
    texts = [
        (key, *row)
        for key, row in rows
        if isinstance(row, list) and all(isinstance(x, str) for x in row)
    ]
    return tuple(Requirement(key, *row) for key, *row in texts if len(row) == 2)


def _check_types(s: Step) -> None:
    try:
        for o in (*s.inputs, *s.outputs):
            _ = o.spec.dtype.numpy
    except ImportError as e:
        raise PlanCompatibilityError(
            f"no numpy type for {o.spec.dtype.value}", who=s.name, reasons=(str(e),)
        ) from e


def _content(stored: Buffer, blobs: Mapping[str, Any]) -> NDArray[Any]:
    shape = tuple(map(int, stored.shape))  # type: ignore[arg-type]
    return np.frombuffer(blobs[stored.blob], _numeric(stored.dtype)).reshape(shape)


def _numeric(dtype: DType) -> np.dtype[Any]:
    if dtype.on_host:
        raise TypeError(f"a weight of {dtype.value}")
    return dtype.numpy


def _aligned(x: NDArray[Any]) -> memoryview:
    """The bytes of an array where a device can read them in place."""
    padded = np.empty(x.nbytes + ALIGNMENT, np.uint8)
    start = -padded.ctypes.data % ALIGNMENT
    out = padded[start : start + x.nbytes]
    np.copyto(out.view(x.dtype).reshape(x.shape), x)
    return out.data


# -- packing, backwards --------------------------------------------------------------------------


Plain = tuple[tuple[int, ...], "np.dtype[Any]"]
"""Shape and dtype."""


def unpacked(x: NDArray[Any], steps: Sequence[tuple[str, Any]], spec: TensorSpec) -> NDArray[Any]:
    """What ``Packed.apply`` made ``x`` of, of that spec, but for what casts have lost.

    Raises ValueError, TypeError, KeyError or IndexError if the steps do not make such an array of
    such a spec.
    """
    if len(steps) > MOST_STEPS:
        raise ValueError(f"{len(steps)} steps of packing")
    before: list[Plain] = []
    now: Plain = tuple(map(int, spec.shape)), _numeric(spec.dtype)  # type: ignore[arg-type]
    for name, what in steps:
        before.append(now)
        now = _AFTER[name](now, what)
    if (x.shape, x.dtype) != now:
        raise ValueError(f"packed it is {x.dtype}{x.shape}, not {now[1]}{now[0]}")
    for (name, what), was in zip(reversed(steps), reversed(before), strict=True):
        x = _BACK[name](x, what, was)
        if (x.shape, x.dtype) != was:
            raise ValueError(f"{name} {what} does not make {x.dtype}{x.shape} of {was[1]}{was[0]}")
    return x


def _reshaped(now: Plain, what: Any) -> Plain:
    shape, dtype = now
    sizes = (what,) if isinstance(what, int) else tuple(what)
    rest = math.prod(n for n in sizes if n != -1)
    return tuple(math.prod(shape) // rest if n == -1 else n for n in sizes), dtype


def _padded(now: Plain, what: Any) -> Plain:
    shape, dtype = now
    return tuple(before + n + after for n, (before, after) in zip(shape, what, strict=True)), dtype


def _cropped(x: NDArray[Any], what: Any, was: Plain) -> NDArray[Any]:
    return x[tuple(slice(before, before + n) for n, (before, _) in zip(was[0], what, strict=True))]


_AFTER: Mapping[str, Any] = {
    "cast": lambda now, what: (now[0], _numeric(DType.of(what))),
    "reshape": _reshaped,
    "transpose": lambda now, what: (tuple(now[0][a] for a in what), now[1]),
    "pad": _padded,
}
_BACK: Mapping[str, Any] = {
    "cast": lambda x, what, was: x.astype(was[1]),
    "reshape": lambda x, what, was: x.reshape(was[0]),
    "transpose": lambda x, what, was: x.transpose(np.argsort(what)),
    "pad": _cropped,
}
