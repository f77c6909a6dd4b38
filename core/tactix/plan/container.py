"""The file format of plans: a 64-byte prologue, a canonical JSON header, aligned blobs. No pickle, no holes.

    0   8 bytes  magic              16  u64  header length      32  32 bytes  sha256 of the header
    8   u32      format version     24  u64  file length        64  header, then blobs at multiples of 64
    12  u32      zero

All integers are little-endian; padding is zero. The header holds ``blobs``: name to [offset, length, sha256], offsets
counted from the first multiple of 64 after the header.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tactix.plan.codec import decode_plan, encode_plan
from tactix.plan.reader import Reader
from tactix.plan.schema import Plan
from tactix.words.errors import PlanFormatError

MAGIC = b"\x89tactix\n"
VERSION = 1
ALIGNMENT = 64
HEADER_LIMIT = 64 << 20
PROLOGUE = struct.Struct("<8sIIQQ32s")

Range = tuple[int, int, str]


def align(n: int) -> int:
    """The next multiple of 64."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def raw(content: Any) -> memoryview:
    """Bytes-like content as bytes."""
    return memoryview(content).cast("B")


# -- writing -----------------------------------------------------------------------------------------------------------


def dump(plan: Plan) -> bytes:
    """The file's bytes; the same for plans that say the same. Raises PlanFormatError."""
    return b"".join(_pieces(plan))


def save(plan: Plan, path: str | Path) -> None:
    """Write the file; readers see the old one or the whole new one. Raises PlanFormatError, OSError."""
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(scratch, "xb") as f:
            for piece in _pieces(plan):
                f.write(piece)
            f.flush()
            os.fsync(f.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _pieces(plan: Plan) -> Iterator[bytes | memoryview]:
    header, blobs = encode_plan(plan)
    table: dict[str, list[Any]] = {}
    end = 0
    for name, content in blobs.items():
        view = raw(content)
        table[name] = [align(end), view.nbytes, hashlib.sha256(view).hexdigest()]
        end = align(end) + view.nbytes
    text = _canonical({**header, "blobs": table})
    start = align(PROLOGUE.size + len(text))
    total = start + end if end else PROLOGUE.size + len(text)
    yield PROLOGUE.pack(MAGIC, VERSION, 0, len(text), total, hashlib.sha256(text).digest())
    yield text
    at = PROLOGUE.size + len(text)
    for content in blobs.values():
        view = raw(content)
        if view.nbytes:
            yield bytes(align(at) - at)
            yield view
            at = align(at) + view.nbytes


def _canonical(header: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as e:
        raise PlanFormatError("the header is no JSON", why=str(e)) from None
    if len(text) > HEADER_LIMIT:
        raise PlanFormatError(f"the header has {len(text)} bytes", why=f"the limit is {HEADER_LIMIT}")
    return text


# -- reading -----------------------------------------------------------------------------------------------------------


def load(source: str | Path | bytes | bytearray | memoryview, *, verify: bool = False) -> Plan:
    """A plan from a file, whose weights are then mapped and not read, or from bytes.

    Machine code is always checked against its sha256; all blobs are with ``verify``. Raises PlanFormatError, OSError.
    """
    data = _map(source) if isinstance(source, (str, Path)) else memoryview(source).toreadonly().cast("B")
    length, digest = _prologue(bytes(data[: PROLOGUE.size]), data.nbytes)
    end = PROLOGUE.size + length
    header = _parse(bytes(data[PROLOGUE.size : end]), digest)
    table = _table(header.pop("blobs"))
    _check_layout(data, end, table)
    start = align(end)
    blobs = {name: data[start + at : start + at + n] for name, (at, n, _) in table.items()}
    if verify:
        for name, (_, _, want) in table.items():
            if hashlib.sha256(blobs[name]).hexdigest() != want:
                raise PlanFormatError("content does not fit its sha256", who=f"blob {name!r}")
    return decode_plan(header, blobs)


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header alone: io, steps, ledger, requirements, blob table. Raises PlanFormatError, OSError."""
    with open(path, "rb") as f:
        length, digest = _prologue(f.read(PROLOGUE.size), os.fstat(f.fileno()).st_size)
        return _parse(f.read(length), digest)


def _map(path: str | Path) -> memoryview:
    with open(path, "rb") as f:
        if os.fstat(f.fileno()).st_size < PROLOGUE.size:
            _damaged("too short for a plan")
        return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))


def _damaged(what: str) -> NoReturn:
    raise PlanFormatError(what, do="Build the plan again, or copy it again")


def _prologue(start: bytes, size: int) -> tuple[int, bytes]:
    """Length and sha256 of the header."""
    if len(start) < PROLOGUE.size:
        _damaged("too short for a plan")
    magic, version, zero, length, total, digest = PROLOGUE.unpack(start)
    if magic != MAGIC:
        _damaged("not a tactix plan")
    if version != VERSION:
        raise PlanFormatError(
            f"plan format {version}", why=f"this tactix reads format {VERSION}", do="Build the plan again"
        )
    if zero or total != size:
        _damaged(f"the file has {size} bytes, its prologue says {total}")
    if length > HEADER_LIMIT or PROLOGUE.size + length > size:
        _damaged(f"a header of {length} bytes")
    return length, digest


def _parse(text: bytes, digest: bytes) -> dict[str, Any]:
    if hashlib.sha256(text).digest() != digest:
        _damaged("the header does not fit its sha256")
    try:
        header = json.loads(
            text.decode("ascii"), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite
        )
    except (ValueError, RecursionError) as e:
        raise PlanFormatError("the header is no JSON", why=str(e)[:200]) from None
    if not isinstance(header, dict) or "blobs" not in header:
        _damaged("the header has no table of blobs")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise PlanFormatError("a key is given twice", who="header")
    return out


def _no_number(text: str) -> NoReturn:
    raise PlanFormatError(f"{text} is no number", who="header")


def _finite(text: str) -> float:
    value = float(text)
    return value if value - value == 0 else _no_number(text)


def _table(table: Any) -> dict[str, Range]:
    return {name: _range(r) for name, r in Reader(table, "blobs").fields().items()}


def _range(r: Reader) -> Range:
    at, length, digest = r.row(3)
    return at.integer(), length.integer(), digest.text()


def _check_layout(data: memoryview, end: int, table: Mapping[str, Range]) -> None:
    """Blobs must follow each other at the next multiple of 64, with zeros between, up to the end of the file."""
    start, at = align(end), end
    for name, (offset, length, _) in sorted(table.items(), key=lambda kv: kv[1][:2]):
        if offset != align(max(0, at - start)) or (length and start + offset + length > data.nbytes):
            raise PlanFormatError(f"{length} bytes at {offset}: a hole, an overlap, or too long", who=f"blob {name!r}")
        if length:
            if any(data[at : start + offset]):
                raise PlanFormatError("padding is not zero", who=f"blob {name!r}")
            at = start + offset + length
    if at != data.nbytes:
        _damaged(f"{data.nbytes - at} bytes after the last blob")
