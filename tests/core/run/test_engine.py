"""Calling engines: what is taken, what is refused and with which words, what comes out."""

from __future__ import annotations

import copy
import ctypes
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import (
    DTypeError,
    ExecutionError,
    InvalidArgument,
    PlanFormatError,
    PluginError,
    ShapeError,
)
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.flavour import Options
from tactix.contracts.launcher import Operand
from tactix.plan import container
from tactix.plan.schema import Buffer, TensorIO
from tactix.run.arrays import address_of, as_input
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime

Feeds = Callable[..., dict[str, Any]]


@pytest.fixture
def engine(sample: Any, session: Any) -> Engine:
    return Runtime(session=session).load(sample.plan())


def _check(engine: Engine, got: Any, sample: Any, feeds: dict[str, Any], depth: int = 1) -> None:
    y, h = sample.expected(feeds["x"], feeds["bias"], depth)
    np.testing.assert_allclose(got["y"], y, rtol=1e-5)
    np.testing.assert_allclose(got["h"], h, rtol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 64])
def test_all_ways_to_call(engine: Engine, sample: Any, feeds: Feeds, rows: int) -> None:
    f = feeds(rows)
    for got in (engine(f["x"], f["bias"]), engine(**f), engine(f), engine(f["x"], bias=f["bias"])):
        assert list(got) == ["y", "h"]
        _check(engine, got, sample, f)


def test_a_single_output_comes_alone(sample: Any, session: Any, feeds: Feeds) -> None:
    plan = sample.plan()
    plan = replace(
        plan,
        outputs=plan.outputs[:1],
        steps=plan.steps[:-1],
        buffers=tuple(
            replace(b, kind="arena", first=0, last=0) if b.name == "h" else b for b in plan.buffers
        ),
    )
    f = feeds(3)
    got = Runtime(session=session).load(plan)(**f)
    np.testing.assert_allclose(got, sample.expected(f["x"], f["bias"])[0], rtol=1e-5)


def test_every_call_gives_new_arrays(engine: Engine, feeds: Feeds) -> None:
    f = feeds(2)
    a, b = engine(f), engine(f)
    assert not np.shares_memory(a["y"], b["y"])
    before = a["y"].copy()
    engine(feeds(2, 1))
    np.testing.assert_array_equal(a["y"], before)


def test_arrays_that_are_not_contiguous_read_only_or_misaligned(
    engine: Engine, sample: Any, feeds: Feeds
) -> None:
    f = feeds(4)
    wide = np.zeros((8, 6), np.float32)
    wide[::2, ::2] = f["x"]
    raw = bytearray(4 * 4 + 1)
    odd = np.frombuffer(raw, np.float32, 4, 1)
    odd[:] = f["bias"]
    assert not odd.flags.aligned
    for x in (
        wide[::2, ::2],
        np.asfortranarray(f["x"]),
        np.frombuffer(f["x"].tobytes(), np.float32).reshape(4, 3),
    ):
        _check(engine, engine(x, odd), sample, f)
    assert np.array_equal(wide[::2, ::2], f["x"])


class _OnlyDLPack:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class _OnlyArray:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(0, 0)])
@pytest.mark.parametrize("writeable", [True, False])
def test_where_arrays_over_memory_of_others_start(part: slice, writeable: bool) -> None:
    memory = (ctypes.c_char * 40)()
    whole = np.ndarray((5,), np.float64, memory)
    part_of_it = whole[part]
    part_of_it.flags.writeable = writeable
    behind = np.frombuffer(memory, np.uint8, offset=8)
    for array in (part_of_it, behind):
        assert address_of(array) == array.__array_interface__["data"][0]


def test_dlpack_array_likes_and_lists(engine: Engine, sample: Any, feeds: Feeds) -> None:
    f = feeds(2)
    _check(engine, engine(_OnlyDLPack(f["x"]), _OnlyArray(f["bias"])), sample, f)
    numbers = {"x": [[1, 2, 3], [4, 5.5, 6]], "bias": (0, 1)}
    as_arrays = {k: np.array(v, np.float32) for k, v in numbers.items()}
    _check(engine, engine(numbers), sample, as_arrays)


