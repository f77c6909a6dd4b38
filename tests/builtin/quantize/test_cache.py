"""Scales in TensorRT's text form."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.errors import InvalidArgument
from tactix_quantize.cache import decode, encode

FOUND = b"""TRT-8401-EntropyCalibration2
data: 3caa54fc
conv1: 3c88edfc
(Unnamed Layer* 1) [Pooling]_output: 0
fc: out: 3DA32F49
"""


def test_a_cache_of_tensorrt_is_read() -> None:
    ranges = decode(FOUND)
    assert list(ranges) == ["data", "conv1", "(Unnamed Layer* 1) [Pooling]_output", "fc: out"]
    scale = np.frombuffer(bytes.fromhex("3caa54fc"), ">f4")[0]
    assert ranges["data"] == (-127 * float(scale), 127 * float(scale))
    assert ranges["(Unnamed Layer* 1) [Pooling]_output"] == (0, 0)


def test_what_is_written_is_read_to_the_bit() -> None:
    assert encode(decode(FOUND)).lower() == FOUND.lower().replace(
        b"output: 0\n", b"output: 00000000\n"
    )


def test_the_larger_end_counts_and_the_calibrator_is_named() -> None:
    text = encode({"x": (-0.5, 127.0), "y": (-254.0, 0.0)}, "tactix.minmax")
    assert text == b"TRT-8401-MinMaxCalibration\nx: 3f800000\ny: 40000000\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is empty"),
        (b"data: 3caa54fc\n", "its first line is 'data: 3caa54fc'"),
        (b"\xff\xfe", "codec"),
        (FOUND + b"more 3caa54fc\n", "line 6 is 'more 3caa54fc'"),
        (FOUND + b"more: 3caa54fcc\n", "line 6 is"),
        (FOUND + b"more: 7f800000\n", "line 6 is"),
        (FOUND + b"more: bf800000\n", "line 6 is"),
    ],
)
def test_what_is_no_cache_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why) as e:
        decode(text, "it.cache")
    assert "it.cache" in str(e.value)
    assert "calibrate again" in str(e.value)
