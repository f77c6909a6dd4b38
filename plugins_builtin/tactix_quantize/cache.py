"""Scales in the text form of TensorRT's calibration caches.

    TRT-8401-EntropyCalibration2
    input: 3c010a14

A scale is the largest magnitude divided by 127: eight hexadecimal digits, the bits of a float32.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping

from tactix.base.errors import InvalidArgument

STEPS = 127
"""The largest integer that stands for a magnitude."""
ALGORITHMS = {
    "tactix.entropy2": "EntropyCalibration2",
    "tactix.entropy": "EntropyCalibration",
    "tactix.minmax": "MinMaxCalibration",
    "tactix.legacy": "LegacyCalibration",
}
"""What TensorRT calls its calibrators in the first line."""
VERSION = "TRT-8401"
"""The one of TensorRT that wrote this form last changed; every one reads it."""
_HEAD = re.compile(r"TRT-\d+-\w+")
_LINE = re.compile(r"(.+): ([0-9a-fA-F]{1,8})")

Range = tuple[float, float]


def encode(ranges: Mapping[str, Range], calibrator: str = "tactix.entropy2") -> bytes:
    """The text of ranges by tensor name; ``calibrator``: the key of what found them."""
    lines = [f"{VERSION}-{algorithm_of(calibrator)}"]
    for name, (low, high) in ranges.items():
        scale = max(abs(low), abs(high)) / STEPS
        lines.append(f"{name}: {struct.pack('>f', scale).hex()}")
    return ("\n".join(lines) + "\n").encode()


def algorithm_of(calibrator: str) -> str:
    """What TensorRT calls a calibrator, by its key; its default for one that it does not have."""
    return ALGORITHMS.get(calibrator, "EntropyCalibration2")


def algorithm(text: bytes) -> str:
    """What TensorRT calls the calibrator that found the ranges of a cache."""
    return text.decode().splitlines()[0].strip().split("-", 2)[2]


def decode(text: bytes, who: str = "") -> dict[str, Range]:
    """Symmetric ranges by tensor name. ``who``: the file, for errors. Raises InvalidArgument for
    what is no cache.
    """
    cure = "Remove it, and calibrate again"
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError as e:
        raise InvalidArgument("no calibration cache", who=who, why=str(e), do=cure) from None
    if not lines or not _HEAD.fullmatch(lines[0].strip()):
        why = f"its first line is {lines[0][:40]!r}" if lines else "it is empty"
        raise InvalidArgument("no calibration cache", who=who, why=why, do=cure)
    out = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            name, scale = _entry(line, number, who)
            out[name] = (-scale * STEPS, scale * STEPS)
    return out


def _entry(line: str, number: int, who: str) -> tuple[str, float]:
    found = _LINE.fullmatch(line.strip())
    scale = math.nan if found is None else struct.unpack(">f", bytes.fromhex(found[2].zfill(8)))[0]
    if found is None or not (math.isfinite(scale) and scale >= 0):
        why = f"line {number} is {line[:60]!r}, not a name and the bits of a scale"
        do = "Remove it, and calibrate again"
        raise InvalidArgument("a damaged calibration cache", who=who, why=why, do=do)
    return found[1], scale