@pytest.mark.parametrize(
    ("dtype", "wrong"), [("u64", -1), ("u8", -1), ("u8", 256), ("i64", 1 << 63), ("i4", -9)]
)
def test_numbers_in_lists_never_wrap(dtype: str, wrong: int) -> None:
    io = TensorIO("x", 0, DType(dtype), (1,))
    for right in (0, 1 << 63 if dtype == "u64" else 7, -8 if dtype[0] == "i" else 1):
        assert as_input(io, [right]).tolist() == [right]
    with pytest.raises(DTypeError, match="which cannot hold all of the given numbers"):
        as_input(io, [wrong])


def test_wrong_names_are_told_with_the_right_ones(engine: Engine, feeds: Feeds) -> None:
    f = feeds(2)
    expected = r"Expected: x: f32\(batch, 3\), bias: f32\(batch\)"
    with pytest.raises(
        InvalidArgument, match=r"no input is named 'z'.*no array for 'bias'.*" + expected
    ):
        engine(x=f["x"], z=f["bias"])
    with pytest.raises(InvalidArgument, match=r"3 positional arguments for 2 inputs.*" + expected):
        engine(f["x"], f["bias"], f["x"])
    with pytest.raises(InvalidArgument, match=r"'x' given twice"):
        engine(f["x"], f["bias"], x=f["x"])
    with pytest.raises(InvalidArgument, match=r"'x' given twice"):
        engine(f, x=f["x"])
    with pytest.raises(InvalidArgument, match=r"no array for 'x', 'bias'"):
        engine()


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, np.int32, np.dtype(">f4"), np.complex64, np.bool_]
)
def test_dtypes_are_never_converted(engine: Engine, feeds: Feeds, dtype: Any) -> None:
    f = feeds(2)
    with pytest.raises(DTypeError, match=r"'x' is f32, got"):
        engine(np.ones((2, 3), dtype), f["bias"])


def _retyped(operands: Sequence[Operand], bias: TensorSpec) -> tuple[Operand, ...]:
    """With the bias, buffer 1, read as what it is."""
    return tuple(replace(o, spec=bias) if o.buffer == 1 else o for o in operands)


def test_numbers_that_would_lose_something(sample: Any, session: Any) -> None:
    plan = sample.plan(2)
    for given, dtype in (
        ([0.5, 1], DType.INT64),
        ([300, 1], DType.UINT8),
        ([-1, 1], DType.UINT8),
        ([2, 1], DType.BOOL),
        ([1e300, 1], DType.FP32),
        ([2**17, 1], DType.FP16),
    ):
        ios = (plan.inputs[0], TensorIO("bias", 1, dtype, (2,)))
        buffers = (
            plan.buffers[0],
            Buffer("input", "bias", dtype, (2,), LINEAR, 2 * dtype.itemsize),
            *plan.buffers[2:],
        )
        steps = tuple(
            replace(s, inputs=_retyped(s.inputs, TensorSpec(dtype, (2,)))) for s in plan.steps
        )
        engine = Runtime(session=session).load(
            replace(plan, inputs=ios, buffers=buffers, steps=steps)
        )
        with pytest.raises(DTypeError, match="'bias'"):
            engine([[1, 2, 3]] * 2, given)
    for junk in ("text", object(), [[1], [2, 3]], b"12", None, {1, 2}, [10**400], ["1"]):
        with pytest.raises(InvalidArgument, match="'x'"):
            Runtime(session=session).load(plan)(junk, [1, 2])


