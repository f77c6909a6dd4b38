"""Changes of a sound plan: of fields of its header, of its table of blobs, of its prologue and of
its bytes.

Each takes a decoded header (changed in place) and a source of randomness, so that a case is known
by its seed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

from plan_samples import opened, sealed

HUGE = (
    1 << 31,
    (1 << 40) + 1,
    (1 << 47) - 1,
    1 << 47,
    1 << 60,
    (1 << 62) - 1,
    1 << 62,
    (1 << 63) - 1,
    1 << 64,
    10**40,
)
NUMBERS = (*range(-3, 20), 63, 64, 65, 255, 4096, *HUGE, *(-n for n in HUGE))
WORDS = ("", "x", "y", "batch", "n", "no such", "\0", "\ud800", "\x1b[31m", "[/]", "é", "_handle", "__class__", "../x",
         "f32", "f64", "str", "seq", "opt", "i4", "linear", "nhwc", "c16", "c2", "c9999", "c1", "input", "output",
         "arena", "weight", "workspace", "object", "constant", "scalar", "tactix.cpu.elf@1", "tactix.numpy@1",
         "tactix.control@1", "tactix.Relu@1", "cuda", "amx_int8", "0" * 64, "w" * 5000)  # fmt: skip
JUNK = (None, True, False, 0.5, -0.0, 1e308, [], [[]], {}, {"x": 1}, {"float": "nan"}, {"dim": ["//", "n", 0]},
        {"dtype": "f8"}, {"dim": {}}, ["*", "a"], [1, 2, 3])  # fmt: skip
OPERATIONS = ("+", "*", "//", "%", "max", "min", "bcast", "**")

Path = tuple[Any, ...]


def paths(j: Any, path: Path = ()) -> list[Path]:
    """The places of all values, outermost first."""
    out = [path] if path else []
    for k, v in j.items() if isinstance(j, dict) else enumerate(j) if isinstance(j, list) else ():
        out += paths(v, (*path, k))
    return out


def look(j: Any, path: Path) -> Any:
    for k in path:
        j = j[k]
    return j


def dimension(rng: random.Random, depth: int = 0) -> Any:
    """An expression of dims, sound or not."""
    if depth > 3 or rng.random() < 0.4:
        return rng.choice([rng.choice(NUMBERS), "batch", "n", "m", "k", "q", 0, 1, 2, 4])
    return [
        rng.choice(OPERATIONS),
        *(dimension(rng, depth + 1) for _ in range(rng.choice([1, 2, 2, 2, 3, 9]))),
    ]


def bomb(rng: random.Random) -> Any:
    """Small text that asks for much: depth, digits, keys, products of sums."""
    kind, n = rng.randrange(7), rng.choice([70, 150, 250, 900, 3000])
    if kind == 0:
        return look_deep([], n)
    if kind == 1:
        return int("9" * min(n, 4000))
    if kind == 2:
        return {str(i): i for i in range(n)}
    if kind == 3:
        return ["+", *(f"s{i}" for i in range(n))]
    if kind == 4:
        return ["*", *[["+", *(f"s{i}" for i in range(40))]] * 12]
    if kind == 5:
        return {"dim": ["*", *[["+", *(f"s{i}" for i in range(40))]] * 12]}
    return ["*", *(f"s{i}" for i in range(n))]


def look_deep(core: Any, depth: int) -> Any:
    """Arrays and objects in each other."""
    for i in range(depth):
        core = {"max": core} if i % 3 == 0 else [core]
    return core


def value(rng: random.Random, old: Any) -> Any:
    """Another value, often of the same type."""
    roll = rng.random()
    if roll < 0.35 and type(old) is int:
        return rng.choice([rng.choice(NUMBERS), old + 1, old - 1, -old, old * 2, old + (1 << 32)])
    if roll < 0.35 and type(old) is str:
        return rng.choice([*WORDS, old + "x", old[:-1]])
    if roll < 0.35 and type(old) is list:
        return [*old, *old[:50]] if rng.random() < 0.5 else old[::-1]
    if roll < 0.6:
        return dimension(rng)
    if roll < 0.7:
        return bomb(rng)
    return rng.choice([*NUMBERS, *WORDS, *JUNK])


class Mutator:
    """Cases of one plan file. ``make(seed)`` gives the bytes of a case, the same for the same seed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header, self.rest = opened(data)
        self.text = json.dumps(self.header)
        self.paths = paths(self.header)
        self.core = [
            p
            for p in self.paths
            if p[0]
            in ("buffers", "steps", "inputs", "outputs", "profiles", "blobs", "requirements")
        ]

    def make(self, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.05:
            return damaged(self.data, rng)
        try:
            return self._made(rng)
        except (
            RecursionError,
            TypeError,
        ):  # deeper than this side can write, or with numbers for keys
            return sealed(b"[" * 100_000, self.rest)

    def _made(self, rng: random.Random) -> bytes:
        header, rest = json.loads(self.text), self.rest
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5])):
            rest = self._change(header, rest, rng)
        over: dict[str, Any] = {}
        if rng.random() < 0.02:
            over = {
                rng.choice(["version", "zero"]): rng.choice([0, 2, 9]),
                "length": rng.choice([0, 1, 64, 1 << 40]),
            }
        return sealed(header, rest, **over)

    def _change(self, header: Any, rest: bytes, rng: random.Random) -> bytes:
        path = rng.choice(self.core if rng.random() < 0.85 else self.paths)
        try:
            if rng.random() < (
                0.4 if "refit" in self.header["meta"] or self.header["requirements"] else 0.06
            ):
                return reworked(header, rest, rng)
            held, key = look(header, path[:-1]), path[-1]
            rng.choice(CHANGES)(header, held, key, rng, self)
        except (LookupError, TypeError, AttributeError, ValueError, StopIteration):
            pass  # an earlier change took this place away
        return rest


