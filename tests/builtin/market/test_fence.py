"""Fences: memory that tells who goes beside it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from tactix_isolate.fence import FILL, MOAT, PAGE, Fence
from tactix_isolate.process import outside, place

SIZES = [0, 1, 63, 64, 100, PAGE - 4, PAGE, PAGE + 4, 3 * PAGE + 20]


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("alignment", [1, 4, 64])
@pytest.mark.parametrize("size", SIZES)
def test_a_buffer_ends_or_begins_at_its_moat(size: int, alignment: int, at_end: bool) -> None:
    fence = Fence(size, alignment, at_end)
    low, high = fence.reach
    assert fence.address % alignment == 0
    assert fence.content.nbytes == size
    if at_end:
        assert 0 <= high - MOAT - (fence.address + size) < alignment
    else:
        assert fence.address == low + MOAT
    assert (fence.content == FILL).all()
    fence.content[:] = 1
    assert fence.damage() is None


def test_what_is_written_beside_a_buffer_is_found() -> None:
    for offset in (-1, -100, 100, 127):
        fence = Fence(100, 1, False) if offset > 0 else Fence(100, 64, True)
        ctypes.memset(fence.address + offset, 7, 1)
        assert fence.damage() == offset


WRITE = """
import ctypes
from tactix_isolate.fence import Fence
fence = Fence({size}, {alignment}, {at_end})
{more}
ctypes.memset(fence.address + {offset}, 7, 1)
print("survived")
"""


@pytest.mark.parametrize(
    ("size", "alignment", "at_end", "offset", "survives"),
    [
        (100, 4, True, 99, True),
        (100, 4, True, 100, False),
        (100, 64, False, -1, False),
        (100, 4, True, 500_000, False),
    ],
)
def test_the_moat_ends_the_process(
    size: int, alignment: int, at_end: bool, offset: int, survives: bool
) -> None:
    text = WRITE.format(size=size, alignment=alignment, at_end=at_end, offset=offset, more="")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.stdout == "survived\n") == survives, done.stderr
    assert (done.returncode == 0) == survives


def test_what_is_closed_to_writers_can_be_read() -> None:
    text = WRITE.format(
        size=8,
        alignment=1,
        at_end=True,
        offset=0,
        more="fence.close_to_writers(); print(fence.content[0], flush=True)",
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{FILL}\n"
    assert done.returncode < 0
    fence = Fence(8, 1, True)
    fence.content[:] = np.arange(8)
    fence.close_to_writers()
    assert fence.content.tolist() == list(range(8))


def test_places_in_words() -> None:
    row = ("output 0", 10_000, 100, 9_000, 12_000)
    assert place(10_100, *row) == "past the end of output 0 (100 bytes), at byte 100"
    assert place(9_996, *row) == "before the begin of output 0 (100 bytes), at byte -4"
    assert place(12_000, *row) == ""
    assert outside("input 2", 5, 100) == "at byte 5 of input 2, which is not to be written"
