"""The file format of plans: a 64-byte prologue, a canonical JSON header, aligned blobs. No pickle,
no holes.

    0   8 bytes  magic             16  u64  header length     32  32 bytes  sha256 of the header
    8   u32      format version    24  u64  file length       64  header, blobs at multiples of 64
    12  u32      signature length

All integers are little-endian; padding is zero. A signature follows the header: the sha256 of what
is in it, and what a trust store wrote; its length counts both, and is 0 without one. The header
holds ``blobs``: name to [offset, length, sha256], offsets counted from the first multiple of 64
after header and signature.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tactix.base.errors import InvalidArgument, PlanFormatError, UntrustedPlan, punctuated
from tactix.base.files import ABSENT, EMPTY, NO_FILE, why_no_file
from tactix.base.garbage import rarely_collected
from tactix.contracts.trust import Seal
from tactix.plan.decode import decode_plan
from tactix.plan.reader import Reader
from tactix.plan.schema import Plan

MAGIC = b"\x89tactix\n"
VERSION = 1
ALIGNMENT = 64
HEADER_LIMIT = 64 << 20
SIGNATURE_LIMIT = 64 << 10
MARKS = 1 << 18
NESTING = 200
LARGE = 1 << 18
"""Bytes of a blob that take longer to sum up than to hand to another thread."""
CURE = (
    "Build it here, or with VERSION_COMPATIBLE there: the file then brings the runtime that runs it"
)
GIVE = "Give the path of a plan's file, or its bytes"
REMEDY = "Build the plan again, or copy it again"
_NO_MARKS = bytes(set(range(256)) - set(b'[]{},"'))
PROLOGUE = struct.Struct("<8sIIQQ32s")

Range = tuple[int, int, str]
Sign = Callable[[bytes], bytes]


def align(n: int) -> int:
    """The next multiple of 64."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def raw(content: Any) -> memoryview:
    """Bytes-like content as bytes."""
    return memoryview(content).cast("B")


# -- writing -------------------------------------------------------------------------------------


@rarely_collected
def dump(plan: Plan, sign: Sign | None = None) -> bytes:
    """The file's bytes; the same for plans that say the same. Raises PlanFormatError.

    ``sign``: gives a signature for the sha256 of the header; without it, a plan that was loaded
    keeps the one it had.
    """
    return b"".join(_pieces(plan, sign))


def digest(plan: Plan) -> bytes:
    """sha256 of the header that ``dump`` would write. Raises PlanFormatError."""
    return PROLOGUE.unpack(bytes(next(_pieces(plan, None))))[-1]  # type: ignore[no-any-return]


@rarely_collected
def save(plan: Plan, path: str | Path, sign: Sign | None = None) -> None:
    """Write the file; readers see the old one or the whole new one. Raises PlanFormatError,
    OSError.
    """
    from tactix.base.files import replacing

    with replacing(path) as f:
        for piece in _pieces(plan, sign):
            f.write(piece)


def _pieces(plan: Plan, sign: Sign | None) -> Iterator[bytes | memoryview]:
    from tactix.plan.encode import encode_plan

    header, blobs = encode_plan(plan)
    table: dict[str, list[Any]] = {}
    end = 0
    views = {name: raw(content) for name, content in blobs.items()}
    for (name, view), found in zip(views.items(), _digests(views), strict=True):
        table[name] = [align(end), view.nbytes, found]
        if view.nbytes:  # an empty one, which may be the last, takes no padding
            end = align(end) + view.nbytes
    text = _canonical({**header, "blobs": table})
    _check_readable(text, views)
    digest = hashlib.sha256(text).digest()
    signature = _signature(plan.seal, digest, sign)
    at = PROLOGUE.size + len(text) + len(signature)
    total = align(at) + end if end else at
    yield PROLOGUE.pack(MAGIC, VERSION, len(signature), len(text), total, digest)
    yield text + signature
    for view in views.values():
        if view.nbytes:
            yield bytes(align(at) - at)
            yield view
            at = align(at) + view.nbytes


