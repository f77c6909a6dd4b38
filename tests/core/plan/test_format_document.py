"""A reader written from docs/plan-format.md alone, knowing nothing of tactix.plan, reads what the
builder writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix

TYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
}


def aligned(n: int) -> int:
    return (n + 63) // 64 * 64


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def dim(d: Any, symbols: Mapping[str, int]) -> int:
    """The value of a dim."""
    if isinstance(d, int):
        return d
    if isinstance(d, str):
        return symbols[d]
    op, args = d[0], [dim(x, symbols) for x in d[1:]]
    if op in ("+", "*"):
        return sum(args) if op == "+" else math.prod(args)
    a, b = args
    return {
        "//": lambda: a // b,
        "%": lambda: a % b,
        "max": lambda: max(a, b),
        "min": lambda: min(a, b),
        "bcast": lambda: b if a == 1 else a,
    }[op]()


class File:
    """A plan file, with every digest checked."""

    def __init__(self, data: bytes) -> None:
        magic, version, signed, length, total, digest = struct.unpack_from("<8sIIQQ32s", data)
        assert (magic, version, total) == (b"\x89tactix\n", 1, len(data))
        text = data[64 : 64 + length]
        assert hashlib.sha256(text).digest() == digest
        self.header = json.loads(text.decode("ascii"), object_pairs_hook=unique)
        assert json.dumps(self.header, sort_keys=True, separators=(",", ":")).encode() == text
        end = 64 + length + signed
        signature = data[64 + length : end]
        assert not signature or hashlib.sha256(signature[32:]).digest() == signature[:32]
        self.blobs = dict(self._blobs(data, end))

    def _blobs(self, data: bytes, end: int) -> Iterator[tuple[str, bytes]]:
        start, at = aligned(end), end
        for name, (offset, length, digest) in sorted(
            self.header["blobs"].items(), key=lambda kv: kv[1][:2]
        ):
            assert offset == aligned(max(0, at - start))
            if length:
                assert not any(data[at : start + offset])
                at = start + offset + length
            content = data[start + offset : start + offset + length]
            assert hashlib.sha256(content).hexdigest() == digest
            yield name, content
        assert at == len(data)

    def steps(self) -> list[tuple[str, str, list[int], list[int]]]:
        """Name, launcher, ids of the buffers that it reads and writes."""
        return [
            (
                s["name"],
                s["artifact"]["launcher"],
                [o[0] for o in s["inputs"]],
                [o[0] for o in s["outputs"]],
            )
            for s in self.header["steps"]
        ]

    def weight(self, buffer: int) -> np.ndarray[Any, Any]:
        """A linear weight."""
        b = self.header["buffers"][buffer]
        assert (b["kind"], b["format"]) == ("weight", "linear")
        assert len(self.blobs[b["blob"]]) == dim(b["nbytes"], {})
        return np.frombuffer(self.blobs[b["blob"]], TYPES[b["dtype"]]).reshape(
            [dim(d, {}) for d in b["shape"]]
        )

    def arena(self, symbols: Mapping[str, int]) -> dict[int, tuple[int, int]]:
        """Offset and size by buffer: the simplest placement that is right, each above all before."""
        out, top = {}, 0
        for i, b in enumerate(self.header["buffers"]):
            if b["kind"] in ("arena", "workspace"):
                out[i] = (top, dim(b["nbytes"], symbols))
                top += aligned(out[i][1])
        return out

    def arguments(self, step: int, symbols: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Of all launches: kind, buffer (-1 for a number), value."""
        s = self.header["steps"][step]
        rows = [a for launch in s["artifact"]["launches"] for a in launch["args"]]
        where = {
            "input": lambda i, _: s["inputs"][i][0], "output": lambda i, _: s["outputs"][i][0],
            "constant": lambda _, name: s["constants"][name], "workspace": lambda *_: s["workspace"],
            "scalar": lambda *_: -1,
        }  # fmt: skip
        return [(kind, where[kind](i, name), dim(value, symbols)) for kind, i, name, value in rows]

    def given(self, step: int, index: int) -> np.ndarray[Any, Any]:
        """A constant input of a step, packed or not."""
        s = self.header["steps"][step]
        buffer, _, shape, _ = s["inputs"][index]
        if buffer != -1:
            return self.weight(buffer)
        name, packing = next((name, p) for name, i, p in s["artifact"]["constants"] if i == index)
        x = np.empty(shape)
        shapes = []
        for step_name, what in packing:
            shapes.append(x.shape)
            x = np.pad(x, what) if step_name == "pad" else getattr(x, step_name)(what)
        x = self.weight(s["constants"][name])
        for (step_name, what), before in zip(packing[::-1], shapes[::-1], strict=True):
            if step_name == "pad":
                x = x[tuple(slice(a, a + n) for (a, _), n in zip(what, before, strict=True))]
            else:
                x = x.reshape(before) if step_name == "reshape" else x.transpose(np.argsort(what))
        return x


