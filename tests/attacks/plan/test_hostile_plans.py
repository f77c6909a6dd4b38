"""The corpus: every plan of it is refused for the reason that it was made for, with a typed error,
in little memory.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
from plan_hostile import CASES
from plan_samples import opened, plans, sealed
from plan_trial import ROOM, peak

import tactix
from tactix.base.errors import ExecutionError, PlanFormatError, TactixError
from tactix.plan import container
from tactix_tools.arrays import random, sizes


def _hostile(samples: dict[str, bytes], name: str) -> bytes:
    sample, change, _ = CASES[name]
    header, rest = opened(samples[sample])
    change(header)
    return sealed(header, rest)


def _used(data: bytes) -> None:
    """As far as a user gets: an engine, and a layout; a plan of numpy steps alone is run."""
    engine = tactix.Runtime(max_threads=1, on_untrusted="allow").deserialize(data)
    context = engine.create_execution_context()
    if {s.artifact.launcher for s in engine.plan.steps} == {"tactix.control@1"}:
        engine(**random(engine.plan, sizes(engine.plan, {})))
    elif not engine.plan.produced:
        context.set_input_shape("x", (2, 20))
        context._needed_memory(engine._program.layout({"batch": 2}))
        engine._program.link()


@pytest.mark.parametrize("name", CASES)
def test_each_is_refused_for_its_reason(samples: dict[str, bytes], name: str) -> None:
    data = _hostile(samples, name)
    with pytest.raises(TactixError, match=CASES[name][2]):
        _used(data)


@pytest.mark.parametrize("name", CASES)
def test_none_takes_much_memory(samples: dict[str, bytes], trial: Any, name: str) -> None:
    data = _hostile(samples, name)
    assert peak(trial, data) <= len(data) + ROOM


def test_the_samples_themselves_pass(samples: dict[str, bytes], trial: Any) -> None:
    found = {name: trial(data, verify=True, more=True) for name, data in samples.items()}
    bound = {"native", "blocked", "branches", "refit"}
    assert found == {name: "bound" if name in bound else "ran" for name in samples}


@pytest.mark.parametrize(
    "text", [b"[" * 1_000_000, b'"' + b'\\"' * 500_000, b'{"a":' * 300_000, b'"' * 999_999]
)
def test_text_that_is_no_json_is_refused_in_time_that_grows_with_it(
    text: bytes, trial: Any
) -> None:
    assert trial(sealed(text)) == "PlanFormatError"


@pytest.mark.parametrize("unit", [b"\\u4e00", b"\\n", b'\\"', b"\\\\", b"\\ud83d\\ude00"])
def test_escapes_take_memory_in_proportion_to_their_text(unit: bytes, trial: Any) -> None:
    text = b'{"blobs":{},"name":"' + unit * (6_000_000 // len(unit)) + b'"}'
    assert peak(trial, sealed(text)) <= 6 * len(text)


@pytest.mark.parametrize("symbol", ["_handle", "__init__", "a\0b", "no_such_kernel", "\u00e9"])
def test_a_symbol_is_looked_up_in_the_code_alone(samples: dict[str, bytes], symbol: str) -> None:
    header, rest = opened(samples["native"])
    header["steps"][0]["artifact"]["code"]["symbol"] = symbol
    for launch in header["steps"][0]["artifact"]["launches"]:
        launch.pop("symbol", None)
    engine = tactix.Runtime(max_threads=1, on_untrusted="allow").deserialize(sealed(header, rest))
    with pytest.raises(ExecutionError, match="no kernel"):
        engine._program.link()


def test_bodies_share_the_weights_that_they_name(samples: dict[str, bytes]) -> None:
    """A hundred bodies over one weight do not take a hundred copies of it, even from bytes that are
    not aligned.
    """
    header, rest = opened(samples["numpy"])
    body = {k: v for k, v in opened(samples["numpy"])[0].items() if k != "blobs"}
    header["steps"][0]["plans"] = [body] * 100
    data = b"x" + sealed(header, rest)
    program = tactix.Runtime(on_untrusted="allow").deserialize(memoryview(data)[1:])._program
    assert len({id(p.weights) for p in program.bodies[0]} | {id(program.weights)}) == 1


# -- files ---------------------------------------------------------------------------------------


def _message(path: Path) -> str:
    with pytest.raises(PlanFormatError) as caught:
        container.load(path, verify=True)
    return str(caught.value)


def test_messages_name_the_file_what_is_wrong_and_what_to_do(
    samples: dict[str, bytes], tmp_path: Path
) -> None:
    data, path = samples["numpy"], tmp_path / "some.plan"
    body, weight = bytearray(data), bytearray(data)
    body[100] ^= 1
    weight[
        data.index(bytes(next(b for b in plans()["numpy"].blobs.values() if len(b) == 480)))
    ] ^= 1
    version = bytearray(data)
    struct.pack_into("<I", version, 8, 2)
    for content, what in (
        (
            data[:-1],
            f"the file has {len(data) - 1} bytes, its prologue says {len(data)}: it was cut off",
        ),
        (data[:40], "too short for a tactix plan"),
        (b"", "that is empty"),
        (data + b"\n", "something was added"),
        (b"PK\3\4" * 100, "not a tactix plan"),
        (bytes(body), "the header does not fit its sha256"),
        (bytes(weight), "content does not fit its sha256"),
        (bytes(version), "plan format 2"),
    ):
        path.write_bytes(content)
        found = _message(path)
        assert found.startswith(f"{path}: ")
        assert what in found
        assert re.search(r"\. Build (the plan again|it here)", found)


def test_a_file_says_which_field_is_wrong(samples: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "some.plan"
    path.write_bytes(_hostile(samples, "flag_for_integer"))
    assert _message(path).startswith(
        f"{path}: header.inputs[0].buffer: expected an integer, found True"
    )


def test_a_signature_of_nothing_is_refused(samples: dict[str, bytes]) -> None:
    header, rest = opened(samples["numpy"])
    with pytest.raises(PlanFormatError, match="the signature does not fit its sha256"):
        container.load(sealed(header, rest, zero=16))
    with pytest.raises(PlanFormatError, match="a signature of 1000000"):
        container.load(sealed(header, rest, zero=1_000_000))
