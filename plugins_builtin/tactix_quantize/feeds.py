"""Batches for a network, from a folder, a file, arrays or an iterable."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from tactix.base.arrays import Array
from tactix.base.dims import Dim, show
from tactix.base.errors import InvalidArgument
from tactix.contracts.graph import Value

SAMPLES = 8
"""That make a batch where the network leaves its size open and a file has more."""
GIVE = (
    "Give a folder of .npy or .npz files, one such file, arrays by input name with all samples, "
    "or an iterable of batches: arrays by input name"
)
Batch = Mapping[str, Array]


@runtime_checkable
class Indexed(Protocol):
    """Batches by number, up to an IndexError, as Polygraphy's DataLoader has them."""

    def __getitem__(self, i: int, /) -> object: ...


def batches(data: object, inputs: list[Value]) -> Iterator[Batch]:
    """Arrays by input name, of the inputs' dtypes. Raises InvalidArgument for what is no data, for
    none, and for arrays that the inputs do not take.
    """
    there = False
    for who, found, whole in _found(data, inputs):
        given = {v.name: _fitting(v, found.get(v.name), who) for v in inputs}
        if unknown := sorted(found.keys() - given.keys()):
            known = ", ".join(given)
            what = f"calibration data for {unknown[0]!r}, which is no input"
            raise InvalidArgument(what, who=who, do=f"The inputs are: {known}")
        for batch in _cut(given, inputs, who, whole):
            there = True
            yield batch
    if not there:
        raise InvalidArgument("there is no calibration data", who=str(data)[:80], do=GIVE)


def count(data: object) -> int:
    """Batches, or files of them; 0 if that is not known before they were all seen."""
    if isinstance(data, (str, Path)):
        return len(_files(Path(data)))
    if isinstance(data, (Mapping, np.ndarray)):
        return 0  # cut into batches when it is read
    return len(data) if hasattr(data, "__len__") else 0


def _found(data: object, inputs: list[Value]) -> Iterator[tuple[str, Batch, bool]]:
    """Where arrays come from, the arrays by input name, and whether they are a batch as they are;
    else they are all samples.
    """
    if isinstance(data, (str, Path)):
        for file in _files(Path(data)):
            yield str(file), _read(file, inputs), Path(data).is_dir()
        return
    if isinstance(data, Mapping) or _is_one_array(data, inputs):
        who = "the calibration data"
        yield who, _named(data, inputs, who), False
        return
    if not isinstance(data, (Iterable, Indexed)):
        raise InvalidArgument(f"calibration data is a {type(data).__name__}", do=GIVE)
    for i, batch in enumerate(iter(data)):
        who = f"batch {i} of the calibration data"
        yield who, _named(batch, inputs, who), True


def _is_one_array(data: object, inputs: list[Value]) -> bool:
    """Whether it is all samples of the only input; of more axes it is batches."""
    return [getattr(data, "ndim", -1)] == [v.spec.rank for v in inputs]


def _files(path: Path) -> list[Path]:
    """Raises InvalidArgument for a path without any."""
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in (".npy", ".npz"))
        if not found:
            raise InvalidArgument("the folder has no .npy or .npz file", who=str(path), do=GIVE)
        return found
    if not path.is_file():
        raise InvalidArgument("there is no such file or folder", who=str(path), do=GIVE)
    return [path]


def _read(path: Path, inputs: list[Value]) -> Batch:
    try:
        with path.open("rb") as f:
            starts = f.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
        if not (starts or zipfile.is_zipfile(path)):
            raise ValueError("it is no .npy or .npz file")  # numpy would speak of pickles
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return _named(found, inputs, str(path))
        with found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        do = "Write it with numpy.save or numpy.savez"
        raise InvalidArgument("cannot read arrays", who=str(path), why=str(e), do=do) from None


