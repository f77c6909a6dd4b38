"""KernelArtifact: a kernel as data. Code, launches with symbolic arguments, workspace, packed
constants.

Nothing here runs anything: a launcher does. All numbers that depend on shapes are dims.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tactix.base import dims
from tactix.base.arrays import Array
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument


@dataclass(frozen=True)
class Source:
    """Source text of one kernel; a compiler plugin for ``language`` turns many into one Binary.

    The text defines one function named by the macro ``TX_ENTRY``, and names its own helpers
    ``TX_NAME(x)``. ``preludes`` are texts shared between kernels, each included once per
    translation unit. ``flags`` are options that the compiler must honour (``-mavx512f`` follows
    from the device, not from here). ``straight``: whether what takes its time is written out in the
    instructions that shall run, so that a compiler in a hurry need not look for better ones.
    """

    language: str
    text: str
    preludes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    straight: bool = False

    @functools.cached_property
    def digest(self) -> str:
        h = hashlib.sha256(repr((self.language, self.text, self.preludes, self.flags)).encode())
        return h.hexdigest()


@dataclass(frozen=True)
class Binary:
    """Machine code shared by any number of artifacts, and the name of this kernel's entry in it."""

    blob: bytes = field(repr=False)
    symbol: str = ""
    source: str = field(default="", repr=False)

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.blob).hexdigest()


@dataclass(frozen=True)
class Arg:
    """One kernel argument; the functions below make each kind and say what the kernel gets."""

    kind: str
    index: int = 0
    name: str = ""
    value: Dim = 0


def tensor_in(index: int) -> Arg:
    """Address of the node's given input ``index``."""
    return Arg("input", index)


def tensor_out(index: int = 0) -> Arg:
    """Address of output ``index``."""
    return Arg("output", index)


def constant(name: str) -> Arg:
    """Address of one of the artifact's packed constants."""
    return Arg("constant", name=name)


def workspace(offset: Dim = 0) -> Arg:
    """Address of the workspace plus an offset in bytes."""
    return Arg("workspace", value=offset)


def scalar(value: Dim) -> Arg:
    """An integer."""
    return Arg("scalar", value=value)


def fault() -> Arg:
    """Address of the launch's own record of four int64, where a kernel reports an index that is out
    of range.

    Whoever finds the first at 0 and makes it 1 writes the index and the size of its axis to the
    second and third; then the int64 at the address that the fourth holds becomes 1. The launcher
    raises ``out_of_range`` after the run. Whatever else a kernel refuses to do it reports so, with
    2 + i in the first: the launcher raises DataError with pair i of the artifact's
    ``params["refusals"]``: what is wrong, where ``{0}`` and ``{1}`` stand for the two numbers, and
    the cure.
    """
    return Arg("fault")


def told() -> Arg:
    """Address of one int64 for each symbol that is a dim of an output, in the order in which the
    output shapes name them: for steps of which only running tells some of them.

    Launches that name no output run first and write all of these numbers; then the outputs get
    memory, and the others run.
    """
    return Arg("told")


@dataclass(frozen=True)
class Launch:
    """One start of the kernel. ``grid``, ``block``, ``cluster``, ``shared_bytes`` are for devices
    that have them.
    """

    args: tuple[Arg, ...]
    grid: tuple[Dim, ...] = ()
    block: tuple[Dim, ...] = ()
    cluster: tuple[Dim, ...] = ()
    shared_bytes: Dim = 0
    symbol: str = ""


@dataclass(frozen=True)
class Packed:
    """A constant made of the node's constant input ``index`` by a closed list of steps, so that
    refit can redo it.

    Steps: ``("cast", dtype)``, ``("reshape", dims)``, ``("transpose", axes)``, ``("pad", ((before,
    after), ...))``. With ``index`` -1 the ``array`` itself is meant, or, of a function, what it
    gives for the node's given inputs.
    """

    index: int
    steps: tuple[tuple[str, object], ...] = ()
    array: Array | Callable[[Sequence[Array]], Array] | None = field(
        default=None, compare=False, repr=False
    )

    def apply(self, given: Sequence[Array]) -> Array:
        """The packed array; ``given`` are the node's given inputs, of which the constant ones are
        looked at.
        """
        x = given[self.index] if self.index >= 0 else self._made(given)
        for name, what in self.steps:
            if name not in _PACK:
                raise InvalidArgument(
                    f"packing knows no step {name!r}", do=f"It has: {', '.join(_PACK)}"
                )
            x = _PACK[name](x, what)
        x = x.reshape(x.shape or 1)
        return x if x.flags.c_contiguous else x.copy()

    def _made(self, given: Sequence[Array]) -> Array:
        """Its own array. Raises InvalidArgument where it has none."""
        made = self.array(given) if callable(self.array) else self.array
        if made is None:
            raise InvalidArgument("a constant is made of no input and has no array")
        return made


