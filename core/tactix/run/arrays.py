"""What users pass in, as contiguous numpy arrays of the right dtype; and where arrays lie."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tactix.base.dims import show
from tactix.base.errors import DTypeError, InvalidArgument
from tactix.plan.schema import TensorIO

if TYPE_CHECKING:
    from tactix.base.dtypes import DType
    from tactix.contracts.device import Device

_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address_of(array: Any) -> int:
    """Where a contiguous array starts; or one in device memory, which has an ``address``."""
    try:
        return _addressof(_from_buffer(array))  # three times as fast as the array interface
    except (TypeError, ValueError, BufferError):
        # read-only, empty, or a dtype that buffers do not know
        base = getattr(array, "base", None)
        if isinstance(base, ctypes.Array) and ctypes.sizeof(base) == array.nbytes:
            return _addressof(base)  # all of memory that another owns, as constants of plans
        start: int = getattr(array, "address", 0) or array.__array_interface__["data"][0]
        return start


class AcceptedArrays:
    """Which arrays can be used as they are. ``expected``: dtype and shape of each."""

    def __init__(self, expected: Iterable[tuple[Any, tuple[int, ...]]]) -> None:
        import numpy as np

        self._expected, self._ndarray = list(expected), np.ndarray

    def accepts(self, arrays: Sequence[Any]) -> bool:
        """Whether they are contiguous, aligned numpy arrays of these dtypes and shapes."""
        ndarray = self._ndarray
        for x, (dtype, shape) in zip(arrays, self._expected):
            if x.__class__ is not ndarray or x.shape != shape:
                return False
            if x.dtype is not dtype and x.dtype != dtype:
                return False
            flags = x.flags
            if not (flags.carray or (flags.c_contiguous and flags.aligned)):
                return False
        return len(arrays) == len(self._expected)


def check_named(inputs: object) -> None:
    """Raises InvalidArgument where arrays are not given by name."""
    if not isinstance(inputs, Mapping):
        what = f"inputs are a {type(inputs).__name__}"
        raise InvalidArgument(what, do="Give arrays by input name")


def check_asked(outputs: object, known: Sequence[str], who: str) -> None:
    """Raises InvalidArgument where these are no names of outputs."""
    if isinstance(outputs, str) or not isinstance(outputs, Collection):
        raise InvalidArgument(f"outputs are {outputs!r}", who=who, do="Give several names")
    if odd := [name for name in outputs if name not in known]:
        do = f"There are: {', '.join(known)}"
        raise InvalidArgument(f"no output is named {odd[0]!r}", who=who, do=do)


def read(device: Device, dtype: DType, shape: tuple[int, ...], address: int) -> Any:
    """An array of what lies in the device's memory: in place and read-only where that is the
    host's, else a copy.
    """
    import numpy as np

    if device.host_memory:
        return _view(dtype, shape, address)
    out = np.empty(shape, dtype.numpy)
    device.copy_out(out, address)
    return out


@lru_cache(maxsize=1024)
def _view(dtype: DType, shape: tuple[int, ...], address: int) -> Any:
    """What lies at an address of the host, read-only; it owns nothing. Weights are looked at in
    every run.
    """
    import numpy as np

    size = math.prod(shape) * dtype.itemsize
    memory: Any = (ctypes.c_char * size).from_address(address) if size else None
    out = np.ndarray(shape, dtype.numpy, memory)
    out.flags.writeable = False
    return out


def as_input(io: TensorIO, given: Any) -> Any:
    """A contiguous, aligned array of the input's dtype, copied only if it is not.

    ``given``: a numpy array, an object with ``__dlpack__`` or ``__array__``, or numbers in lists,
    which become the input's dtype if none of them loses its fraction or its range. Raises
    DTypeError, InvalidArgument.
    """
    import numpy as np

    x = given if isinstance(given, np.ndarray) else _convert(io, given)
    if x.dtype != io.dtype.numpy:
        do = f"Convert it: x.astype({io.dtype.numpy})"
        raise DTypeError(f"{io.name!r} is {io.dtype.value}, got {x.dtype}", do=do)
    flags = x.flags
    return x if flags.c_contiguous and flags.aligned else np.require(x, requirements=("C", "A"))


def _convert(io: TensorIO, given: Any) -> Any:
    import numpy as np

    try:
        if hasattr(given, "__dlpack__") and not isinstance(given, np.generic):
            return np.from_dlpack(given)
        if hasattr(given, "__array__"):
            return np.asarray(given)
        return _numbers(io, given)
    except DTypeError:
        raise
    except Exception as e:
        what = f"{io.name!r} is {io.dtype.value}{show(io.shape)}, got a {type(given).__name__}"
        raise InvalidArgument(what, why=str(e), do=f"Give a numpy array of {io.dtype.numpy}") from e


def _numbers(io: TensorIO, given: Any) -> Any:
    """Python numbers, in the input's dtype."""
    import numpy as np

    natural = np.asarray(given)
    if natural.dtype.kind not in _KINDS:
        # beyond every integer of numpy
        whole = natural.size > 0 and all(isinstance(x, int) for x in natural.flat)
        raise TypeError("a number is too large" if whole else "these are no numbers")
    target = io.dtype.numpy
    if natural.size == 0:
        return natural.astype(target)
    wanted = 2 if io.dtype.is_float else _KINDS.get(target.kind, 1)
    if _KINDS[natural.dtype.kind] > wanted:
        raise DTypeError(f"{io.name!r} is {io.dtype.value}, got numbers that need {natural.dtype}")
    with np.errstate(over="ignore"):
        converted = natural.astype(target)
    same = (
        (np.isfinite(converted), np.isfinite(natural))
        if wanted == 2
        else (converted.astype(natural.dtype), natural)
    )
    # from signed to unsigned and back, or the other way, a number that does not fit is the same one
    wraps = wanted < 2 and not np.array_equal(converted < 0, natural < 0)
    if wraps or not np.array_equal(*same):
        raise DTypeError(
            f"{io.name!r} is {io.dtype.value}, which cannot hold all of the given numbers"
        )
    return converted


