"""The file: round trip, determinism, mapping, and that every damage is noticed."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tactix.base.errors import PlanFormatError
from tactix.contracts.artifact import Source
from tactix.plan import container
from tactix.plan.schema import Plan, Profile


def test_a_round_trip_keeps_everything(plan: Plan) -> None:
    data = container.dump(plan)
    got = container.load(data, verify=True)
    assert container.dump(got) == data
    for name in (
        "name",
        "inputs",
        "outputs",
        "profiles",
        "buffers",
        "requirements",
        "device",
        "meta",
    ):
        assert getattr(got, name) == getattr(plan, name)
    assert [replace(s, info={}) for s in got.steps] == [replace(s, info={}) for s in plan.steps]
    assert got.steps[0].info["seconds"] == 1e-6
    assert got.ledger == {"rows": [1, 2.5, None, True], "best": None}  # JSON has no infinity
    assert bytes(got.blobs["w"]) == bytes(plan.blobs["w"])
    assert bytes(got.blobs["note"]) == b"kept"


def test_steps_that_run_the_same_are_one_artifact_when_they_are_read(plan: Plan) -> None:
    first, last = plan.steps
    again = replace(last, name="again", artifact=replace(last.artifact))
    other = replace(last, name="other", artifact=replace(last.artifact, host_code=False))
    buffers = [replace(b, last=3) if b.name == "mid" else b for b in plan.buffers]
    steps = (first, last, again, other)
    data = container.dump(replace(plan, steps=steps, buffers=tuple(buffers)))
    _, *read = container.load(data).steps
    assert read[0].artifact is read[1].artifact
    assert [s.artifact for s in read] == [last.artifact, again.artifact, other.artifact]
    assert read[2].artifact != read[0].artifact


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_a_weight_without_content_may_lie_anywhere(plan: Plan, size: int) -> None:
    blobs = {"first": b"", **plan.blobs, "odd": bytes(size), "last": b""}
    data = container.dump(replace(plan, blobs=blobs))
    found = container.load(data).blobs
    assert {k: bytes(found[k]) for k in blobs} == {k: bytes(v) for k, v in blobs.items()}


def test_large_weights_are_summed_up_beside_small_ones(plan: Plan) -> None:
    blobs = {f"b{i}": bytes([i]) * (container.LARGE + i - 2) for i in range(5)}
    got = container.load(container.dump(replace(plan, blobs={**plan.blobs, **blobs})), verify=True)
    assert {k: bytes(got.blobs[k]) for k in blobs} == blobs


def test_equal_plans_give_equal_bytes(plan: Plan) -> None:
    shuffled = replace(
        plan,
        blobs=dict(reversed(list(plan.blobs.items()))),
        meta=dict(reversed(list(plan.meta.items()))),
    )
    assert container.dump(shuffled) == container.dump(plan)


def test_a_saved_file_is_mapped_aligned_and_read_only(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    container.save(plan, path)
    assert path.read_bytes() == container.dump(plan)
    assert [p.name for p in tmp_path.iterdir()] == ["m.plan"]
    got = container.load(path, verify=True)
    view = got.blobs["w"]
    assert view.readonly
    assert np.frombuffer(view, np.uint8).__array_interface__["data"][0] % container.ALIGNMENT == 0
    container.save(got, path)  # over itself, while it is mapped
    assert bytes(view) == bytes(plan.blobs["w"])


def test_a_failed_save_leaves_the_old_file(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    container.save(plan, path)
    step = replace(
        plan.steps[0], artifact=replace(plan.steps[0].artifact, code=Source("c", "text"))
    )
    with pytest.raises(PlanFormatError, match="not compiled"):
        container.save(replace(plan, steps=(step,)), path)
    with pytest.raises(PlanFormatError, match="cannot hold"):
        container.save(replace(plan, meta={"x": object()}), path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.plan"]
    assert container.dump(container.load(path)) == container.dump(plan)


def test_code_is_checked_always_and_weights_on_demand(plan: Plan) -> None:
    data = bytearray(container.dump(plan))
    at = data.index(b"\x7fELF not really")
    data[at + 1] ^= 1
    with pytest.raises(PlanFormatError, match="sha256"):
        container.load(data)
    data[at + 1] ^= 1
    at = data.index(bytes(plan.blobs["w"]))
    data[at] ^= 1
    assert container.load(data).name == plan.name
    with pytest.raises(PlanFormatError, match="blob 'w'"):
        container.load(data, verify=True)


@given(st.integers(0, 1 << 30), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_no_changed_byte_passes(data: bytes, position: int, value: int) -> None:
    damaged = bytearray(data)
    position %= len(damaged)
    if damaged[position] == value:
        value ^= 0x55
    damaged[position] = value
    with pytest.raises(PlanFormatError):
        container.load(damaged, verify=True)


@given(st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_no_truncation_passes(data: bytes, length: int) -> None:
    with pytest.raises(PlanFormatError):
        container.load(data[: length % len(data)], verify=True)


@pytest.mark.parametrize("data", [b"", b"x", b"\x89tactix\n", b"\0" * 64, b"PK\x03\x04" * 100])
def test_what_is_no_plan_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.plan"
    path.write_bytes(data)
    for source in (data, path, str(path)):
        with pytest.raises(PlanFormatError):
            container.load(source)


def _sealed(text: bytes, rest: bytes = b"", **over: Any) -> bytes:
    """A file with a right checksum around any header text."""
    total = over.get("total", 64 + len(text) + len(rest))
    version, length = over.get("version", container.VERSION), over.get("length", len(text))
    digest = hashlib.sha256(text).digest()
    return (
        struct.pack("<8sIIQQ32s", container.MAGIC, version, 0, length, total, digest) + text + rest
    )


def test_another_format_version_is_named(plan: Plan) -> None:
    with pytest.raises(PlanFormatError, match="plan format 2"):
        container.load(_sealed(b"{}", version=2))


def test_sizes_are_checked_before_anything_is_read() -> None:
    for over in (
        {"length": 1 << 62},
        {"length": container.HEADER_LIMIT + 1},
        {"total": 1 << 62},
        {"length": 3},
    ):
        with pytest.raises(PlanFormatError):
            container.load(_sealed(b"{}", **over))


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{}", b'{"blobs":[]}', b'{"blobs":{},"blobs":{}}', b'{"blobs":{},"x":NaN}', b"{", b"\xff",
     b'{"blobs":{},"x":1e999}', b'{"blobs":{},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
     b'{"blobs":{},"x":' + b"9" * 10_000 + b"}"],
)  # fmt: skip
def test_headers_that_are_no_plan(text: bytes) -> None:
    with pytest.raises(PlanFormatError):
        container.load(_sealed(text))


def _rebuild(plan: Plan, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The plan's file with a changed header and right checksums; blobs stay where they are."""
    data = container.dump(plan)
    length = struct.unpack_from("<Q", data, 16)[0]
    header = json.loads(data[64 : 64 + length])
    change(header)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    rest = data[container.align(64 + length) :]
    return _sealed(text, bytes(container.align(64 + len(text)) - 64 - len(text)) + rest)


