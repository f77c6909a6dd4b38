"""Programs: steps, branches and loops in each other, to any depth, that run without coming back to
Python.

A launcher of branches and loops, or of steps that tell sizes, says what its step does as a part
(``Launcher.part``), over buffers of the plan that the step is in and of its bodies; a launcher that
can run such parts makes a program of them (``Launcher.program``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tactix.base.arrays import Array
from tactix.base.dims import Assumption, Dim
from tactix.base.dtypes import DType
from tactix.contracts.launcher import Runnable


@dataclass(frozen=True)
class Displacement:
    """Where a buffer lies in runs that follow each other: in run 0 at ``first``, in run ``k`` from
    1 on at ``places[k % 2] + k * stride``. Addresses, and bytes.
    """

    buffer: int
    first: int
    places: tuple[int, int]
    stride: int = 0


@dataclass(frozen=True)
class Progression:
    """An int64 at ``address`` that is ``first + k * step`` in run ``k``."""

    address: int
    first: int
    step: int


@dataclass(frozen=True)
class Iteration:
    """What differs between runs that follow each other. ``counter``: address of an int64 that is
    the run's number while it runs, 0 for none. ``going``: address of a bool that each run writes:
    whether there is another one; 0 where nothing ends them. ``progressions``: other numbers.
    """

    moves: Sequence[Displacement]
    counter: int = 0
    going: int = 0
    progressions: Sequence[Progression] = ()


class NativeProgram(Protocol):
    """Parts at the sizes that they were bound for."""

    def place(self, addresses: Sequence[int]) -> None:
        """Where all buffers that were said to move lie from the next run on, in that order."""

    def __call__(self) -> int | None:
        """Run once. Raises ExecutionError naming the step, and what a signal asks for soon after
        it, such as KeyboardInterrupt.

        Where a part told other sizes than expected, the run ends, and its index is what is
        given: all before it is done, and of it and what is behind it nothing.
        """

    def iterate(self, iteration: Iteration, start: int, stop: int) -> int:
        """The runs from ``start`` on, until one writes that it is the last, or up to ``stop``,
        which is not run, or one for whose sizes there is no room, which has not begun; the number
        after the last run. Raises as a call does.
        """


@dataclass(frozen=True)
class BoundTensor:
    """An input or output of a body at some shapes: a linear array of the host."""

    buffer: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.numpy.itemsize


@dataclass(frozen=True)
class BoundBody:
    """A body at some shapes of its inputs. The buffers of ``inputs`` and ``outputs`` move.
    ``in_place``: buffers of inputs and outputs of which a run makes the second where the first
    lies, and copies nothing, if they are one piece of memory.
    """

    program: NativeProgram
    inputs: Sequence[BoundTensor]
    outputs: Sequence[BoundTensor]
    in_place: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, eq=False)
class GrowingBody:
    """A body of which some states are larger after each run than before it. ``bound``: at their
    sizes before the first run; there is room for ``runs`` runs.

    ``growth``: of each state, along each axis, by how much it is larger after a run. ``told``:
    int64, where the sizes that grow are to be written before each run; ``sizes``: what they are
    before the first, and ``steps``: what each is larger by in the next one.
    """

    bound: BoundBody
    runs: int
    growth: Sequence[tuple[int, ...]]
    told: Array
    sizes: Sequence[int]
    steps: Sequence[int]


@dataclass(frozen=True, eq=False)
class NestedBody:
    """A body in a program. ``shared``: buffers around it and its own that are one. ``fixed``: its
    buffers that lie in the same memory in all runs.
    """

    program: NativeProgram
    shared: Sequence[tuple[int, int]] = ()
    fixed: Sequence[tuple[int, Array]] = ()


@dataclass(frozen=True, eq=False)
class BranchSizes:
    """What a branch tells of its results. ``told``: where the numbers are written, int64, as the
    symbols ``names``; ``expected``: what they are taken for; ``holding`` and ``otherwise``: what
    they are after either body.
    """

    names: tuple[str, ...]
    told: Array
    expected: Array
    holding: Array
    otherwise: Array


@dataclass(frozen=True, eq=False)
class BranchPart:
    """One of two bodies. ``condition``: buffer of the bool that says whether it is the first.
    ``sizes``: what tells the shapes of results that only running tells.
    """

    condition: int
    holding: NestedBody
    otherwise: NestedBody
    sizes: BranchSizes | None = None


@dataclass(frozen=True, eq=False)
class CarriedState:
    """What each run of a loop hands to the next: ``nbytes`` that the body reads in ``read`` and
    writes in ``written``, its buffers. ``given`` and ``result``: buffers around with the first and
    the last of them. ``spare``: as much memory, in which every other run writes; None where runs
    change a state in place. ``more``: bytes that it is larger by after each run; ``spare`` and the
    buffer of the result have room for as many runs as there may be.
    """

    given: int
    result: int
    read: int
    written: int
    nbytes: int
    spare: Array | None
    more: int = 0


@dataclass(frozen=True)
class LoopRows:
    """What a loop slices or stacks: run ``k`` has the body's buffer ``inside`` ``first + k *
    stride`` bytes behind the start of the buffer ``around``.
    """

    around: int
    inside: int
    first: int
    stride: int


@dataclass(frozen=True, eq=False)
class LoopCount:
    """Sizes of what a loop gives, where only running tells how often that runs. ``told``: where
    they are written, as the symbols ``names``; ``expected``: what they are taken for; ``begins``:
    what they are if nothing runs, and ``steps``: what each is larger by after a run. All are int64.

    ``room``: there is memory for so many runs; -1 for any number. A program ends before a loop that
    needs more, as before what tells other sizes than expected.
    """

    names: tuple[str, ...]
    told: Array
    expected: Array
    begins: Array
    steps: Array
    room: int = -1


@dataclass(frozen=True, eq=False)
class LoopPart:
    """A body again and again. ``most``: how often, a buffer of an int64, or memory with one; none
    where it is less than 1. ``start``: buffer of the bool that says whether to begin, -1 for yes.
    ``counter``, ``going``, ``progressions``: as of an Iteration. ``runs``: how many runs there must
    be, as there is room for so many rows; -1 where that is open. ``count``: sizes that hang on it.
    """

    body: NestedBody
    states: Sequence[CarriedState]
    rows: Sequence[LoopRows]
    most: int | Array
    start: int = -1
    counter: Array | None = None
    going: Array | None = None
    runs: int = -1
    count: LoopCount | None = None
    progressions: Sequence[Progression] = ()


@dataclass(frozen=True, eq=False)
class TellingPart:
    """A step that tells sizes, int64 numbers, and then writes by them. ``tell`` and ``write``: both
    halves, bound over buffers of the step's own at the sizes ``expected``. ``told``: where the
    first writes them, as symbols with these ``names``. ``shared``: buffers around it and its own
    that are one. ``scratch``: what they work in, of which they take ``workspace`` bytes.
    """

    tell: Runnable
    write: Runnable
    told: Array
    expected: Array
    shared: Sequence[tuple[int, int]]
    scratch: Array
    names: tuple[str, ...]
    workspace: Dim


@dataclass(frozen=True, eq=False)
class GivenSizes:
    """Sizes of a program's inputs that whoever runs it tells. ``told``: where they are written,
    int64, as the symbols ``names``; ``expected``: what they are taken for.
    """

    names: tuple[str, ...]
    told: Array
    expected: Array


@dataclass(frozen=True, eq=False)
class ChangingSizes:
    """Symbols that parts of a program, those that tell sizes, branches and loops among them, may
    tell otherwise than expected: it runs on if what is behind them has room.

    ``values``: of all ``symbols``, int64, those of the run that ended last. ``told``: those among
    them that parts tell. ``conditions``: by the index of such a part what must hold between it and
    the next one. ``inside``: whether the program is that of a body, so that to end a run costs all
    that is done of the loops around.
    """

    symbols: tuple[str, ...]
    values: Array
    told: frozenset[str]
    conditions: Mapping[int, Sequence[Assumption]]
    inside: bool = False


Part = Runnable | BranchPart | LoopPart | TellingPart | GivenSizes
"""Of a program; a Runnable is bound already, and of the launcher that makes the program."""


@dataclass(frozen=True)
class PlacedPart:
    """A step as a part, and the shapes of its outputs. ``rooms``: bytes that these must have room
    for, where that may be more; empty where it is not.
    """

    part: Part
    shapes: Sequence[tuple[int, ...]]
    rooms: Sequence[int] = ()