def _pad(x: Array, widths: tuple[tuple[int, int], ...]) -> Array:
    import numpy as np

    return np.pad(x, widths)


_PACK: Mapping[str, Callable[..., Array]] = {
    "cast": lambda x, dtype: x.astype(DType.of(dtype).numpy),
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, axes: x.transpose(axes),
    "pad": _pad,
}


@dataclass(frozen=True)
class KernelArtifact:
    """What a tactic gives for one node and variant, and what a plan keeps.

    ``launcher``: key of the launcher that runs it. ``code``: Source before compiling, Binary after,
    None where the launcher needs none. ``params``: JSON for the launcher. ``workspace``: bytes of
    scratch memory during the step.
    ``requires``: device features without which it must not run. ``host_code``: whether it brings
    code that runs in the host process, although its launcher says that it runs none. ``alias``:
    output 0 is the memory of input 0, seen with another shape in the variant's formats; there is
    nothing to launch. With ``joins`` it consists of all inputs instead, each so many bytes behind
    its begin; with ``cuts`` all outputs lie in input 0, each so many bytes behind its begin: these
    are multiples of 64, and what cannot lie there is copied.
    """

    launcher: str
    launches: tuple[Launch, ...] = ()
    code: Source | Binary | None = None
    workspace: Dim = 0
    constants: tuple[tuple[str, Packed], ...] = ()
    requires: tuple[str, ...] = ()
    params: Mapping[str, object] = field(default_factory=dict, hash=False)
    host_code: bool = False
    alias: bool = False
    joins: tuple[Dim, ...] = ()
    cuts: tuple[Dim, ...] = ()

    @property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        """What its kernels refuse and the cure, see ``fault``."""
        pairs = self.params.get("refusals", ())
        return tuple((str(a), str(b)) for a, b in pairs) if isinstance(pairs, list) else ()

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Pairs (output, input) that may be one piece of memory, from ``params["in_place"]``: the
        kernel finds equal addresses, and then writes only what changes.
        """
        pairs = self.params.get("in_place", ())
        rows = [tuple(p) for p in pairs if isinstance(p, list)] if isinstance(pairs, list) else []
        return tuple((a, b) for a, b in (r for r in rows if [*map(type, r)] == [int, int]))

    @property
    def sizes(self) -> list[Dim]:
        """Every number that its launches take from the shapes, and the workspace."""
        shapes = [d for x in self.launches for d in (*x.grid, *x.block, *x.cluster, x.shared_bytes)]
        return [*(a.value for x in self.launches for a in x.args), *shapes, self.workspace]

    @functools.cached_property
    def digest(self) -> str:
        """Identity for the timing cache: everything but the constants' content."""
        code = self.code.digest if self.code else ""
        shape = [(a.kind, a.index, a.name, str(a.value)) for x in self.launches for a in x.args]
        text = repr(
            (self.launcher, code, shape, str(self.workspace), sorted(self.params.items(), key=str))
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def encode_launch(launch: Launch) -> dict[str, object]:
    """JSON of a launch; empty fields are left out."""
    args = [[a.kind, a.index, a.name, dims.to_json(a.value)] for a in launch.args]
    out: dict[str, object] = {"args": args}
    for name in ("grid", "block", "cluster"):
        if getattr(launch, name):
            out[name] = [dims.to_json(d) for d in getattr(launch, name)]
    if launch.shared_bytes != 0:
        out["shared_bytes"] = dims.to_json(launch.shared_bytes)
    if launch.symbol:
        out["symbol"] = launch.symbol
    return out