WEIGHT = np.random.default_rng(5).standard_normal((20, 6)).astype(np.float32)


@pytest.fixture(scope="module", params=["c", "numpy"])
def engine(request: pytest.FixtureRequest) -> tactix.Engine:
    """x (batch, 20) @ WEIGHT, softmax; with C kernels or numpy steps."""
    builder = tactix.Builder()
    net = builder.create_network("by the book")
    x = net.add_input("x", "f32", ("batch", 20))
    (m,) = net.add_layer("tactix.MatMul", [x, net.add_constant(WEIGHT)])
    net.mark_output(net.add_layer("tactix.Softmax", [m], axis=-1)[0], "y")
    sources = {"numpy"} if request.param == "numpy" else None
    config = tactix.BuilderConfig(
        builder_optimization_level=0, timing_cache=False, tactic_sources=sources
    )
    return builder.build(net, config)


@pytest.fixture
def file(engine: tactix.Engine, tmp_path: Path) -> File:
    engine.save(tmp_path / "x.plan")
    return File((tmp_path / "x.plan").read_bytes())


def test_interface_and_steps(file: File, engine: tactix.Engine) -> None:
    (x,), (y,) = file.header["inputs"], file.header["outputs"]
    assert (x["name"], x["dtype"], x["shape"], x["element"]) == ("x", "f32", ["batch", 20], None)
    assert (y["name"], dim(y["shape"][0], {"batch": 7}), y["shape"][1]) == ("y", 7, 6)
    assert [(name, launcher) for name, launcher, *_ in file.steps()] == [
        (s["name"], s["launcher"]) for s in engine.inspect()["steps"]
    ]
    read = {b for *_, inputs, _ in file.steps() for b in inputs}
    written = {b for *_, outputs in file.steps() for b in outputs}
    assert x["buffer"] in read
    assert y["buffer"] in written


def test_a_weight(file: File) -> None:
    found = [file.weight(i) for i, b in enumerate(file.header["buffers"]) if b["kind"] == "weight"]
    largest = max(found, key=lambda w: w.size)
    assert set(WEIGHT.ravel()) <= set(
        largest.ravel()
    )  # packed by C tactics: panels, and zeros beside them


def test_what_a_step_computes_and_of_what(file: File) -> None:
    step = file.header["steps"][0]
    told = step["info"].get("reference", step["artifact"]["params"])
    assert told["layer"] == "tactix.MatMul@1"
    np.testing.assert_array_equal(file.given(0, 1), WEIGHT)


def test_arguments_lie_in_their_buffers(file: File) -> None:
    sizes = {"batch": 9}
    placed = file.arena(sizes)
    for k, s in enumerate(file.header["steps"]):
        for kind, buffer, value in file.arguments(k, sizes):
            assert (kind == "scalar") == (buffer == -1)
            if kind == "workspace":
                assert 0 <= value <= placed[buffer][1]
        code = s["artifact"]["code"]
        if code is not None:
            assert file.blobs[code["blob"]][:4] == b"\x7fELF"
            assert hashlib.sha256(file.blobs[code["blob"]]).hexdigest() == code["blob"]
            assert code["symbol"].encode() in file.blobs[code["blob"]]
            assert not code["source"] or file.blobs[code["source"]].decode()


def test_the_document_names_every_field(file: File) -> None:
    text = (Path(__file__).parents[3] / "docs" / "plan-format.md").read_text()
    step, buffer = file.header["steps"][0], file.header["buffers"][0]
    fields = {
        *file.header,
        *step,
        *step["artifact"],
        *(step["artifact"]["code"] or ()),
        *buffer,
        *file.header["inputs"][0],
    }
    assert [f for f in sorted(fields) if f"`{f}`" not in text and f'"{f}"' not in text] == []
