"""What passes through the window of a streamed engine lies in the plan's file, whatever its table
of blobs says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_samples import opened, sealed

import tactix
from tactix.base.errors import PlanFormatError
from tactix.plan import container
from tactix_runtime.streaming.pages import Pages

WIDTH = 64
LAYERS = 4
BYTES = WIDTH * WIDTH * 4
X = np.ones((1, WIDTH), np.float32)

Table = dict[str, list[Any]]
Change = Callable[[dict[str, Any], Table, list[str]], None]


@functools.cache
def plan_file() -> bytes:
    """Products by LAYERS weights of BYTES each, which numpy steps read: it needs no trust."""
    builder = tactix.Builder()
    net = builder.create_network()
    rng = np.random.default_rng(3)
    y = net.add_input("x", "f32", [1, WIDTH])
    for _ in range(LAYERS):
        (y,) = net.add_layer(
            "tactix.MatMul", [y, net.add_constant(rng.standard_normal((WIDTH, WIDTH), np.float32))]
        )
        (y,) = net.add_layer("tactix.Softmax", [y])
    net.mark_output(y, "y")
    flags = {tactix.BuilderFlag.WEIGHT_STREAMING}
    config = tactix.BuilderConfig(
        builder_optimization_level=0,
        tactic_sources={"numpy", "view"},
        timing_cache=False,
        flags=flags,
    )
    return container.dump(builder.build_plan(net, config))


def written(tmp_path: Path, change: Change | None = None) -> Path:
    """The file with another header, whose digests are right: it is mapped, as only then weights are
    pages.
    """
    header, rest = opened(plan_file())
    if change:
        table: Table = header["blobs"]
        change(header, table, sorted(table, key=lambda name: table[name][0]))
    path = tmp_path / "m.plan"
    path.write_bytes(sealed(header, rest))
    return path


def move(index: int, to: int) -> Change:
    def change(header: dict[str, Any], table: Table, names: list[str]) -> None:
        table[names[index]][0] += to

    return change


def size(index: int, nbytes: int) -> Change:
    """Of a blob, and of the buffers that it fills, so that they agree."""

    def change(header: dict[str, Any], table: Table, names: list[str]) -> None:
        table[names[index]][1] = nbytes
        for b in header["buffers"]:
            if b["blob"] == names[index]:
                b["nbytes"], b["shape"] = nbytes, [nbytes // 4]

    return change


def lay_over(header: dict[str, Any], table: Table, names: list[str]) -> None:
    """Two weights in one place."""
    table[names[1]][0] = table[names[0]][0]


def swap(header: dict[str, Any], table: Table, names: list[str]) -> None:
    """A weight names no blob that there is."""
    next(b for b in header["buffers"] if b["blob"] == names[0])["blob"] = "elsewhere"


HOSTILE: dict[str, Change] = {
    "behind the file": move(-1, 1 << 20),
    "a page further": move(-1, 4096),
    "far away": move(-1, 1 << 61),
    "before the file": move(0, -4096),
    "past its end": size(-1, BYTES + 4096),
    "huge": size(-1, 1 << 61),
    "no number of bytes": size(-1, -BYTES),
    "into the next": size(0, 2 * BYTES),
    "over another": lay_over,
    "nowhere": swap,
}


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ranges that pages were worked out of, and what was asked of the system."""
    found: list[str] = []
    for name in ("_range", "_advise"):
        was = getattr(Pages, name)
        monkeypatch.setattr(
            Pages, name, lambda *a, was=was, name=name: (found.append(name), was(*a))[1]
        )
    return found


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_weights_outside_their_file_are_refused_before_a_page_is_touched(change, tmp_path, touched):
    with pytest.raises(PlanFormatError):
        tactix.Runtime(max_threads=1).deserialize(written(tmp_path, change))
    assert not touched


def test_the_sound_plan_streams(tmp_path, touched):
    engine: Any = tactix.Runtime(max_threads=1).deserialize(written(tmp_path))
    whole = engine(x=X)
    assert engine.streamable_weights_size >= LAYERS * BYTES
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    assert np.array_equal(engine(x=X), whole)
    assert set(touched) == {"_range", "_advise"}


@pytest.mark.parametrize("said", [0, "no", [], {"window": 1 << 61}, [1 << 61]], ids=repr)
def test_a_plan_says_nothing_of_its_window(said, tmp_path, touched):
    def change(header: dict[str, Any], table: Table, names: list[str]) -> None:
        header["meta"]["weight_streaming"] = said

    engine: Any = tactix.Runtime(max_threads=1).deserialize(written(tmp_path, change))
    assert np.isfinite(engine(x=X)).all()
    file = (tmp_path / "m.plan").stat().st_size
    assert getattr(engine, "streamable_weights_size", 0) <= file + LAYERS * 2 * 4096
