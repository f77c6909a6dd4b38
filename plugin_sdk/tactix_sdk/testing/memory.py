"""Allocators: pieces are aligned and apart, whoever asks and when; engines run in them, and leave
nothing behind.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tactix import Builder, BuilderConfig, Runtime
from tactix.base.errors import AllocationError, CompilerError, InvalidArgument, NoTacticError
from tactix.contracts.allocator import Allocator
from tactix_sdk.testing.pieces import Counted, Interrupted, Pieces
from tactix_sdk.testing.report import Broken, NotHere, NothingToRun, check, child
from tactix_sdk.testing.subject import Subject

SIZES = (0, 1, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 70_001, 3 << 20, (2 << 20) + 1)
ALIGNMENTS = (1, 8, 64, 256, 4096)
SURE = 256
"""The largest alignment that no allocator may refuse."""
TOO_MUCH = 1 << 50
WORKERS, TURNS = 4, 40
LARGE, OFTEN = 4 << 20, 48
"""Bytes that are had and given back so often."""
RESIDENT = Path("/proc/self/statm")
CODE = """\
from tactix_sdk.testing import Subject, memory
print(memory.tried(Subject({dist!r}), {key!r}))
"""


@check("allocator")
def allocator(subject: Subject) -> str:
    """Pieces of memory are aligned and apart in all threads and streams; engines run in them and
    leave nothing.
    """
    found = subject.entries("allocators", subject.fresh("runtime"))
    if not found:
        raise NothingToRun("the pack has no allocators")
    told = {e.key: json.loads(child(CODE.format(dist=subject.dist, key=e.key))) for e in found}
    away = {key: t["away"] for key, t in told.items() if "away" in t}
    here = "; ".join(f"{key}: {t['done']}" for key, t in told.items() if "done" in t)
    if not here:
        raise NotHere("; ".join(f"{key}: {why}" for key, why in away.items()))
    return here + (f"; not here: {', '.join(away)}" if away else "")


@dataclass(frozen=True)
class Lent:
    """What a step works with. ``pieces``: none at first, none in the end."""

    subject: Subject
    pieces: Pieces


def tried(subject: Subject, key: str) -> str:
    """What was done with one allocator, or why it is not here, as JSON. Raises Broken; the process
    may end, too.
    """
    session = subject.fresh("runtime")
    own = session.allocators[key]
    devices = [d for d in session.devices.values() if d.kind == own.device]
    why = devices[0].available() if devices else f"no device of kind {own.device!r}"
    if away := why or within(60, partial(_missing, own), key):
        return json.dumps({"away": away})
    lent, done = Lent(subject, Pieces(own, devices[0])), []
    for step, seconds in STEPS.items():
        words = " ".join((step.__doc__ or "").split()).rstrip(".")
        print(f"{key} ended the process: {words}", file=sys.stderr, flush=True)
        done.append(within(seconds, partial(step, lent), f"{key}: {words}"))
    return json.dumps({"done": ", ".join(filter(None, done))})


def _missing(own: Allocator) -> str:
    """Why it has not even little memory: what it is over is not there."""
    try:
        own.deallocate(own.allocate(64))
    except AllocationError as e:
        return str(e)
    return ""


def within(seconds: float, work: Callable[[], str | None], about: str) -> str | None:
    """What ``work`` gives, in a thread. Raises Broken for its errors, and where it takes longer."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(work())
        except Exception as e:
            got.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not got:
        raise Broken(f"{about}: no end after {seconds} s")
    if isinstance(e := got[0], Exception):
        raise Broken(
            f"{about}: {e if isinstance(e, Broken) else f'{type(e).__name__}: {e}'}"
        ) from e
    return got[0]  # type: ignore[no-any-return]


def sizes(lent: Lent) -> str:
    """Pieces of many sizes and alignments at once, given back in turns."""
    pieces, refused = lent.pieces, set[int]()
    for alignment in ALIGNMENTS:
        for size in SIZES:
            try:
                pieces.take(size, alignment)
            except InvalidArgument:
                if alignment <= SURE:
                    raise
                refused.add(alignment)
        for address in list(pieces.allocated)[::3]:
            pieces.give(address)
    pieces.clear()
    return f"{len(SIZES) * (len(ALIGNMENTS) - len(refused))} pieces"


def again(lent: Lent) -> None:
    """Pieces that are given back and had again."""
    for turn in range(200):
        lent.pieces.take(SIZES[turn * 7 % 11])
        if turn % 3:
            lent.pieces.give(list(lent.pieces.allocated)[turn * 13 % len(lent.pieces.allocated)])
    lent.pieces.clear()


def refused(lent: Lent) -> None:
    """More than there is."""
    lent.pieces.take(1000)
    for _ in range(3):
        try:
            address = lent.pieces.allocator.allocate(TOO_MUCH)
        except AllocationError:
            lent.pieces.take(70_001)
        except Exception as e:
            raise Broken(
                f"{TOO_MUCH} bytes are refused by {type(e).__name__} ({e}), not by AllocationError"
            ) from e
        else:
            raise Broken(f"there are {TOO_MUCH} bytes at {address!r}")
    lent.pieces.clear()


def collected(lent: Lent) -> None:
    """Pieces that the garbage collector gives back in the middle of other calls."""
    pieces = lent.pieces
    spare = [pieces.take(size) for size in (64, 1000, 5000) * 40]
    inside = Pieces(
        Interrupted(pieces.allocator, lambda: pieces.give(spare.pop()) if spare else None),
        pieces.device,
    )
    inside.allocated, inside.seed = pieces.allocated, 1000
    for size in (64, 1000, 70_001) * 40:
        inside.give(inside.take(size))
    pieces.clear()


