"""Calibrators: the same values give the same ranges, and these are fit to quantise by."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.calibrator import Calibrator
from tactix_sdk.testing.report import Broken, NothingToRun, check, child
from tactix_sdk.testing.subject import Subject

COUNT = 4040
SPLITS = (1, 7, 101)
DTYPES = ("f16", "bf16", "f64")
NEAR = 0.01
"""Of what a range reaches: by so much those of the same values may differ."""
FURTHER = 1 << 20
NOTHING = ("nothing", "not a number")
Ranges = dict[str, tuple[float, float]]
CODE = """\
import json
from tactix_sdk.testing import Subject, ranges
print(json.dumps(ranges.found(Subject({dist!r}), {key!r})))
"""


@check("calibrator")
def calibrator(subject: Subject) -> str:
    """The same values give the same ranges in any batches; these are finite, hold the values and
    leave out NaN.
    """
    entries = subject.entries("calibrators", subject.fresh("build"))
    if not entries:
        raise NothingToRun("the pack has no calibrators")
    for e in entries:
        code = CODE.format(dist=subject.dist, key=e.key)
        first, second = (child(code, PYTHONHASHSEED=seed) for seed in ("1", "4242"))
        if first != second:
            raise Broken(f"{e.key} finds other ranges in another process", code)
        try:
            judge(json.loads(first))
        except Broken as b:
            raise Broken(f"{e.key}: {b}", code) from b
    return f"{len(entries)} calibrators, {len(values())} kinds of values"


def values() -> dict[str, Any]:
    """What tensors hold, float32: of both signs, of one with few far out, constant, zeros."""
    import numpy as np

    rng = np.random.default_rng(4)
    normal = (3 * rng.standard_normal(COUNT) + 1).astype(np.float32)
    return {
        "normal": normal,
        "sorted": np.sort(normal),
        "positive": np.exp(2 * normal / 3),
        "negative": -5 - np.abs(normal),
        "coarse": _coarse(normal),
        "further": normal * FURTHER,
        "constant": np.full(COUNT, 0.1, np.float32),
        "negative constant": np.full(COUNT, -7, np.float32),
        "zeros": np.zeros(COUNT, np.float32),
    }


def _coarse(x: Any) -> Any:
    """Values that every dtype has."""
    import numpy as np

    return (np.rint(x * 8) / 8).astype(np.float32)


def found(subject: Subject, key: str) -> Ranges:
    """Ranges of ``KIND in N``, N being batches, and of other cases. Raises Broken if two
    calibrators differ.
    """
    first, second = (subject.fresh("build").calibrators[key] for _ in range(2))
    _has_batches(first)
    for turn, _ in enumerate(observing(first), 1):
        if turn & (turn - 1) == 0:  # rarer and rarer: it takes as long as there are tensors
            _ranges(first)
    if _ranges(second):
        raise Broken(
            f"{key}: a new one has ranges before it has seen anything: "
            "it shares them with another one"
        )
    for _ in observing(second):
        pass
    if repr(_ranges(first)) != repr(_ranges(second)):  # NaN is judged later
        raise Broken(
            f"{key}: ranges are others if they were asked for between batches, "
            "or in another calibrator"
        )
    return _ranges(first)


def _has_batches(one: Calibrator) -> None:
    """Raises Broken where they are no arrays by name."""
    for batch in islice(one.batches(), 2):
        if not isinstance(batch, Mapping) or not all(
            isinstance(n, str) and hasattr(x, "shape") for n, x in batch.items()
        ):
            raise Broken(f"{one.key}: a batch is {batch!r}, not arrays by name")


def _ranges(one: Calibrator) -> Ranges:
    return {name: (float(low), float(high)) for name, (low, high) in one.ranges().items()}


def observing(one: Calibrator) -> Iterator[None]:
    """Show everything, batch after batch of all tensors in turns."""
    todo = list(_tensors().items())
    while todo:
        todo = [(name, batches) for name, batches in todo if _shown(one, name, batches)]
        yield


def _tensors() -> dict[str, Iterator[Any]]:
    """Batches by tensor name."""
    import numpy as np

    from tactix.base.dtypes import DType

    kinds = values()
    out = {f"{kind} in {n}": _split(x, n) for kind, x in kinds.items() for n in SPLITS}
    out |= {f"coarse as {d}": _split(kinds["coarse"].astype(DType(d).numpy), 7) for d in DTYPES}
    out["taken back"] = _taken_back(kinds["normal"])
    odd = np.insert(
        kinds["normal"], [5, 2000, 3000, 3001], [np.nan, np.inf, -np.inf, np.nan]
    ).astype(np.float32)
    out["with odd ones"] = _split(odd, 7)
    out["nothing"] = iter([np.zeros((0, 3), np.float32)] * 3)
    out["not a number"] = iter([np.full(9, np.nan, np.float32)] * 2)
    return out


def _split(x: Any, batches: int) -> Iterator[Any]:
    """Nothing, and parts of several shapes that cannot be written."""
    import numpy as np

    for i, part in enumerate((x[:0], *np.array_split(x, batches))):
        shaped = part.copy().reshape((-1, 1) if i % 2 else (1, -1, 1))
        shaped.flags.writeable = False
        yield shaped


def _taken_back(x: Any) -> Iterator[Any]:
    """An array that is used again for the next batch, and overwritten after the last."""
    import numpy as np

    array = np.empty(COUNT // 4, np.float32)
    for part in np.split(x, 4):
        array[:] = part
        yield array
        array[:] = 1e6


def _shown(one: Calibrator, name: str, batches: Iterator[Any]) -> bool:
    """Whether there was a batch. One refused for what is not finite is shown without it."""
    import numpy as np

    for batch in batches:
        try:
            one.observe(name, batch)
        except InvalidArgument:
            finite = np.isfinite(batch.astype(np.float64))
            if finite.all():
                raise
            if finite.any():
                one.observe(name, batch[finite])
        return True
    return False


def judge(ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raises Broken for ranges that are not as ``found``'s must be."""
    for name in NOTHING:
        if name in ranges:
            low, high = ranges[name]
            raise Broken(f"a tensor without a finite value has the range {low:g} to {high:g}")
    kinds, normal = values(), "normal in 7"
    for kind, x in kinds.items():
        for n in SPLITS:
            _holds(ranges, f"{kind} in {n}", x)
            _alike(ranges, f"{kind} in {n}", f"{kind} in 1")
    for d in DTYPES:
        _alike(ranges, f"coarse as {d}", "coarse in 7")
    _alike(ranges, "taken back", normal)
    _alike(ranges, "with odd ones", normal)
    near, far = (max(map(abs, ranges[name])) for name in (normal, "further in 7"))
    if far < near:
        raise Broken(
            f"values {FURTHER} times as far from zero reach to {far:g}, not to {near:g} or more"
        )


