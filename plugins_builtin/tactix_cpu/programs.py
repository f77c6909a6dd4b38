"""Programs of machine code: tables, branches and loops in each other, and steps that tell sizes, as
executor/programs.c takes them.

What differs between runs are addresses. Whoever is around a part knows by buffer which words hold
one (``Places``), and what is around all, a call, fills in those of the buffers that move.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from tactix.base.arithmetic import ArithmeticWriter
from tactix.base.arrays import Array
from tactix.base.dims import Assumption, sym, symbols
from tactix.base.errors import ExecutionError
from tactix.contracts.launcher import Runnable
from tactix.contracts.program import (
    BranchPart,
    BranchSizes,
    CarriedState,
    ChangingSizes,
    Displacement,
    GivenSizes,
    Iteration,
    LoopCount,
    LoopPart,
    LoopRows,
    NestedBody,
    Part,
    TellingPart,
)
from tactix.run.arrays import address_of
from tactix_cpu.arithmetic import NativeArithmetic
from tactix_cpu.launcher import NEAR, ElfRun, Executor, Faults

TABLE, BRANCH, LOOP, TELLING, CHANGING, COUNTED, CHOSEN, GROWN = range(8)
"""Kinds of parts: what executor/programs.c numbers."""
OVER, DEPARTED = 0, 3
"""How a run ended, there."""

Told = TellingPart | LoopCount | BranchSizes | GivenSizes
"""What tells sizes."""

Places = Mapping[int, Sequence[tuple[int, int]]]
"""By buffer the addresses of the words that hold where it lies, and bytes that are added there."""


@dataclass(frozen=True, eq=False)
class NativePart:
    """A part as the executor takes it. ``words``: its struct. ``keep``: all else that is memory of
    its own. ``telling``: the txe_telling of one that tells sizes.
    """

    kind: int
    words: Array
    places: Places
    faults: Sequence[Faults] = ()
    keep: Sequence[object] = field(default=(), repr=False)
    telling: Array | None = None

    def changing(self, words: Array, places: Places, keep: Sequence[object]) -> NativePart:
        """One that tells sizes, with the txe_changing that binds what follows."""
        if self.kind in (COUNTED, CHOSEN, GROWN):  # the last two words are a part
            own = _words(*self.words[:-2], CHANGING, address_of(words))
            return replace(self, words=own, places=places, keep=[*keep, self.words, words])
        return replace(self, kind=CHANGING, words=words, places=places, keep=keep)


def program(
    parts: Sequence[Part],
    addresses: Sequence[int],
    moving: Sequence[int],
    sizes: ChangingSizes | None = None,
) -> ElfProgram | None:
    """As ``Launcher.program``."""
    native = [_native(p) for p in parts]
    made = [p for p in native if p is not None]
    runner = next(_executors(parts), None)
    if runner is None or len(made) < len(native) or any(e is not runner for e in _executors(parts)):
        return None
    if sizes is not None and runner.kinds_of_parts > CHANGING:
        with suppress(OverflowError):
            made = _changing(parts, made, len(addresses), sizes)
    able = runner.advance and all(p.kind < runner.kinds_of_parts for p in made)
    return ElfProgram(runner, made, addresses, moving) if able else None


def _executors(parts: Iterable[Part]) -> Iterator[Executor]:
    for p in parts:
        bodies = _bodies(p)
        yield from (b.program.executor for b in bodies if isinstance(b.program, ElfProgram))
        runs = (p.tell, p.write) if isinstance(p, TellingPart) else (p,)
        yield from (r.executor for r in runs if isinstance(r, ElfRun) and r.executor)


def _bodies(part: Part) -> Sequence[NestedBody]:
    if isinstance(part, BranchPart):
        return part.holding, part.otherwise
    return (part.body,) if isinstance(part, LoopPart) else ()


def _native(part: Part) -> NativePart | None:
    """None where it is of another launcher."""
    if not all(isinstance(b.program, ElfProgram) for b in _bodies(part)):
        return None
    if isinstance(part, BranchPart):
        branch = _branch(part)
        return branch if part.sizes is None else _chosen(branch, part.sizes)
    if isinstance(part, LoopPart):
        return _loop(part)
    if isinstance(part, TellingPart):
        return _telling(part)
    if isinstance(part, GivenSizes):
        telling = _told_alone(part)
        return NativePart(TELLING, telling, {}, keep=[part, telling], telling=telling)
    return _table(part) if isinstance(part, ElfRun) else None


def _table(run: ElfRun) -> NativePart:
    faults = [run.faults] if run.faults else []
    return NativePart(TABLE, _words(*_steps(run)), run.slots(), faults, [run])


def _steps(run: ElfRun) -> tuple[int, int]:
    """A txe_steps."""
    return run.table, run.faults.address if run.faults else 0


def _telling(part: TellingPart) -> NativePart | None:
    """None where it is of another launcher."""
    tell, write = part.tell, part.write
    if not (isinstance(tell, ElfRun) and isinstance(write, ElfRun)):
        return None
    words = _words(*_steps(tell), *_steps(write), *_sizes(part))
    inside = _merged([tell.slots(), write.slots()])
    places = _merged({around: inside.get(own, ())} for around, own in part.shared)
    faults = [run.faults for run in (tell, write) if run.faults]
    return NativePart(TELLING, words, places, faults, [part], words)


def _sizes(told: Told) -> tuple[int, int, int]:
    """The end of a txe_telling."""
    return address_of(told.told), address_of(told.expected), len(told.expected)


def _told_alone(told: LoopCount | BranchSizes | GivenSizes) -> Array:
    """A txe_telling of sizes that are there already."""
    nothing = 0, 0
    return _words(*nothing, *nothing, *_sizes(told))


def _chosen(branch: NativePart, sizes: BranchSizes) -> NativePart:
    """A branch that tells the sizes of its results."""
    telling = _told_alone(sizes)
    words = _words(
        address_of(branch.words), len(sizes.names), address_of(sizes.told),
        address_of(sizes.otherwise), address_of(sizes.holding), TELLING, address_of(telling),
    )  # fmt: skip
    keep = [branch, sizes, telling]
    return NativePart(CHOSEN, words, branch.places, branch.faults, keep, telling)


def _counted(loop: NativePart, count: LoopCount) -> NativePart:
    """A loop that tells how often it ran."""
    telling = _told_alone(count)
    words = _words(
        address_of(loop.words), count.room, address_of(count.told), TELLING, address_of(telling)
    )
    keep = [loop, count, telling]
    return NativePart(COUNTED, words, loop.places, loop.faults, keep, telling)


def _grown(loop: NativePart, results: Array, more: Array, count: LoopCount) -> NativePart:
    """A loop that tells sizes that are larger after each run. ``results``: rows of txe_result, and
    by how many bytes each is larger.
    """
    telling = _told_alone(count)
    arrays = map(address_of, (count.told, count.begins, count.steps))
    words = _words(
        address_of(loop.words), count.room, len(results), address_of(results), address_of(more),
        len(count.told), *arrays, TELLING, address_of(telling),
    )  # fmt: skip
    keep = [loop, results, more, count, telling]
    return NativePart(GROWN, words, loop.places, loop.faults, keep, telling)


def _told(part: Part) -> Told | None:
    """What a part tells."""
    if isinstance(part, LoopPart):
        return part.count
    if isinstance(part, BranchPart):
        return part.sizes
    return part if isinstance(part, TellingPart | GivenSizes) else None


def _changing(
    parts: Sequence[Part], native: Sequence[NativePart], buffers: int, sizes: ChangingSizes
) -> list[NativePart]:
    """The parts, those that tell with what binds all up to the next one for other sizes.
    ``buffers``: how many the plan has. Raises OverflowError for sizes of more than 64 bits.
    """
    telling = [(i, told) for i, p in enumerate(parts) if (told := _told(p)) is not None]
    known, changed = {*sizes.symbols} - sizes.told, _words(0)
    made = list(native)
    for n, (i, told) in enumerate(telling):
        follows = telling[n + 1][0] if n + 1 < len(telling) else len(parts)
        arguments = [_own_arguments(told, told.write)] if isinstance(told, TellingPart) else []
        arguments += [
            _Arguments(p, buffers) for p in parts[i + 1 : follows] if isinstance(p, ElfRun)
        ]
        following = parts[follows] if follows < len(parts) else None
        if isinstance(following, TellingPart):
            arguments.append(_own_arguments(following, following.tell))
        at = [(name in sizes.told - known, sizes.symbols.index(name)) for name in told.names]
        place = _words(*(i if fresh else -1 - i for fresh, i in at))
        known |= {*told.names}
        conditions = [*sizes.conditions.get(i, ()), *_room(told, sizes.inside)]
        binding, telling_words = _SizesBinding(arguments, conditions, sizes), native[i].telling
        assert telling_words is not None
        first = int(n == 0)
        words = _words(
            *telling_words, address_of(place), address_of(sizes.values),
            address_of(changed), first, 0, *binding.words,
        )  # fmt: skip
        found = _merged([native[i].places, *(a.places for a in arguments)])
        keep = [*native[i].keep, place, changed, binding]
        made[i] = native[i].changing(words, found, keep)
    return made


def _room(part: Told, inside: bool) -> list[Assumption]:
    """That there is some for what a step works in; and where threads share the work, that what was
    found to be worth sharing holds, unless it is inside of a body: there that is worth less than
    going on.
    """
    if not isinstance(part, TellingPart):
        return []
    found = [Assumption(part.scratch.nbytes, ">=", part.workspace)]
    assert isinstance(part.write, ElfRun)
    if part.write.threads > 1 and not inside:
        for name, size in zip(part.names, part.expected.tolist(), strict=True):
            found.append(Assumption(NEAR * size, ">=", sym(name)))
            found.append(Assumption(NEAR * sym(name), ">=", size))
    return found


class _Arguments:
    """The arguments of a table, to be filled in again. ``places``: words that hold where buffers of
    the plan lie.
    """

    def __init__(self, run: ElfRun, buffers: int) -> None:
        self.run = run
        self.addresses = np.zeros(buffers, np.int64)
        first = address_of(self.addresses)
        self.places: Places = {b: [(first + 8 * b, 0)] for b in run.slots()}


def _own_arguments(part: TellingPart, run: Runnable) -> _Arguments:
    """Of one half of a step, over its own buffers."""
    assert isinstance(run, ElfRun)
    made = _Arguments(run, len(part.shared) + 2)
    made.addresses[-2:] = address_of(part.scratch), address_of(part.told)
    own = [{around: made.places.get(mine, ())} for around, mine in part.shared]
    made.places = _merged(own)
    return made


class _SizesBinding:
    """``words``: the end of a txe_changing: arithmetic, inputs and bindings."""

    def __init__(
        self,
        arguments: Sequence[_Arguments],
        conditions: Sequence[Assumption],
        sizes: ChangingSizes,
    ) -> None:
        dims = [d for a in arguments for d in a.run.formulas]
        named = frozenset[str]().union(*map(symbols, dims), *(c.symbols for c in conditions))
        taken = sorted(named)
        writer = ArithmeticWriter(taken)
        for c in conditions:
            writer.operation(c.relation, writer.dim(c.left), writer.dim(c.right))
        arithmetic = writer.arithmetic([writer.dim(d) for d in dims])
        self._arithmetic = NativeArithmetic(arithmetic)
        self._inputs = _words(*(sizes.symbols.index(s) for s in taken))
        rows, at = [], address_of(self._arithmetic.results)
        for a in arguments:
            rows.append(_words(*a.run.binding(address_of(a.addresses), at)))
            at += 8 * len(a.run.formulas)
        self._rows, self._arguments = rows, arguments
        self._pointers = _words(*map(address_of, rows))
        self.words = (
            self._arithmetic.address, len(taken), address_of(self._inputs),
            len(rows), address_of(self._pointers),
        )  # fmt: skip


def _branch(branch: BranchPart) -> NativePart:
    bodies = [_Body(branch.otherwise), _Body(branch.holding)]
    words = _words(0, *(b.program.address for b in bodies))
    condition = {branch.condition: [(address_of(words), 0)]}
    places = _merged([condition, *(b.places() for b in bodies)])
    return NativePart(BRANCH, words, places, [f for b in bodies for f in b.program.faults], bodies)


def _loop(loop: LoopPart) -> NativePart:
    body = _Body(loop.body)
    moves, results = _Moves(), _Moves()
    for s in loop.states:
        _carry(s, body.inside, moves, results)
    for r in loop.rows:
        _slide(r, body.inside, moves)
    for p in loop.progressions:
        moves.add((p.address, 0, p.first, p.first, p.step))
    grows = loop.count is not None and not _counts_rows(loop)
    most = address_of(loop.most) if not isinstance(loop.most, int) else 0
    told = [address_of(x) if x is not None else 0 for x in (loop.counter, loop.going)]
    tables = moves.table, _Moves().table if grows else results.table
    words = _loop_words((0, 0), (most, 0), (*told, loop.runs), body.program.address, *tables)
    first = address_of(words)
    own: dict[int, list[tuple[int, int]]] = {}
    if isinstance(loop.most, int):
        own.setdefault(loop.most, []).append((first + 8 * MOST, 0))
    if loop.start >= 0:
        own.setdefault(loop.start, []).append((first + 8 * START, 0))
    places = _merged([own, moves.places(), results.places(), body.places()])
    keep = [loop, body, moves, results]
    made = NativePart(LOOP, words, places, body.program.faults, keep)
    if loop.count is None:
        return made
    more = _words(*(s.more for s in loop.states))
    return _grown(made, results.table, more, loop.count) if grows else _counted(made, loop.count)


def _counts_rows(loop: LoopPart) -> bool:
    """Whether what it tells is how often it runs, alone."""
    count = loop.count
    alone = count is not None and [*count.begins, *count.steps] == [0, 1]
    return alone and not any(s.more for s in loop.states)


MOST, START = 3, 4
"""Words of txe_loop that hold addresses of buffers around it."""


def _loop_words(
    runs: tuple[int, int],
    most: tuple[int, int],
    told: Sequence[int],
    body: int,
    moves: Array,
    results: Array,
) -> Array:
    """A txe_loop. ``runs``: the first, and the one before which to end. ``most``: its addresses of
    how often and of whether to start. ``told``: of the counter and of what ends it, and how many
    runs there must be.
    """
    tables = (len(moves), address_of(moves), len(results), address_of(results))
    return _words(0, *runs, *most, 0, *told, body, *tables)


class _Moves:
    """Rows of five words, and those of them that hold addresses of buffers around."""

    def __init__(self) -> None:
        self._rows: list[Sequence[int]] = []
        self._words: list[tuple[int, int, int]] = []  # buffer, word, bytes behind its start

    def add(self, row: Sequence[int], *words: tuple[int, int, int]) -> None:
        """``words``: buffer, column and bytes."""
        first = 5 * len(self._rows)
        self._words += [(buffer, first + column, more) for buffer, column, more in words]
        self._rows.append(row)

    @functools.cached_property
    def table(self) -> Array:
        return np.array(self._rows, np.int64).reshape(-1, 5)

    def places(self) -> Places:
        first, out = address_of(self.table), dict[int, list[tuple[int, int]]]()
        for buffer, word, more in self._words:
            out.setdefault(buffer, []).append((first + 8 * word, more))
        return out


FIRST, EVEN, ODD = 1, 2, 3
"""Columns of txe_move behind the slot."""


def _carry(s: CarriedState, inside: Places, moves: _Moves, results: _Moves) -> None:
    """The last run writes the second place, the result, where nothing ends the loop before."""
    spare = address_of(s.spare) if s.spare is not None else 0
    for slot, more in inside.get(s.read, ()):
        row = (slot, 0, 0, spare + more, 0)
        given, result = (s.given, FIRST, more), (s.result, EVEN, more)
        alone = [] if spare else [(s.result, ODD, more)]
        moves.add(row, given, result, *alone)
    for slot, more in inside.get(s.written, ()):
        alone = [] if spare else [(s.result, EVEN, more)]
        moves.add((slot, 0, spare + more, 0, 0), (s.result, ODD, more), *alone)
    first = [] if spare else [(s.result, 1, 0)]
    row = (0, spare, 0, 0, s.nbytes)
    results.add(row, (s.given, 0, 0), *first, (s.result, 2, 0), (s.result, 3, 0))


def _slide(r: LoopRows, inside: Places, moves: _Moves) -> None:
    for slot, more in inside.get(r.inside, ()):
        where = r.first + more
        words = ((r.around, column, where) for column in (EVEN, ODD))
        moves.add((slot, 0, 0, 0, r.stride), *words)


class _Body:
    """A body in a part. ``inside``: words by its own buffers."""

    def __init__(self, body: NestedBody) -> None:
        assert isinstance(body.program, ElfProgram)
        self.program, self._shared, self._kept = body.program, body.shared, body.fixed
        self.inside = self.program.places
        for buffer, memory in body.fixed:
            fill(self.inside.get(buffer, ()), address_of(memory))

    def places(self) -> Places:
        """Words by the buffers around it."""
        return _merged([{around: self.inside.get(own, ())} for around, own in self._shared])


def _merged(found: Iterable[Places]) -> Places:
    out: dict[int, list[tuple[int, int]]] = {}
    for places in found:
        for buffer, words in places.items():
            out.setdefault(buffer, []).extend(words)
    return out


def fill(words: Iterable[tuple[int, int]], address: int) -> None:
    """The words hold an address from now on."""
    for word, more in words:
        ctypes.c_int64.from_address(word).value = address + more


def _words(*values: int) -> Array:
    return np.array(values, np.int64)


class ElfProgram:
    """Parts of one plan. ``places``: words that hold where its buffers lie."""

    def __init__(
        self,
        executor: Executor,
        parts: Sequence[NativePart],
        addresses: Sequence[int],
        moving: Sequence[int],
    ) -> None:
        self.executor, self._parts = executor, parts
        self.places = _merged(p.places for p in parts)
        self.faults = list(dict.fromkeys(f for p in parts for f in p.faults))
        for p in parts:
            for buffer, words in p.places.items() if p.kind != TABLE else ():
                fill(words, addresses[buffer])
        rows = [(p.kind, address_of(p.words)) for p in parts]
        self._rows = np.array(rows, np.int64).reshape(-1, 2)
        self._words = _words(len(rows), address_of(self._rows), 0)
        self.address, self._at = address_of(self._words), memoryview(self._words.data)[2:]
        self._addresses = np.zeros(max(1, len(moving)), np.int64)
        self._write = struct.Struct(f"={len(moving)}q").pack_into
        self._where = memoryview(self._addresses.data).cast("B")
        told = [
            (word, i, more)
            for i, buffer in enumerate(moving)
            for word, more in self.places.get(buffer, ())
        ]
        self._told = np.array(told, np.int64).reshape(-1, 3)
        self._run = self._runs(self.address)

    def place(self, addresses: Sequence[int]) -> None:
        self._write(self._where, 0, *addresses)

    def __call__(self) -> int | None:
        return int(self._at[0]) if self._run() == DEPARTED else None

    def iterate(self, iteration: Iteration, start: int, stop: int) -> int:
        """As ``NativeProgram.iterate``."""
        rows = [
            *self._moved(iteration.moves),
            *((p.address, 0, p.first, p.first, p.step) for p in iteration.progressions),
        ]
        moves = np.array(rows, np.int64).reshape(-1, 5)
        told, none = (iteration.counter, iteration.going, -1), _Moves().table
        loop = _loop_words((start, stop), (0, 0), told, self.address, moves, none)
        part = _words(LOOP, address_of(loop))
        around = _words(1, address_of(part), 0)
        self._runs(address_of(around))()
        return int(loop[1])

    def _moved(self, moves: Sequence[Displacement]) -> Iterator[tuple[int, ...]]:
        """Rows of txe_move: one for each word that holds where a moved buffer lies."""
        for m in moves:
            for word, more in self.places.get(m.buffer, ()):
                yield word, *(p + more for p in (m.first, *m.places)), m.stride

    def _runs(self, program: int) -> _Runs:
        """Of the program at that address, at the places that this one is told."""
        told, addresses = address_of(self._told), address_of(self._addresses)
        start = _words(program, OVER, len(self._told), told, addresses)
        return _Runs(self.executor, start, self.faults)


class _Runs:
    """Calls of the program of a txe_start."""

    def __init__(self, executor: Executor, start: Array, faults: Sequence[Faults]) -> None:
        self._words, self._state, self._faults = start, memoryview(start.data), faults
        self._advance = executor.advancer(address_of(start))

    def __call__(self) -> int:
        """How it ended. Raises ExecutionError for what a kernel refused."""
        self._state[1] = OVER  # of a run that was stopped nothing stays
        while self._advance():
            pass  # between two turns Python raises what signals ask for
        how: int = self._state[1]
        if how not in (OVER, DEPARTED):
            self._fail()
        return how

    def _fail(self) -> None:
        for f in self._faults:
            if f.flag[0]:
                f.fail()
        what = "a loop ran another number of times than the shapes of its outputs say"
        raise ExecutionError(what, do="Build the plan again")
