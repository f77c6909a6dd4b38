"""Scales in TensorRT's text form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import quantized_networks as networks
from kept_log import KeptLog

from tactix import Calibration
from tactix.api import configure
from tactix.base.errors import InvalidArgument
from tactix.builder import Builder
from tactix_quantize.cache import decode, encode
from tactix_quantize.stage import Int8Stage

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


TENSORS = ["x", "stem/relu", "first/relu", "second", "sum/relu", "flat"]
"""Those that the products of ``networks.residual`` read."""


def warnings(calibration: Calibration) -> str:
    """What a build of ``networks.residual`` with this calibration warns of."""
    log = KeptLog()
    builder = Builder(log)
    config = configure(None, precision="int8", calibration=calibration, level=0)
    Int8Stage().join(builder.session, config).network(networks.residual(builder))
    return "\n".join(log.warnings)


def written(folder: Path, names: list[str], scale: float = 0.5, key: str = "") -> Path:
    ranges = dict.fromkeys(names, (-scale * 127, scale * 127))
    (folder / "it.cache").write_bytes(encode(ranges, key))
    return folder / "it.cache"


def test_names_of_a_cache_that_the_model_has_not_are_told(tmp_path: Path) -> None:
    cache = written(tmp_path, [*TENSORS, "other", "(Unnamed Layer* 3) [Constant]_output"])
    assert "1 of 7 names in it are no tensors of the model: other" in warnings(
        Calibration(cache=cache, symmetric=True)
    )


@pytest.mark.parametrize("names", [["x", "a", "b"], ["a"], []])
def test_a_cache_of_another_model_is_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"is of another model.*calibrate again"):
        warnings(Calibration(cache=written(tmp_path, names)))


def test_a_cut_cache_tells_what_stays_float(tmp_path: Path) -> None:
    told = warnings(Calibration(cache=written(tmp_path, TENSORS[:2])))
    assert "4 of 6 tensors that products read have no scale, and stay float" in told
    assert "first/relu" in told


def test_samples_and_a_calibrator_that_a_cache_stands_for_are_told(tmp_path: Path) -> None:
    cache = written(tmp_path, TENSORS, key="tactix.minmax")
    assert warnings(Calibration(cache=cache)) == ""
    assert warnings(Calibration(None, "minmax", cache)) == ""
    told = warnings(Calibration(networks.samples(1), "entropy2", cache))
    assert "so that no samples are read" in told
    assert "is of MinMaxCalibration, not of" in told
    assert "EntropyCalibration2" in told


def test_a_scale_of_zero_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    cache = written(tmp_path, [*TENSORS, "stem"])
    cache.write_bytes(cache.read_bytes().replace(b"stem: 3f000000", b"stem: 00000000"))
    assert warnings(Calibration(cache=cache)) == ""
    cache.write_bytes(cache.read_bytes().replace(b"flat: 3f000000", b"flat: 00000000"))
    with pytest.raises(InvalidArgument, match=r"scale 0 for flat.*calibrate again"):
        warnings(Calibration(cache=cache))
    assert warnings(Calibration(cache=cache, ranges={"flat": (-1.0, 1.0)})) == ""


def test_a_cache_that_is_written_makes_ranges_symmetric_and_says_so(tmp_path: Path) -> None:
    samples = networks.samples(1)
    told = warnings(Calibration(samples, cache=tmp_path / "one.cache"))
    assert "a cache holds symmetric ranges only" in told
    assert warnings(Calibration(samples, cache=tmp_path / "two.cache", symmetric=True)) == ""


def test_a_cache_in_no_folder_is_refused_before_samples_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no folder"):
        warnings(Calibration(networks.samples(1), cache=tmp_path / "no" / "it.cache"))