def crossing(
    addresses: Sequence[int], sizes: Sequence[int], inputs: int
) -> Iterator[tuple[int, int]]:
    """Pairs (input, output) that share a byte, of tensors of so many bytes each at these addresses,
    the first ``inputs`` of which are inputs.
    """
    spans = sorted((a, a + n, i) for i, (a, n) in enumerate(zip(addresses, sizes)) if n)
    for k, (_, end, i) in enumerate(spans):
        for start, _, j in spans[k + 1 :]:
            if start >= end:
                break
            if min(i, j) < inputs <= max(i, j):
                yield min(i, j), max(i, j)


def in_order(
    inputs: Sequence[TensorIO], args: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """Arguments of a call beside the inputs: given by position, by name, or as one mapping. Raises
    InvalidArgument.
    """
    by_name = args[0] if len(args) == 1 else None
    if by_name.__class__ is dict and not named and len(by_name) == len(inputs):
        try:  # the common case of requests
            return [by_name[io.name] for io in inputs]
        except KeyError:
            pass  # told below
    both: Set[str] = set()
    # an array of any kind has a dtype, and no mapping has: asking an abstract class takes longer
    if not hasattr(by_name, "dtype") and isinstance(by_name, Mapping):
        both, args, named = by_name.keys() & named.keys(), (), {**by_name, **named}
    elif len(args) == len(inputs) and not named:
        return list(args)
    names = [io.name for io in inputs]
    found = dict(zip(names, args))
    twice = sorted(both | (found.keys() & named.keys()))
    unknown = sorted(str(k) for k in named if k not in names)
    missing = [n for n in names if n not in found and n not in named]
    many = (
        [f"{len(args)} positional arguments for {len(names)} inputs"]
        if len(args) > len(names)
        else []
    )
    told = (
        (twice, "{} given twice"),
        (unknown, "no input is named {}"),
        (missing, "no array for {}"),
    )
    if problems := many + [text.format(", ".join(map(repr, some))) for some, text in told if some]:
        expected = (
            ", ".join(f"{io.name}: {io.dtype.value}{show(io.shape)}" for io in inputs) or "nothing"
        )
        raise InvalidArgument("; ".join(problems), do=f"Expected: {expected}")
    return [found[n] if n in found else named[n] for n in names]
