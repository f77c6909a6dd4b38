"""The check ``allocator`` catches allocators that are wrong in one way each, and leaves right ones
alone.
"""

from __future__ import annotations

import pytest
from sdk_site import Site

from tactix_sdk.testing import CHECKS, FAILED, NOTHING, PASSED, SKIPPED, Broken, Outcome, outcome
from tactix_sdk.testing.report import child

HOOK = """

@pack.allocator
def given():
    from acme_heap.layers import Heap

    return [Heap()]
"""
HEAP = """
import ctypes
import mmap
import threading

from tactix_sdk import errors


class Heap:
    key, device = "acme_heap.heap", "cpu"

    def __init__(self):
        self.held, self.other, self.lock = {}, {}, threading.RLock()

    def allocate(self, size, alignment=64, stream=0):
        try:
            raw = ctypes.create_string_buffer(size + alignment)
        except MemoryError as e:
            raise errors.AllocationError(f"no {size} bytes", who=self.key, why=str(e)) from None
        start = ctypes.addressof(raw)
        address = -(-start // alignment) * alignment
        with self.lock:
            self.held[address] = raw
        return address

    def deallocate(self, address, stream=0):
        with self.lock:
            del self.held[address]
"""
TAKE = "        try:\n            raw"
PER_THREAD = "class Own(threading.local):\n    def __init__(self):\n        self.held = {}\n\n\nclass Heap(Own):"
BUMP = """        if size < 1 << 20:
            self.arena = self.other.setdefault(0, mmap.mmap(-1, 1 << 26))
            self.end = getattr(self, "end", ctypes.addressof(ctypes.c_char.from_buffer(self.arena)))
            address = -(-self.end // alignment) * alignment
            self.end = address + size + 1
            self.held[address] = None
            return address
"""
NEVER = "            self.other[address] = self.held.pop(address)"
GONE = "            del self.held[address]"
FAULTS: dict[str, tuple[tuple[str, str], str]] = {
    "not aligned": (("address = -(-start // alignment) * alignment", "address = start"), "no multiple of 64"),
    "aligned to 64 at most": (("start = ", "alignment = min(alignment, 64)\n        start = "), "no multiple of 256"),
    "no integer": (("return address", "return float(address)"), "no integer"),
    "freed while held": (("self.held[address] = raw", "self.held[address] = None"), ""),
    "one address for all that is empty": ((TAKE, f"        if not size:\n            return 4096\n{TAKE}"), "4096"),
    "one piece for two": (
        ("start = ", "raw = self.other.setdefault(size, raw)\n        start = "), "overlap"),
    "changed when another goes": (
        (GONE, f"{GONE}\n            [ctypes.memset(a, 1, 1) for a in self.held]"), "changed while"),
    "an untyped error": (("except MemoryError", "except ZeroDivisionError"), "not by AllocationError"),
    "what is not there": ((TAKE, f"        if size > 1 << 40:\n            return 0\n{TAKE}"), "there are"),
    "no use after a refusal": (
        ("raise errors", "self.held = None\n            raise errors"), "More than there is: TypeError"),
    "a lock that is not reentrant": (("threading.RLock()", "threading.Lock()"), "no end after 10 s"),
    "memory of a thread": (("class Heap:", PER_THREAD), "Threads that have and give back at once"),
    "two threads, one address": ((TAKE, f"{BUMP}{TAKE}"), "Threads that have and give back at once"),
    "never given back": ((GONE, NEVER), "are kept"),
    "no streams": (("alignment=64, stream=0", "alignment=64"), "TypeError"),
    "not enough for an engine": (
        (TAKE, f"        size += (400_000 < size < 700_000) << 60\n{TAKE}"), "Engines in its memory: AllocationError"),
    "the end of the process": ((TAKE, f"        if size == 4097:\n            ctypes.string_at(8)\n{TAKE}"),
                               "ended the process: Pieces of many sizes"),
}  # fmt: skip
BOARD_HOOK = """

@pack.device
def given():
    from acme_heap.layers import Board

    return [Board()]
"""
BOARD = '''

import dataclasses
from collections import defaultdict

from tactix_cpu.device import CpuDevice


class Board(CpuDevice):
    """Memory of its own, reached by copies alone; streams that run beside the caller."""

    key, kind, host_memory = "acme_heap.board@1", "acme_heap", False

    def properties(self):
        return dataclasses.replace(super().properties(), kind=self.kind)


class Pool(Heap):
    """Pieces of a size that came back in a stream are for that stream."""

    device = "acme_heap"

    def __init__(self):
        super().__init__()
        self.ready, self.sizes = defaultdict(list), {}

    def allocate(self, size, alignment=64, stream=0):
        with self.lock:
            ready = self.ready[size, alignment, stream]
            address = ready.pop() if ready else super().allocate(size, alignment)
            self.sizes[address] = size, alignment
            return address

    def deallocate(self, address, stream=0):
        with self.lock:
            self.ready[(*self.sizes.pop(address), stream)].append(address)
'''


def found(site: Site, heap: str, hook: str = HOOK) -> Outcome:
    """What the check says of a pack with that text."""
    changes = {"layers.py": lambda text: text + heap, "__init__.py": lambda text: text + hook}
    return outcome(CHECKS["allocator"], site.new("acme-heap", changes, layer=True))


def test_one_that_is_right_passes(site: Site) -> None:
    got = found(site, HEAP)
    assert (got.state, got.script) == (PASSED, ""), got.said
    assert got.said.startswith("acme_heap.heap: 65 pieces, 4 threads, engines in ")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(site: Site, name: str) -> None:
    (old, new), said = FAULTS[name]
    assert HEAP.count(old) == 1
    got = found(site, HEAP.replace(old, new))
    assert got.state == FAILED, got.said
    assert said in got.said
    if "no end" in said:  # one wait is enough
        return
    with pytest.raises(Broken):
        child(got.script)


def test_a_large_alignment_may_be_refused(site: Site) -> None:
    refuse = (
        f'        if alignment > 256:\n            raise errors.InvalidArgument("too much")\n{TAKE}'
    )
    got = found(site, HEAP.replace(TAKE, refuse))
    assert (got.state, got.said[:26]) == (PASSED, "acme_heap.heap: 52 pieces,")


def test_a_device_with_memory_of_its_own(site: Site) -> None:
    got = found(site, HEAP + BOARD, HOOK.replace("Heap", "Pool") + BOARD_HOOK)
    assert got.state == PASSED, got.said
    assert "2 streams, no engine: " in got.said


def test_a_pool_that_forgets_the_order_of_streams_is_caught(site: Site) -> None:
    board = BOARD.replace("self.ready[size, alignment, stream]", "self.ready[size, alignment]")
    board = board.replace(
        "self.ready[(*self.sizes.pop(address), stream)]", "self.ready[self.sizes.pop(address)]"
    )
    got = found(site, HEAP + board, HOOK.replace("Heap", "Pool") + BOARD_HOOK)
    assert got.state == FAILED, got.said
    assert "in the order of streams: 5000 bytes at" in got.said
    assert "changed while they were held" in got.said


def test_what_is_not_there_is_said(site: Site) -> None:
    nothing = outcome(CHECKS["allocator"], site.new("acme-swish", layer=True))
    assert (nothing.state, nothing.said) == (NOTHING, "the pack has no allocators")
    away = found(site, HEAP.replace('"cpu"', '"acme_heap"'))
    assert (away.state, away.said) == (SKIPPED, "acme_heap.heap: no device of kind 'acme_heap'")