def test_wrong_shapes_say_what_was_expected(engine: Engine, feeds: Feeds) -> None:
    f = feeds(2)
    with pytest.raises(ShapeError, match=r"'x' is \(batch, 3\), got \(2, 4\)"):
        engine(np.zeros((2, 4), np.float32), f["bias"])
    with pytest.raises(ShapeError, match=r"'x' is \(batch, 3\), of rank 2, got \(6\)"):
        engine(np.zeros(6, np.float32), f["bias"])
    with pytest.raises(
        ShapeError, match=r"inputs 'x' and 'bias' disagree on dimension 'batch': 2 and 3"
    ):
        engine(f["x"], np.zeros(3, np.float32))
    with pytest.raises(
        ShapeError, match=r"'batch' of input 'x' is 65.*profile 'default' takes 0 to 64"
    ):
        engine(**feeds(65))
    assert engine(**f)["y"].shape == (2, 20)  # a refused call changes nothing


def test_any_of_several_profiles_will_do(sample: Any, session: Any, feeds: Feeds) -> None:
    plan = sample.plan(profile=(1, 2, 3))
    second = replace(plan.profiles[0], name="large", dims={"batch": (10, 10, 12)})
    engine = Runtime(session=session).load(replace(plan, profiles=(*plan.profiles, second)))
    for rows in (1, 3, 10, 12):
        _check(engine, engine(**feeds(rows)), sample, feeds(rows))
    with pytest.raises(
        ShapeError, match=r"no profile takes batch = 5.*1 to 3.*'large' takes batch 10 to 12"
    ):
        engine(**feeds(5))


def test_facts(engine: Engine) -> None:
    assert [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)] == [
        "x",
        "bias",
        "y",
        "h",
    ]
    assert [engine.get_tensor_mode(n) for n in ("x", "bias", "y", "h")] == [
        "input",
        "input",
        "output",
        "output",
    ]
    assert engine.get_tensor_shape("y") == (sym("batch"), 20)
    assert engine.get_tensor_dtype("bias") is DType.FP32
    assert (
        repr(engine)
        == "<engine affine: x: f32(batch, 3), bias: f32(batch) -> y: f32(batch, 20), h: f32(batch, 20)>"
    )
    for index in (4, -1, "x", 0.5):
        with pytest.raises(InvalidArgument, match="the engine has 4"):
            engine.get_tensor_name(index)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"'q'.*There are: x, bias"):
        engine.get_tensor_shape("q")


def test_contexts_and_engines_of_no_file_are_neither_copied_nor_pickled(engine: Engine) -> None:
    for thing in (engine, engine.create_execution_context()):
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(InvalidArgument, match="Save the plan"):
                way(thing)


def test_memory_of_shapes_and_profiles(sample: Any, session: Any) -> None:
    engine = Runtime(session=session).load(sample.plan(depth=5))
    row = 32 * 4  # 20 channels in c16
    assert engine.device_memory_size({"x": (3, 3), "bias": (3,)}) == 2 * 3 * row
    assert engine.device_memory_size() == 2 * 64 * row
    for shape in (3, (2.5, 3), ("2", 3), None):
        with pytest.raises(ShapeError, match=r"x: .* is no shape"):
            engine.device_memory_size({"x": shape, "bias": (3,)})  # type: ignore[dict-item]
    unlimited = Runtime(session=session).load(sample.plan(profile=(0, 2, None)))
    with pytest.raises(ShapeError, match="no highest"):
        unlimited.device_memory_size()
    fixed = Runtime(session=session).load(sample.plan(4, depth=3))
    assert fixed.device_memory_size() == 2 * 4 * row


def test_inspect_is_json(sample: Any, session: Any) -> None:
    found = Runtime(session=session).load(sample.plan(depth=5)).inspect()
    assert json.loads(json.dumps(found)) == found
    assert found["inputs"][0] == {"name": "x", "dtype": "f32", "shape": ["batch", 3]}
    assert [s["name"] for s in found["steps"]] == [
        "fc",
        "add0",
        "add1",
        "add2",
        "add3",
        "add4",
        "again",
    ]
    assert found["steps"][1]["inputs"][0] == "f32(batch, 20) c16"
    assert found["steps"][1]["tactic"] == "test.numpy@1"
    assert found["memory"] == {"weights": 240, "arena": 512, "lower_bound": 512, "ratio": 1.0}