def test_rebuilding_without_a_change_loads(plan: Plan) -> None:
    assert container.load(_rebuild(plan, lambda h: None), verify=True).name == plan.name


@pytest.mark.parametrize(
    "row", [[64, 240, ""], [0, 241, ""], [0, 239, ""], [-64, 240, ""], [0, 1 << 61, ""], [0, 240]]
)
def test_holes_and_overlaps_are_refused(plan: Plan, row: list[Any]) -> None:
    def change(h: dict[str, Any]) -> None:
        h["blobs"]["w"] = row

    with pytest.raises(PlanFormatError):
        container.load(_rebuild(plan, change))


def test_bytes_after_the_last_blob_and_in_the_padding_are_refused(plan: Plan) -> None:
    data = container.dump(plan)
    grown = bytearray(data + b"\0")
    struct.pack_into("<Q", grown, 24, len(grown))
    with pytest.raises(PlanFormatError, match="after the last blob"):
        container.load(grown)
    length = struct.unpack_from("<Q", data, 16)[0]
    dirty = bytearray(data)
    assert (64 + length) % 64, "the fixture has padding after its header"
    dirty[64 + length] = 1
    with pytest.raises(PlanFormatError, match="padding"):
        container.load(dirty)


def _positions(j: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values below the notes that nothing is read from."""
    free = {("ledger",), ("device",), ("meta",)}
    out = [path] if path and path not in free else []
    if path in free or (len(path) > 2 and path[-1] in ("info", "params")):
        return out
    for k, v in j.items() if isinstance(j, dict) else enumerate(j) if isinstance(j, list) else ():
        out += _positions(v, (*path, k))
    return out


JUNK = (
    None,
    True,
    -5,
    1 << 80,
    0.5,
    "",
    "no such thing",
    [],
    [[]],
    {},
    {"x": 1},
    ["*", "a"],
    ["%", 4, 0],
)


def test_junk_in_any_field_is_a_format_error_or_harmless(plan: Plan) -> None:
    """Whatever stands in a field: the plan is refused as a whole, or what was loaded can be written
    again.
    """
    data = container.dump(plan)
    length = struct.unpack_from("<Q", data, 16)[0]
    paths = _positions(json.loads(data[64 : 64 + length]))
    rng = random.Random(7)
    refused = 0
    for path in paths:
        junk = rng.choice(JUNK)

        def change(h: dict[str, Any], path: tuple[Any, ...] = path, junk: Any = junk) -> None:
            for k in path[:-1]:
                h = h[k]
            h[path[-1]] = junk

        try:
            container.dump(container.load(_rebuild(plan, change)))
        except PlanFormatError:
            refused += 1
    assert refused > len(paths) * 0.8 > 100


def test_an_expression_that_would_grow_without_bound_is_refused(plan: Plan) -> None:
    factor = ["+", *(f"s{i}" for i in range(40))]
    deep: Any = "batch"
    for _ in range(200):
        deep = ["max", deep, 3]
    for bomb in (["*", *[factor] * 20], deep, ["+", *["batch"] * 100_000]):

        def change(h: dict[str, Any], bomb: Any = bomb) -> None:
            h["buffers"][2]["nbytes"] = bomb

        with pytest.raises(PlanFormatError):
            container.load(_rebuild(plan, change))


def test_what_could_not_be_read_again_is_not_written(plan: Plan, tmp_path: Path) -> None:
    endless = replace(plan, profiles=(Profile("p", {"n": (0, 1 << 62, None)}),))
    with pytest.raises(PlanFormatError, match=r"profiles\[0\].dims.n.*could not be read again"):
        container.save(endless, tmp_path / "m.plan")
    assert list(tmp_path.iterdir()) == []
