from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument
from tactix.base.tensor import LINEAR, NHWC, Format, TensorSpec, blocked


@pytest.mark.parametrize("dtype", [d for d in DType if not d.on_host])
def test_dtype_and_its_numpy_twin(dtype: DType) -> None:
    assert DType.of(dtype.numpy) is dtype
    assert DType.of(dtype.value) is dtype
    assert DType.of(dtype) is dtype
    assert dtype.itemsize == dtype.numpy.itemsize
    zero = np.zeros(3, dtype.numpy)
    assert zero.nbytes == 3 * dtype.itemsize


def test_kinds_of_dtypes() -> None:
    eight = {"FP8", "FP8E5M2", "FP8FNUZ", "FP8E5M2FNUZ", "FP8E8M0"}
    assert {d.name for d in DType if d.is_float} == {"FP64", "FP32", "FP16", "BF16", "FP4", *eight}
    assert {d.name for d in DType if d.is_signed_int} == {
        "INT64",
        "INT32",
        "INT16",
        "INT8",
        "INT4",
        "INT2",
    }
    assert {d.name for d in DType if d.is_int} == {
        f"{u}INT{b}" for u in ("", "U") for b in (64, 32, 16, 8, 4, 2)
    }
    assert DType.of(np.dtype("U5")) is DType.STRING
    assert {d.name for d in DType if d.on_host} == {"STRING", "SEQUENCE", "OPTIONAL", "MAP"}
    with pytest.raises(DTypeError, match="no tactix dtype for"):
        DType.of(np.dtype("datetime64[s]"))


SHAPES = [
    (2, 5, 3, 4),
    (1, 16, 2, 2),
    (3, 1, 7, 1),
    (2, 33, 5),
    (4, 17),
    (1, 3, 2, 2, 2),
    (0, 5, 2, 2),
]


@pytest.mark.parametrize("fmt", [LINEAR, NHWC, blocked(4), blocked(16)])
@pytest.mark.parametrize("shape", SHAPES)
def test_packing_round_trip(fmt: Format, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    packed = fmt.pack(x)
    assert packed.shape == fmt.storage_shape(shape)
    assert packed.flags.c_contiguous
    np.testing.assert_array_equal(fmt.unpack(packed, shape), x)
    assert TensorSpec(DType.FP32, shape).nbytes(fmt) == packed.nbytes


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_hold_channels_together_and_zeros_past_them(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).integers(1, 100, shape).astype(np.int32)
    packed = blocked(16).pack(x)
    for c in range(packed.shape[1] * 16):
        lane = packed[:, c // 16, ..., c % 16]
        np.testing.assert_array_equal(lane, x[:, c] if c < shape[1] else np.zeros_like(lane))


def test_channels_last() -> None:
    x = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(NHWC.pack(x), x.transpose(0, 2, 3, 1))


def test_formats() -> None:
    assert (LINEAR.lanes, NHWC.lanes, blocked(8).lanes) == (1, 1, 8)
    assert LINEAR.fits(0)
    assert not blocked(16).fits(1)
    n = sym("n")
    assert blocked(16).storage_shape((n, 33, 7)) == (n, 3, 7, 16)
    with pytest.raises(InvalidArgument):
        blocked(1)


def test_specs() -> None:
    n = sym("n")
    spec = TensorSpec(DType.FP16, (n, 3, 4))
    assert (str(spec), spec.rank, spec.numel) == ("f16(n, 3, 4)", 3, 12 * n)
    assert spec.nbytes() == 24 * n
    assert spec.at({"n": 5}) == (5, 3, 4)
    assert spec.known() is None
    axes = TensorSpec(DType.INT64, (2,), const=np.array([1, -1]))
    assert axes.is_const
    assert axes.known() == (1, -1)
    assert axes.plain() == TensorSpec(DType.INT64, (2,))
    shape = TensorSpec(DType.INT64, (2,), value=(n, 3))
    assert shape.known() == (n, 3)
    assert TensorSpec(DType.FP32, (1,), const=np.array([1.5], np.float32)).known() is None
    assert TensorSpec(DType.INT64, (2000,), const=np.zeros(2000, np.int64)).known() is None


SHAPES = [
    (2, 32, 1, 1),
    (2, 32, 3, 1),
    (1, 1, 4, 5),
    (1, 8, 1, 3),
    (2, 20, 1),
    (4, 16),
    (1, 5, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_formats_in_which_elements_lie_alike_are_known(shape: tuple[int, ...]) -> None:
    x = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    formats = [LINEAR, NHWC, blocked(8), blocked(16)]
    for a, b in itertools.product(formats, formats):
        same = np.array_equal(a.pack(x).reshape(-1), b.pack(x).reshape(-1))
        assert same or not a.lies_as(b, shape), (a, b)
    assert LINEAR.lies_as(NHWC, shape) == np.array_equal(NHWC.pack(x).reshape(-1), x.reshape(-1))


def test_open_sizes_are_none_that_let_formats_lie_alike() -> None:
    n = sym("n")
    assert NHWC.lies_as(LINEAR, (n, 32, 1, 1))
    assert blocked(16).lies_as(NHWC, (n, 32, 1, 1))
    assert not NHWC.lies_as(LINEAR, (n, 32, n, 1))
    assert not blocked(16).lies_as(LINEAR, (n, n, 1, 1))


def test_a_spec_without_content_is_plain_as_it_is() -> None:
    spec = TensorSpec(DType.INT64, (2,))
    assert spec.plain() is spec
    assert replace(spec, value=(1, 2)).plain() == spec
    assert replace(spec, const=np.zeros(2, np.int64)).plain() == spec