def threads(lent: Lent) -> str:
    """Threads that have and give back at once."""
    own = lent.pieces
    pieces = Pieces(Interrupted(own.allocator, lambda: time.sleep(0)), own.device)
    start = threading.Barrier(WORKERS)

    def work(seed: int) -> None:
        mine: list[int] = []
        start.wait()
        for turn in range(TURNS):
            mine.append(pieces.take(SIZES[(turn * 7 + seed) % 10]))
            if turn % 3:
                pieces.give(mine.pop(turn * 5 % len(mine)))

    _all(work, WORKERS)
    pieces.clear()  # by another thread than had them
    return f"{WORKERS} threads"


def _all(work: Callable[[int], None], count: int) -> None:
    """In threads. Raises the first error."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, i) for i in range(count)]:
            done.result()


def streams(lent: Lent) -> str:
    """Pieces in the order of streams."""
    pieces = lent.pieces
    if pieces.device.host_memory:
        return ""
    try:
        first, second = pieces.device.create_stream(), pieces.device.create_stream()
    except NotImplementedError:
        return ""
    for turn in range(12):
        late = pieces.reserve(5000, 64, first.handle)
        first.submit(partial(_slowly, pieces, late, pieces.allocated[late]))
        del pieces.allocated[late]
        pieces.allocator.deallocate(late, first.handle)
        handle = (0, second.handle, first.handle)[turn % 3]
        new = pieces.reserve(5000, 64, handle)
        later = (first, second)[handle != first.handle]
        later.submit(partial(pieces.write, new, pieces.allocated[new]))
        first.synchronize()
        second.synchronize()
        pieces.look(new)
    for turn, address in enumerate(list(pieces.allocated)):
        pieces.give(address, (0, first.handle, second.handle)[turn % 3])
    return "2 streams"


def _slowly(pieces: Pieces, address: int, content: Any) -> None:
    time.sleep(0.02)
    pieces.write(address, content)


def given_back(lent: Lent) -> None:
    """What is given back is free for others."""
    if not lent.pieces.device.host_memory or not RESIDENT.exists():
        return
    before = resident()
    for _ in range(OFTEN):
        lent.pieces.give(lent.pieces.take(LARGE))
    if (more := resident() - before) > LARGE * OFTEN // 2:
        mib = LARGE >> 20
        raise Broken(
            f"{OFTEN} times {mib} MiB were had and given back one after the other, "
            f"{more >> 20} MiB are kept"
        )


def resident() -> int:
    """Bytes of memory that this process has now."""
    import mmap

    return int(RESIDENT.read_text().split()[1]) * mmap.PAGESIZE


def engines(lent: Lent) -> str:
    """Engines in its memory."""
    counted = Counted(lent.pieces.allocator)
    try:
        plan = _plan(lent)
    except (CompilerError, NoTacticError) as e:
        return f"no engine: {e}"
    want = _answers(lent, plan, "")
    got = _answers(lent, plan, counted)
    gc.collect()
    if not counted.calls:
        raise Broken("an engine asked for no memory")
    if got != want:
        raise Broken("an engine gives other answers than in tactix's own memory")
    if counted.wrong or counted.live:
        left = sum(counted.live.values())
        raise Broken(
            f"{len(counted.wrong)} pieces went back that were not held, "
            f"{left} bytes are left of an engine"
        )
    return f"engines in {counted.calls} pieces"


def _plan(lent: Lent) -> Any:
    """Two products with half a megabyte between them at a batch of 256; the host may do what the
    device cannot.
    """
    import numpy as np

    builder = Builder(session=lent.subject.fresh("build"))
    network, rng = builder.create_network("products"), np.random.default_rng(3)
    y = network.add_input("x", "f32", ("n", 16))
    for k, n in ((16, 512), (512, 16)):
        (y,) = network.add_layer(
            "tactix.MatMul", [y, network.add_constant(rng.standard_normal((k, n), np.float32))]
        )
        (y,) = network.add_layer("tactix.Relu", [y])
    network.mark_output(y, "y")
    config = BuilderConfig(
        device=lent.pieces.device.key, builder_optimization_level=0, timing_cache=False
    )
    return builder.build_plan(network, config)


def _answers(lent: Lent, plan: Any, memory: Any) -> list[bytes]:
    """Of two contexts in two threads, at sizes that grow and shrink; their weights are in the
    memory, too.
    """
    import numpy as np

    runtime = Runtime(
        session=lent.subject.fresh("runtime"),
        allocator=memory,
        copy_weights=True,
        on_untrusted="allow",
    )
    engine = runtime.load(plan)
    out: dict[tuple[int, int], bytes] = {}

    def work(i: int) -> None:
        context = engine.create_execution_context()
        for n in (3, 256, 1, 300):
            x = np.random.default_rng(n).standard_normal((n, 16), np.float32)
            out[i, n] = context.run({"x": x})["y"].tobytes()

    _all(work, 2)
    return [out[key] for key in sorted(out)]


STEPS: dict[Callable[[Lent], str | None], int] = {
    sizes: 60,
    again: 60,
    refused: 60,
    collected: 10,
    threads: 60,
    streams: 60,
    given_back: 60,
    engines: 240,
}
"""Each with the seconds that it may take."""
