"""Input arrays for a plan: from a file, or random at the shapes that were asked for."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tactix.base.dims import evaluate_shape, show, sym, symbol_name
from tactix.base.dtypes import DType
from tactix.base.errors import AllocationError, InvalidArgument, ShapeError
from tactix.base.files import replacing
from tactix.base.host_memory import check_array_fits
from tactix.base.tensor import Element
from tactix.plan.schema import Plan, TensorIO
from tactix.run.arrays import in_order
from tactix_tools.options import merged

Arrays = dict[str, Any]


def load(path: str) -> Arrays:
    """Arrays by name from an ``.npz`` file; no pickled objects. Raises InvalidArgument."""
    import numpy as np

    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz file")
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise InvalidArgument(
            "cannot read arrays", who=path, why=str(e), do="Write it with numpy.savez"
        ) from None


def save(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name to an ``.npz`` file of exactly that name; one that is stopped leaves
    nothing behind.
    """
    import numpy as np

    with replacing(path) as f:
        np.savez(f, **dict(arrays))


def feed(plan: Plan, options: Mapping[str, Any]) -> Arrays:
    """Input arrays as ``input_options`` asks. Raises InvalidArgument, ShapeError."""
    if options["inputs"]:
        return load(options["inputs"])
    plan = plan if isinstance(plan, Plan) else _in_our_words(plan)
    symbols = sizes(plan, merged(options["shapes"]))
    return random(plan, symbols, options["seed"], options["int_below"])


def _in_our_words(plan: Any) -> Plan:
    """Inputs and profiles of a plan that a lean runtime has loaded, whose classes are its own."""
    inputs = [
        TensorIO(
            io.name,
            io.buffer,
            DType(io.dtype.value),
            tuple(map(_our_dim, io.shape)),
            _our_element(io.element),
        )
        for io in plan.inputs
    ]
    return Plan(plan.name, tuple(inputs), (), plan.profiles, (), ())


def _our_dim(d: Any) -> Any:
    return d if d is None or isinstance(d, int) else sym(str(d))


def _our_element(e: Any) -> Element | None:
    if e is None:
        return None
    shape = None if e.shape is None else tuple(map(_our_dim, e.shape))
    return Element(DType(e.dtype.value), shape, _our_element(e.of), e.none)


def check(inputs: Sequence[TensorIO], options: Mapping[str, Any]) -> None:
    """Whether ``feed`` will understand the options, before anything is built. Raises
    InvalidArgument, ShapeError.
    """
    if options["inputs"]:
        in_order(inputs, (load(options["inputs"]),), {})
    else:
        _given(inputs, merged(options["shapes"]))


def sizes(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Values of the plan's symbols: from the given input shapes, else what the first profile is
    tuned for.

    Raises InvalidArgument for unknown names, ShapeError for shapes that do not fit.
    """
    given = _given(plan.inputs, shapes)
    tuned = plan.profiles[0].dims if plan.profiles else {}
    return {
        symbol: given.get(symbol, tuned[symbol][1] if symbol in tuned else 1)
        for symbol in sorted(plan.symbols)
    }


def _given(inputs: Sequence[TensorIO], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    known = {io.name: io for io in inputs}
    out: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in known:
            raise InvalidArgument(f"no input {name!r}", do=f"The inputs are: {', '.join(known)}")
        _bind(known[name], shape, out)
    return out


def _bind(io: TensorIO, shape: tuple[int, ...], out: dict[str, int]) -> None:
    wrong = len(shape) != len(io.shape)
    for d, n in zip(io.shape, shape, strict=False):
        symbol = symbol_name(d)
        wrong |= out.setdefault(symbol, n) != n if symbol else d != n
    if wrong:
        raise ShapeError(f"input {io.name!r} is {show(io.shape)}, not {show(shape)}")


def random(plan: Plan, symbols: Mapping[str, int], seed: int = 0, below: int = 2) -> Arrays:
    """Normal floats; integers in [0, below), by default 0 and 1, which indices, masks and token
    types all allow.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    out: Arrays = {}
    for io in plan.inputs:
        shape = evaluate_shape(io.shape, symbols)
        try:
            check_array_fits(shape, np.dtype(io.dtype.numpy))
            out[io.name] = _random(io.dtype, shape, io.element, rng, below)
        except (ValueError, OverflowError, MemoryError) as e:
            raise AllocationError(
                f"no random input {io.name!r} of shape {show(shape)}", why=str(e)
            ) from None
    return out


def _random(
    dtype: DType, shape: tuple[int, ...], element: Element | None, rng: Any, below: int
) -> Any:
    """Text is digits; a sequence has two elements, and an optional one; what has no shape is of
    shape ().
    """
    import numpy as np

    if element is not None:
        inner_shape = tuple(d if isinstance(d, int) else 2 for d in element.shape or ())
        made = [_random(element.dtype, inner_shape, element.of, rng, below) for _ in range(2)]
        return made if dtype is DType.SEQUENCE else made[0]
    if dtype.is_float:
        return rng.standard_normal(shape, np.float32).astype(dtype.numpy)
    whole = rng.integers(0, 2 if dtype is DType.BOOL else below, shape)
    return whole.astype(str).astype(object) if dtype is DType.STRING else whole.astype(dtype.numpy)


def describe(arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name, dtype, shape, and the range of values of each array."""
    import numpy as np

    rows: list[dict[str, Any]] = []
    for name, x in arrays.items():
        if x is None or isinstance(x, list):
            rows.append(
                {
                    "name": name,
                    "dtype": "nothing" if x is None else f"{len(x)} elements",
                    "shape": [],
                }
            )
            continue
        numeric = x.size and x.dtype.kind not in "OSU"
        wide = np.asarray(x, np.float64) if numeric else None
        facts = (
            {}
            if wide is None
            else {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
        )
        rows.append({"name": name, "dtype": str(x.dtype), "shape": list(x.shape), **facts})
    return rows