def _digests(blobs: Mapping[str, memoryview]) -> Iterator[str]:
    """The sha256 of each, in order; of large ones several are made at a time."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        large = {
            name: pool.submit(hashlib.sha256, view)
            for name, view in blobs.items()
            if view.nbytes >= LARGE
        }
        for name, view in blobs.items():
            found = large[name].result() if name in large else hashlib.sha256(view)
            yield found.hexdigest()


def _check_readable(text: bytes, blobs: Mapping[str, memoryview]) -> None:
    """Raises PlanFormatError for a header that ``load`` would refuse: such a file is of no use."""
    try:
        header = parse(text)
        del header["blobs"]
        decode_plan(header, blobs)
    except PlanFormatError as e:
        what = "the plan is not written, as it could not be read again"
        raise PlanFormatError(what, who=e.who, why=punctuated((e.what, e.why), ": ")) from None


def _signature(seal: Seal | None, digest: bytes, sign: Sign | None) -> bytes:
    """A new one, or the one that a plan came with if it still fits, after its own sha256; empty for
    none.
    """
    content = sign(digest) if sign else seal.signature if seal and seal.digest == digest else b""
    return hashlib.sha256(content).digest() + content if content else b""


def _canonical(header: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode(
            "ascii"
        )
    except (TypeError, ValueError, RecursionError) as e:
        raise PlanFormatError("the header is no JSON", why=str(e)) from None
    if len(text) > HEADER_LIMIT:
        raise PlanFormatError(
            f"the header has {len(text)} bytes", why=f"the limit is {HEADER_LIMIT}"
        )
    return text


# -- reading -------------------------------------------------------------------------------------


@rarely_collected
def load(
    source: str | Path | bytes | bytearray | memoryview,
    *,
    verify: bool | None = None,
    admit: Callable[[Seal], Any] | None = None,
    private: bool = False,
) -> Plan:
    """A plan from a file, whose weights are then mapped, or from bytes.

    ``private``: the file is read into memory first, so that what is checked here is what the plan
    holds from then on, whoever writes the file: for what will be signed. Header and machine code
    are copied before they are checked anyhow. Machine code is always checked against its sha256;
    all blobs are with ``verify``, by default if the plan is signed. ``admit`` sees the seal before
    anything is decoded, and raises UntrustedPlan to refuse it. Raises PlanFormatError, OSError.
    """
    try:
        return _load(source, verify, admit, private)
    except (PlanFormatError, UntrustedPlan) as e:
        e.who = ": ".join(
            filter(None, (str(source) if isinstance(source, (str, Path)) else "", e.who))
        )
        e.do = e.do or REMEDY
        raise


def _load(
    source: Any, verify: bool | None, admit: Callable[[Seal], Any] | None, private: bool
) -> Plan:
    data = _content(source, private)
    length, signed, digest = _prologue(bytes(data[: PROLOGUE.size]), data.nbytes)
    text, end = bytes(data[PROLOGUE.size : PROLOGUE.size + length]), PROLOGUE.size + length + signed
    seal = _seal(text, digest, bytes(data[PROLOGUE.size + length : end]))
    if admit:
        admit(seal)
    header = parse(text)
    if "blobs" not in header:
        raise PlanFormatError("the header has no table of blobs")
    table = _table(header.pop("blobs"))
    _check_layout(data, end, table)
    start = align(end)
    blobs = {name: data[start + at : start + at + n] for name, (at, n, _) in table.items()}
    if verify or (verify is None and signed):
        _check_blobs(blobs, table)
    return replace(decode_plan(header, blobs), seal=seal)


def _content(source: Any, private: bool) -> memoryview:
    if isinstance(source, (str, Path)):
        return copied(source) if private else mapped(source)
    given = buffer(source)
    return memoryview(bytes(given)) if private else given


def buffer(source: Any) -> memoryview:
    """Bytes of a plan, to be read. Raises InvalidArgument for what has none."""
    try:
        return memoryview(source).toreadonly().cast("B")
    except TypeError:
        raise InvalidArgument(f"a {type(source).__name__} is no plan", do=GIVE) from None


def mapped(path: str | Path) -> memoryview:
    """A file's content, which changes with the file. Raises PlanFormatError for what is no file,
    OSError.
    """
    with _opened(path) as f:
        size = os.fstat(f.fileno()).st_size
        return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")


def copied(path: str | Path) -> memoryview:
    """A file's content in memory of its own. Raises as ``mapped``."""
    with _opened(path) as f:
        return memoryview(f.read())


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    """A regular file, to be read; an OSError where there is none. A pipe is not waited for."""
    what = why_no_file(path)
    if what and what != ABSENT:
        raise PlanFormatError(what, do=GIVE)
    with open(
        path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    ) as f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            raise PlanFormatError(NO_FILE, do=GIVE)
        yield f