def _range(ranges: Mapping[str, tuple[float, float]], name: str) -> tuple[float, float]:
    """Raises Broken for one that is missing, or is none."""
    if name not in ranges:
        raise Broken(f"there is no range for the tensor {name!r}")
    low, high = ranges[name]
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise Broken(f"the range of {name!r} is {low:g} to {high:g}")
    return low, high


def _holds(ranges: Mapping[str, tuple[float, float]], name: str, x: Any) -> None:
    """Raises Broken for a range that has less than half of the values in it."""
    import numpy as np

    low, high = _range(ranges, name)
    tolerance = NEAR * float(np.abs(x).max())
    share = float(np.mean((x >= low - tolerance) & (x <= high + tolerance)))
    if share < 0.5:
        raise Broken(f"{low:g} to {high:g} holds {share:.0%} of the values of {name!r}")


def _alike(ranges: Mapping[str, tuple[float, float]], name: str, other: str) -> None:
    """Raises Broken where two ranges of the same values differ by more than rounding."""
    (low, high), (low2, high2) = _range(ranges, name), _range(ranges, other)
    tolerance = NEAR * max(map(abs, (low, high, low2, high2)))
    if not (abs(low - low2) <= tolerance and abs(high - high2) <= tolerance):
        raise Broken(
            f"{low:g} to {high:g} for {name!r}, {low2:g} to {high2:g} for {other!r}: "
            "the same values"
        )