def _named(batch: object, inputs: list[Value], who: str) -> Batch:
    """A batch by input names; a single array is that of the only input."""
    if isinstance(batch, Mapping):
        return {name: np.asarray(x) for name, x in batch.items()}
    names = ", ".join(v.name for v in inputs)
    if len(inputs) != 1:
        do = f"Give arrays by name: {names}"
        raise InvalidArgument(f"one array for {len(inputs)} inputs", who=who, do=do)
    return {inputs[0].name: np.asarray(batch)}


def _fitting(v: Value, x: Array | None, who: str) -> Array:
    """The array in the input's dtype. Raises InvalidArgument."""
    if x is None:
        raise InvalidArgument(f"no array for input {v.name!r}", who=who, do="Add it by that name")
    if not x.size:
        what, why = f"the array for input {v.name!r} is empty", f"its shape is {list(x.shape)}"
        raise InvalidArgument(what, who=who, why=why, do="Give one sample or more")
    wanted = np.dtype(v.spec.dtype.numpy)
    if x.ndim != v.spec.rank or (x.dtype != wanted and x.dtype.kind != wanted.kind):
        what = f"input {v.name!r} is {v.spec.dtype.value}{show(v.spec.shape)}"
        raise InvalidArgument(what, who=who, why=f"the array is {x.dtype}{list(x.shape)}")
    return x.astype(wanted, copy=False)


def _cut(given: Batch, inputs: list[Value], who: str, whole: bool) -> Iterator[Batch]:
    """The arrays as one batch, or in pieces along their first axes: see _pieces."""
    _check_sizes(given, inputs, who)
    n = _pieces(given, inputs, who, whole)
    for i in range(n):
        yield {
            name: x if n == 1 or not x.ndim else np.array_split(x, n)[i]
            for name, x in given.items()
        }


def _check_sizes(given: Batch, inputs: list[Value], who: str) -> None:
    """Raises InvalidArgument for axes that the network fixes, or that share a symbol."""
    sizes: dict[Dim, tuple[int, str]] = {}
    for v in inputs:
        shape = given[v.name].shape
        # whether samples are a whole number of batches is seen when they are cut
        if any(
            isinstance(d, int) and d != n for d, n in zip(v.spec.shape[1:], shape[1:], strict=True)
        ):
            what = f"input {v.name!r} is {show(v.spec.shape)}"
            raise InvalidArgument(what, who=who, why=f"the array is {list(shape)}")
        for d, n in zip(v.spec.shape, shape, strict=True):
            size, first = sizes.setdefault(d, (n, v.name))
            if n != size and not isinstance(d, int):
                why = f"it is {size} in {first!r} and {n} in {v.name!r}"
                raise InvalidArgument(f"the arrays have different sizes of {d}", who=who, why=why)


def _pieces(given: Batch, inputs: list[Value], who: str, whole: bool) -> int:
    """How many batches the arrays hold.

    Sizes that the network fixes say it. Where all are open, a batch is one as it is; samples are
    cut if all inputs have as many, and else they are one batch, too: the axes are no batch then, as
    the nodes and edges of a graph. Raises InvalidArgument where there is no such number.
    """
    ranked = [(v.spec.shape[0], given[v.name]) for v in inputs if v.spec.rank]
    opened = {len(x) for d, x in ranked if not isinstance(d, int)}
    counts = {_batches_of(d, x, who) for d, x in ranked if isinstance(d, int)}
    n = counts.pop() if counts else 0
    uneven = len(opened) > 1 or any(size % n for size in opened if n)
    if counts or (n > 1 and opened and (whole or uneven)):
        sizes = ", ".join(f"{name} {list(x.shape)}" for name, x in given.items())
        raise InvalidArgument("the arrays have different numbers of batches", who=who, why=sizes)
    if n or whole or len(opened) != 1:
        return n or 1
    return -(-opened.pop() // SAMPLES)


def _batches_of(size: int, x: Array, who: str) -> int:
    """How many batches of that size an array holds. Raises InvalidArgument for no whole number."""
    if not size or len(x) % size:
        why = f"{len(x)} samples are no whole number of batches of {size}"
        raise InvalidArgument(f"the network takes batches of {size}", who=who, why=why)
    return len(x) // size