def _prologue(start: bytes, size: int) -> tuple[int, int, bytes]:
    """Lengths of header and signature, sha256 of the header."""
    if not size:
        raise PlanFormatError(EMPTY)
    if len(start) < PROLOGUE.size:
        raise PlanFormatError("too short for a tactix plan")
    magic, version, signed, length, total, digest = PROLOGUE.unpack(start)
    if magic != MAGIC:
        raise PlanFormatError(
            "not a tactix plan", do=f"{REMEDY}; of a model, tactix.build makes one"
        )
    if version != VERSION:
        raise PlanFormatError(
            f"plan format {version}", why=f"this tactix reads format {VERSION}", do=CURE
        )
    if total != size:
        why = "it was cut off" if size < total else "something was added"
        raise PlanFormatError(f"the file has {size} bytes, its prologue says {total}", why=why)
    if length > HEADER_LIMIT or signed > SIGNATURE_LIMIT or PROLOGUE.size + length + signed > size:
        raise PlanFormatError(f"a header of {length} bytes, a signature of {signed}")
    return length, signed, digest


def _seal(text: bytes, digest: bytes, signature: bytes) -> Seal:
    """The seal of a header with that sha256. The signature's own one is against accidents."""
    if hashlib.sha256(text).digest() != digest:
        raise PlanFormatError("the header does not fit its sha256")
    content = signature[len(digest) :]
    if signature and (not content or hashlib.sha256(content).digest() != signature[: len(digest)]):
        raise PlanFormatError("the signature does not fit its sha256")
    return Seal(digest, content)


def _check_blobs(blobs: Mapping[str, memoryview], table: Mapping[str, Range]) -> None:
    for name, found in zip(blobs, _digests(blobs), strict=True):
        if found != table[name][2]:
            raise PlanFormatError("content does not fit its sha256", who=f"blob {name!r}")


def parse(text: bytes, who: str = "the header") -> dict[str, Any]:
    """A JSON object in ASCII whose memory is in proportion to its text. Raises PlanFormatError."""
    _check_growth(text, who)
    try:
        checks: Any = {
            "object_pairs_hook": _unique,
            "parse_constant": _no_number,
            "parse_float": _finite,
        }
        found = json.loads(text.decode("ascii"), **checks)
        if b"\\ud" in text:  # halves of characters could be printed nowhere
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as e:
        raise PlanFormatError(f"{who} is no JSON", why=str(e)[:200]) from None
    if not isinstance(found, dict):
        raise PlanFormatError(f"{who} is no JSON object")
    return found


def _check_growth(text: bytes, who: str) -> None:
    """Refuse JSON that takes far more memory than its text, or that is nested deeply.

    An escaped quote ends no text; pairs of backslashes go first, so that of each run one is left
    where it escapes.
    """
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    most = MARKS + len(text) // 8
    if marks.count(b'"') <= most:
        marks = b"".join(marks.split(b'"')[::2])  # what is not in quotes
    if len(marks) > most:
        raise PlanFormatError(f"{who} has {len(marks)} commas and brackets in {len(text)} bytes")
    marks = marks.replace(b",", b"")
    for _ in range(NESTING):
        marks = marks.replace(b"[]", b"").replace(b"{}", b"")
    if marks:
        raise PlanFormatError(f"{who} is no JSON, or nested more than {NESTING} deep")


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
    """Blobs must follow each other at the next multiple of 64, with zeros between, up to the end of
    the file.
    """
    start, at = align(end), end
    for name, (offset, length, _) in sorted(table.items(), key=lambda kv: kv[1][:2]):
        if offset != align(max(0, at - start)) or (
            length and start + offset + length > data.nbytes
        ):
            raise PlanFormatError(
                f"{length} bytes at {offset}: a hole, an overlap, or too long", who=f"blob {name!r}"
            )
        if length:
            if any(data[at : start + offset]):
                raise PlanFormatError("padding is not zero", who=f"blob {name!r}")
            at = start + offset + length
    if at != data.nbytes:
        raise PlanFormatError(f"{data.nbytes - at} bytes after the last blob")
