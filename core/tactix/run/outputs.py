"""Arrays of the caller's that outputs are written into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tactix.base.arrays import Array
from tactix.base.dims import Shape, show
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.plan.schema import TensorIO
from tactix.run.arrays import address_of


def check_outputs(outputs: Sequence[TensorIO], out: Mapping[str, Array]) -> None:
    """What can be told of them before any shape is known: names, dtypes, whether each can be
    written as it lies. Raises InvalidArgument, DTypeError.
    """
    known = {io.name: io for io in outputs}
    if not isinstance(out, Mapping):
        raise InvalidArgument(f"out is a {type(out).__name__}", do="Give arrays by output name")
    for name, array in out.items():
        if name not in known:
            do = f"There are: {', '.join(known)}"
            raise InvalidArgument(f"no output is named {name!r}", do=do)
        _check_array(known[name], array)
    _check_apart(out)


def _check_array(io: TensorIO, array: Any) -> None:
    import numpy as np

    if io.dtype.on_host:
        what = f"output {io.name!r} is {io.dtype.value}, which is written into no array"
        raise InvalidArgument(what, do="Leave it out of out=, and take what is returned")
    if not isinstance(array, np.ndarray):
        what = f"out={io.name!r} is a {type(array).__name__}"
        raise InvalidArgument(what, do=f"Give a numpy array of {io.dtype.numpy}")
    if array.dtype != io.dtype.numpy:
        do = f"Give np.empty(shape, {str(io.dtype.numpy)!r})"
        raise DTypeError(f"output {io.name!r} is {io.dtype.value}, got {array.dtype}", do=do)
    for fit, what in (
        (array.flags.writeable, "cannot be written"),
        (array.flags.c_contiguous, "is not contiguous"),
        (array.flags.aligned, "is not aligned to its element size"),
    ):
        if not fit:
            do = "Give an array of its own, as np.empty makes it"
            raise InvalidArgument(f"the array for output {io.name!r} {what}", do=do)


def check_shape(name: str, wanted: Shape, array: Array) -> None:
    """Raises ShapeError."""
    if array.shape != wanted:
        raise ShapeError(
            f"output {name!r} is {show(wanted)} at these inputs, its array is {show(array.shape)}",
            do=f"Give np.empty({tuple(wanted)}, ...), or leave it out of out=",
        )


def _check_apart(out: Mapping[str, Array]) -> None:
    """Raises InvalidArgument for two outputs that share a byte."""
    spans = sorted((address_of(a), a.nbytes, name) for name, a in out.items() if a.nbytes)
    for (start, size, first), (after, _, second) in pairwise(spans):
        if after < start + size:
            raise InvalidArgument(
                f"outputs {first!r} and {second!r} lie in the same memory",
                do="Give each an array of its own",
            )


def check_inputs_apart(given: Mapping[str, object], out: Mapping[str, Array]) -> None:
    """Raises InvalidArgument for an output in the memory of an input; for devices and plans whose
    outputs are copied into place.
    """
    import numpy as np

    for read, x in given.items():
        for written, y in out.items():
            if isinstance(x, np.ndarray) and np.may_share_memory(x, y):
                raise overlap(written, read)


def overlap(written: str, read: str, who: str = "") -> InvalidArgument:
    """The error for an output that would be written where an input is read."""
    return InvalidArgument(
        f"output {written!r} lies in the memory of input {read!r}",
        who=who,
        why="the plan may still read the input when it writes there",
        do="Give each memory of its own",
    )
