"""No step reads beyond what its buffers hold: not a produced one, nor one of a body, nor one on
references.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from plan_samples import BODY, HELD, LOOP, PLAIN, STACKED, opened, produced_plan, sealed

import tactix
from tactix.base.errors import ExecutionError, PlanFormatError, TactixError
from tactix.plan import container

INPUTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "x": np.ones((2, 4), np.float32),
    "which": np.array(True),
    "times": np.array(3),
}


@functools.cache
def plan_file(model: str) -> bytes:
    """A plan of numpy steps and produced ones alone, which need no trust."""
    return container.dump(produced_plan(model))


def changed(model: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """With another header, whose digests are right."""
    header, rest = opened(plan_file(model))
    change(header)
    return sealed(header, rest)


def run(data: bytes, **inputs: Any) -> Any:
    """As by anyone who takes a plan from a stranger."""
    engine = tactix.Runtime(max_threads=1).deserialize(data)
    return engine(**{io.name: inputs.get(io.name, INPUTS[io.name]) for io in engine.inputs})


def plans(header: Any) -> Iterator[Any]:
    """A plan's header and those of its bodies."""
    yield header
    for step in header["steps"]:
        for body in step["plans"]:
            yield from plans(body)


def weights(header: Any) -> Iterator[Any]:
    """Operands that are weights of 64 bytes."""
    for plan in plans(header):
        for step in plan["steps"]:
            for o in step["inputs"]:
                if (
                    o[0] >= 0
                    and plan["buffers"][o[0]]["kind"] == "weight"
                    and plan["buffers"][o[0]]["nbytes"] == 64
                ):
                    yield o


def larger_weight(shape: list[Any]) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        found = list(weights(header))
        assert found
        for o in found:
            o[2] = shape

    return change


def larger_between(shape: list[Any]) -> Callable[[dict[str, Any]], None]:
    """What lies in the arena."""

    def change(header: dict[str, Any]) -> None:
        found = [
            o
            for plan in plans(header)
            for step in plan["steps"]
            for o in step["inputs"]
            if o[0] >= 0 and plan["buffers"][o[0]]["kind"] == "arena"
        ]
        assert found
        for o in found:
            o[2] = shape

    return change


@pytest.mark.parametrize("model", [HELD, BODY], ids=["produced", "body"])
@pytest.mark.parametrize("rows", [5, 1000, 1 << 40])
def test_a_produced_step_reads_no_more_than_its_weight(model: str, rows: int) -> None:
    data = changed(model, larger_weight([rows, 4]))
    with pytest.raises(PlanFormatError, match=f"{rows * 16} bytes"):
        container.load(data)


@pytest.mark.parametrize("model", [HELD, BODY], ids=["produced", "body"])
def test_nor_where_the_shape_is_known_when_it_runs(model: str) -> None:
    data = changed(model, larger_weight([["*", 1000, "n"], 4]))
    with pytest.raises(TactixError, match="is larger than its buffer 'w', which has 64"):
        run(data)


def test_nor_what_a_step_before_it_left_in_the_arena() -> None:
    with pytest.raises(TactixError, match="larger than its buffer 'Relu_0', which has 32"):
        run(changed(HELD, larger_between([["*", 1000, "n"], 4])))


@pytest.mark.parametrize("format", ["nhwc", "c16"])
def test_nor_in_another_format(format: str) -> None:
    def change(header: dict[str, Any]) -> None:
        for o in weights(header):
            o[2:] = [[1000, 4], format]

    with pytest.raises(PlanFormatError, match="bytes"):
        run(changed(HELD, change))


def test_what_an_iteration_hands_on_has_the_dtype_that_the_next_one_takes() -> None:
    """Else the body, bound for the wider one, reads beyond the narrower one."""

    def change(header: dict[str, Any]) -> None:
        (loop,) = (s for s in header["steps"] if s["plans"])
        (body,) = loop["plans"]
        out = next(o for o in body["outputs"] if o["shape"])
        out["dtype"] = "i8"
        body["buffers"][out["buffer"]].update(dtype="i8", nbytes=["*", 4, "n"])
        writer = next(s for s in body["steps"] if s["outputs"][0][0] == out["buffer"])
        writer["outputs"][0][1] = "i8"
        writer["inputs"][0][1] = "i8"
        writer["inputs"][0][0] = next(i["buffer"] for i in body["inputs"] if i["shape"])
        writer["artifact"]["params"] = {"layer": "tactix.Relu@1", "attrs": {}}

    with pytest.raises(ExecutionError, match="is f32, got int8"):
        run(changed(LOOP, change))


def test_an_output_is_written_as_a_whole() -> None:
    """What no step wrote would be whatever lay in this process's memory."""

    def change(header: dict[str, Any]) -> None:
        out = header["outputs"][0]
        out["shape"] = ["n", 4000]
        header["buffers"][out["buffer"]].update(shape=["n", 4000], nbytes=["*", 16000, "n"])

    with pytest.raises(PlanFormatError, match="not written as it is declared"):
        container.load(changed(PLAIN, change))


def test_nor_is_more_read_of_a_buffer_than_was_written() -> None:
    def change(header: dict[str, Any]) -> None:
        first, second = header["steps"]
        header["buffers"][first["outputs"][0][0]]["nbytes"] = ["*", 16000, "n"]
        second["inputs"][0][2] = second["outputs"][0][2] = ["n", 4000]
        out = header["outputs"][0]
        out["shape"] = ["n", 4000]
        header["buffers"][out["buffer"]].update(shape=["n", 4000], nbytes=["*", 16000, "n"])

    with pytest.raises(TactixError, match=r"bytes of buffer|larger than its buffer"):
        run(changed(PLAIN, change))


def test_a_loop_that_never_runs_gives_nothing_of_what_lay_in_memory() -> None:
    """Whatever shape is declared for what no iteration gave."""

    def change(header: dict[str, Any]) -> None:
        (loop,) = (s for s in header["steps"] if s["plans"])
        stacked = loop["outputs"][-1]
        (symbol,) = stacked[2]
        loop["plans"][0]["given"].remove(symbol)
        stacked[2] = [100_000]
        header["buffers"][stacked[0]].update(shape=[100_000], nbytes=400_000)
        next(o for o in header["outputs"] if o["buffer"] == stacked[0])["shape"] = [100_000]

    junk = [np.full(100_000, 7, np.float32) for _ in range(50)]
    del junk
    found = run(changed(STACKED, change), times=np.array(0))
    assert not np.any(found["sums"])


def test_what_was_produced_is_not_written_again() -> None:
    """It may be a view of an input of the caller's."""

    def change(header: dict[str, Any]) -> None:
        step = json.loads(json.dumps(header["steps"][-1]))
        header["steps"].append(step)

    with pytest.raises(PlanFormatError, match="again, which was produced"):
        container.load(changed(HELD, change))


@pytest.mark.parametrize("model", [HELD, BODY, LOOP, STACKED, PLAIN])
def test_the_plans_run_as_they_are(model: str) -> None:
    for which in (True, False):
        run(plan_file(model), which=np.array(which))