def replaced(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    held[key] = value(rng, held[key])


def removed(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    del held[key]


def doubled(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    """An element twice, or a field of another name."""
    if isinstance(held, list):
        held.insert(rng.randrange(len(held) + 1), held[key])
    else:
        held[rng.choice(WORDS)] = held[key]


def exchanged(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    other = rng.choice(list(held) if isinstance(held, dict) else range(len(held)))
    held[key], held[other] = held[other], held[key]


def borrowed(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    """What stands in the same field elsewhere."""
    alike = [p for p in m.core if p[-1] == key and type(p[-1]) is str] or m.core
    held[key] = json.loads(json.dumps(look(m.header, rng.choice(alike))))


def nested(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    """The plan inside one of its steps, a few times."""
    for _ in range(rng.choice([1, 1, 1, 1, 2, 18])):
        inner = {k: v for k, v in json.loads(json.dumps(header)).items() if k != "blobs"}
        outer = json.loads(m.text)
        rng.choice(outer["steps"])["plans"] = [inner]
        header.update({k: v for k, v in outer.items() if k != "blobs"})


def argument(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    """An argument of a launch."""
    launches = [x for s in header["steps"] for x in s["artifact"]["launches"]]
    args = rng.choice(launches)["args"]
    kind = rng.choice(["input", "output", "constant", "workspace", "scalar"])
    args[rng.randrange(len(args))] = [
        kind,
        rng.choice([0, 1, 2, -1, 1 << 40]),
        rng.choice(["", "w"]),
        dimension(rng),
    ]


def lifetime(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    b = rng.choice(header["buffers"])
    b[rng.choice(["first", "last"])] = rng.choice([-1, 0, 1, 2, 5, 1 << 40])


def size(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    b = rng.choice(header["buffers"])
    b["nbytes"] = rng.choice([0, 1, -64, 1 << 60, (1 << 47) - 1, 1 << 20, dimension(rng)])


def launch(header: Any, held: Any, key: Any, rng: random.Random, m: Mutator) -> None:
    """Grids, blocks, shared memory, symbols and workspaces."""
    a = rng.choice(header["steps"])["artifact"]
    target = rng.choice([*a["launches"], a])
    field = rng.choice(["grid", "block", "cluster", "shared_bytes", "symbol", "workspace"])
    target[field] = rng.choice(
        [[dimension(rng)] * rng.choice([1, 3, 50]), dimension(rng), rng.choice(WORDS), 1 << 60]
    )


CHANGES: tuple[Callable[..., None], ...] = (
    *[replaced] * 12, *[borrowed] * 6, *[removed, doubled, exchanged, argument, lifetime, size, launch] * 3, nested,
)  # fmt: skip


def exchanged_blob(header: Any, rest: bytes, name: str, content: bytes) -> bytes:
    """All blobs, one with another content under the name that it has then; offsets and digests are
    right.
    """
    table, out = header["blobs"], bytearray()
    fresh = hashlib.sha256(content).hexdigest()
    held = {k: content if k == name else rest[at : at + n] for k, (at, n, _) in table.items()}
    for k in sorted(table, key=lambda k: table[k][:2]):
        out += bytes(-len(out) % 64)
        table[k] = [len(out), len(held[k]), hashlib.sha256(held[k]).hexdigest()]
        out += held[k]
    renamed = json.loads(json.dumps(header).replace(f'"{name}"', f'"{fresh}"'))
    header.clear()
    header.update(renamed)
    return bytes(out)


def other_recipes(header: Any, rest: bytes, rng: random.Random) -> bytes:
    """Other values in the recipes of a plan that can be refitted."""
    name = header["meta"]["refit"]
    at, length, _ = header["blobs"][name]
    body = json.loads(rest[at : at + length])
    for _ in range(rng.choice([1, 1, 2])):
        path = rng.choice(paths(body))
        held = look(body, path[:-1])
        held[path[-1]] = rng.choice(
            [
                value(rng, held[path[-1]]),
                json.loads(json.dumps(look(body, rng.choice(paths(body))))),
            ]
        )
    return exchanged_blob(
        header, rest, name, json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    )


def other_wheel(header: Any, rest: bytes, rng: random.Random) -> bytes:
    """Other sizes, offsets, counts and names in the wheel of a pack."""
    name = next(r["digest"] for r in header["requirements"] if r["embedded"])
    at, length, _ = header["blobs"][name]
    content = bytearray(rest[at : at + length])
    for _ in range(rng.choice([1, 2, 4])):
        mark = rng.choice([b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"])
        places = [i for i in range(length) if content.startswith(mark, i)] or [0]
        place, size = rng.choice(places) + rng.randrange(4, 60), rng.choice([1, 2, 4])
        content[place : place + size] = rng.choice(
            [0, 1, 0x7F, 0xFFFFFFFF, rng.getrandbits(32)]
        ).to_bytes(4, "little")[:size]
    return exchanged_blob(header, rest, name, bytes(content))


def reworked(header: Any, rest: bytes, rng: random.Random) -> bytes:
    """Another content of a blob, with all digests and names that follow from it made right; or
    another place of it.
    """
    table = header.get("blobs")
    if not isinstance(table, dict) or not table:
        return rest
    if rng.random() < 0.5:
        return (other_recipes if "refit" in header["meta"] else other_wheel)(header, rest, rng)
    name = rng.choice(sorted(table))
    at, length, digest = table[name]
    if rng.random() < 0.4 or not length:
        table[name] = [
            rng.choice([at, at + 64, at - 64, 0, 1 << 61]),
            rng.choice([length, length + 1, 0]),
            digest,
        ]
        return rest
    content = bytearray(rest[at : at + length])
    content[rng.randrange(length)] ^= 1 << rng.randrange(8)
    fresh = hashlib.sha256(content).hexdigest()
    table[name] = [at, length, fresh]
    if name == digest:
        table[fresh] = table.pop(name)
        renamed = json.loads(json.dumps(header).replace(f'"{name}"', f'"{fresh}"'))
        header.clear()
        header.update(renamed)
    return rest[:at] + bytes(content) + rest[at + length :]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut off, put in or left out, with no digest made right."""
    out = bytearray(data)
    kind = rng.randrange(4)
    at = rng.choice([rng.randrange(len(out)), rng.randrange(64)])
    if kind == 0:
        del out[at:]
    elif kind == 1:
        out[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        out[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 64])))
    else:
        del out[at : at + rng.choice([1, 64])]
    return bytes(out)
