"""Every name that the tables of programs' names list is there at its level, and is what it was.

``surface.txt``: symbol, kind, and the releases that have it, as counted over programs. Names of
``tensorrt.plugin`` are not among them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SURFACE = Path(__file__).with_name("surface.txt")

ASK = """
import enum
from pathlib import Path
from tactix_tensorrt import api as trt

def kind(symbol):
    found = trt
    for part in symbol.split("."):
        if not hasattr(found, part):
            return "absent"
        owner, found = found, getattr(found, part)
    if symbol.rpartition(".")[2].startswith("__"):
        return "special"
    if isinstance(found, enum.Enum) and symbol.rpartition(".")[2].isupper():
        return "member"
    if isinstance(found, type):
        return "class"
    return "attribute" if "." in symbol else "name"

for line in Path({surface!r}).read_text().splitlines():
    print(line, kind(line.split()[0]))
"""


def told(level: str) -> Iterator[tuple[str, str, str, str]]:
    """Symbol, kind, releases, and what a process of that level finds."""
    run = subprocess.run(
        [sys.executable, "-c", ASK.format(surface=str(SURFACE))],
        env={**os.environ, "TACTIX_TENSORRT_LEVEL": level},
        capture_output=True,
        text=True,
        check=True,
    )
    for line in run.stdout.splitlines():
        symbol, kind, releases, found = line.split()
        yield symbol, kind, releases, found


def expected(kind: str, releases: str, level: str) -> str:
    return kind if level.split(".")[0] in releases.split("+") else "absent"


@pytest.mark.parametrize("level", ["10.16", "11.1"])
def test_each_name_is_there_at_its_level(level: str) -> None:
    rows = list(told(level))
    assert len(rows) > 300
    wrong = [
        f"{symbol}: {found}, not {wanted}"
        for symbol, kind, releases, found in rows
        if found != (wanted := expected(kind, releases, level))
    ]
    assert wrong == []


OLD = "ICudaEngine.num_bindings IExecutionContext.set_binding_shape INetworkDefinition.add_pooling"


@pytest.mark.parametrize("level", ["8.6", "10.16"])
def test_names_of_the_release_before_are_there_on_request(level: str) -> None:
    ask = f"from tactix_tensorrt import api as trt\nfor s in {OLD.split()!r}:\n"
    ask += "    print(hasattr(getattr(trt, s.split('.')[0]), s.split('.')[1]))"
    env = {**os.environ, "TACTIX_TENSORRT_LEVEL": level}
    out = subprocess.run(
        [sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True
    )
    assert set(out.stdout.split()) == {str(level == "8.6")}


ENUMERATIONS = Path(__file__).with_name("enumerations.txt")

LIST = """
import enum
from tactix_tensorrt import api as trt

for name, found in vars(trt).items():
    if isinstance(found, type) and issubclass(found, enum.Enum):
        print(name, *(f"{n}={int(m)}" for n, m in found.__members__.items()))
"""


def enumerations(level: str) -> dict[str, list[str]]:
    """What the bindings of that release have, of what has a line."""
    rows = [line.split() for line in ENUMERATIONS.read_text().splitlines() if line[0] != "#"]
    return {name: members for at, name, *members in rows if at == level}


def listed(level: str) -> dict[str, list[str]]:
    """What a process of that level has."""
    env = {**os.environ, "TACTIX_TENSORRT_LEVEL": level}
    run = subprocess.run(
        [sys.executable, "-c", LIST], env=env, capture_output=True, text=True, check=True
    )
    return {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines()}


@pytest.mark.parametrize("level", ["10.16", "11.1"])
def test_enumerations_have_the_members_the_numbers_and_the_order_of_their_release(
    level: str,
) -> None:
    expected = {**enumerations("10.16"), **enumerations(level)}
    if level == "11.1":
        for gone in ("CalibrationAlgoType", "QuantizationFlag"):
            del expected[gone]
    assert listed(level) == expected


def test_numbers_of_what_was_there_before_are_those_of_that_release() -> None:
    found = listed("8.6")
    for name, members in enumerations("8.6").items():
        assert set(members) <= set(found[name]), name
    assert found["BuilderFlag"] == enumerations("8.6")["BuilderFlag"]
