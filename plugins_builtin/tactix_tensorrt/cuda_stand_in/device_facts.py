"""What the stand-in says of its "device": enough for programs that ask before they allocate."""

from __future__ import annotations

import os

NAME = "tactix stand-in (host memory, no GPU)"
VERSION = 12090
"""CUDA 12.9, the last release whose Python package has all names that programs import."""
CAPABILITY = (8, 0)
"""Programs choose precisions by it: what they find is what an A100 has. No kernel is run by it."""

FACTS = {
    1: 1024,
    2: 1024,
    3: 1024,
    4: 64,
    5: 2**31 - 1,
    6: 65535,
    7: 65535,
    8: 49152,
    9: 65536,
    10: 32,
    11: 2**31 - 1,
    12: 65536,
    14: 512,
    16: os.cpu_count() or 1,
    18: 1,
    19: 1,
    31: 1,
    39: 2048,
    41: 1,
    75: CAPABILITY[0],
    76: CAPABILITY[1],
    78: 1,
    81: 167936,
    82: 65536,
    83: 1,
    88: 1,
    89: 1,
    97: 166912,
    99: 1,
    100: 1,
    101: 1,
    106: 32,
    115: 1,
}
"""Values of device attributes by number; others are 0. Sizes in bytes: blocks and shared memory as
of compute capability 8.0, and memory that the host shares.
"""