def test_what_is_no_plan_is_named(session: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"load takes a Plan, got a str\. Give files and bytes to"
    ):
        Runtime(session=session).load("x.plan")  # type: ignore[arg-type]


@pytest.mark.parametrize("copy_weights", [False, True])
def test_save_and_load(
    sample: Any, session: Any, feeds: Feeds, tmp_path: Path, copy_weights: bool
) -> None:
    path = tmp_path / "m.plan"
    Runtime(session=session).load(sample.plan(depth=3)).save(path)
    runtime = Runtime(session=session, copy_weights=copy_weights)
    for source in (path, str(path), path.read_bytes(), bytearray(b"x" + path.read_bytes())[1:]):
        engine = runtime.deserialize(source)
        _check(engine, engine(**feeds(5)), sample, feeds(5), 3)
        assert container.dump(engine.plan) == path.read_bytes()


def test_an_engine_outlives_its_plan_and_file(
    sample: Any, session: Any, feeds: Feeds, tmp_path: Path
) -> None:
    path = tmp_path / "m.plan"
    container.save(sample.plan(), path)
    engine = Runtime(session=session).deserialize(path)
    path.unlink()
    kept = engine.plan
    _check(engine, engine(**feeds(5)), sample, feeds(5))
    del engine
    assert bytes(kept.blobs["w"]) == sample.plan().blobs["w"]


def test_threads_share_an_engine(
    sample: Any, session: Any, feeds: Feeds, in_four_threads: Any
) -> None:
    engine = Runtime(session=session).load(sample.plan(depth=3))

    def work(seed: int) -> None:
        for i in range(200):
            f = feeds(1 + (seed + i) % 9, seed * 1000 + i)
            _check(engine, engine(**f), sample, f, 3)

    in_four_threads(work)


def test_a_step_that_fails_is_named(sample: Any, session: Any, feeds: Feeds) -> None:
    plan = sample.plan()
    for layer, why in (
        (sample.layers[2], "ZeroDivisionError: on purpose"),
        (sample.layers[3], "float64"),
    ):
        bad = sample.step("bad", layer, layer.Attrs(), plan.steps[1].inputs, plan.steps[1].outputs)
        engine = Runtime(session=session).load(
            replace(plan, steps=(plan.steps[0], bad, plan.steps[2]))
        )
        with pytest.raises(ExecutionError, match=rf"bad: {layer.key} failed: .*{why}"):
            engine(**feeds(2))


def test_an_operand_larger_than_its_buffer_is_refused_when_shapes_are_known(
    sample: Any, session: Any, feeds: Feeds
) -> None:
    plan = sample.plan()
    small = tuple(replace(b, nbytes=1000) if b.kind == "arena" else b for b in plan.buffers)
    engine = Runtime(session=session).load(replace(plan, buffers=small))
    _check(engine, engine(**feeds(7)), sample, feeds(7))
    with pytest.raises(ShapeError, match="larger than its buffer"):
        engine(**feeds(8))


def test_a_size_that_divides_by_zero_or_is_absurd(sample: Any, session: Any, feeds: Feeds) -> None:
    plan = sample.plan()
    n = sym("batch")
    for nbytes in (n * 128 // (n - 2), n * (1 << 60)):
        buffers = tuple(replace(b, nbytes=nbytes) if b.kind == "arena" else b for b in plan.buffers)
        engine = Runtime(session=session).load(replace(plan, buffers=buffers))
        with pytest.raises(ShapeError, match=r"makes no sense|divides by zero"):
            engine(**feeds(2))


def test_an_invalid_plan_in_memory_is_refused(sample: Any, session: Any) -> None:
    with pytest.raises(PlanFormatError):
        Runtime(session=session).load(replace(sample.plan(), blobs={}))


def test_an_engine_without_an_inspector_says_so(sample: Any, session: Any) -> None:
    (device,) = session.devices.values()
    with pytest.raises(PluginError, match="no inspector"):
        Engine(sample.plan(), session, device, Options()).inspect()
