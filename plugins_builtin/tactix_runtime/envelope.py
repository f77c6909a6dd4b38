"""What a plan file of any format says of itself. These parts stay where they are, whatever else a
format changes:

the prologue (magic, format, lengths, sha256 of the header: see ``tactix.plan.container``); the
header, JSON with the fields ``blobs`` (name to [offset, length, sha256], from the first multiple of
64 after header and signature) and ``meta``, in which ``tactix`` is the version that built the plan
and ``lean_runtime`` names the blob that runs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import PlanFormatError
from tactix.base.files import EMPTY
from tactix.contracts.trust import Seal
from tactix.plan.container import (
    HEADER_LIMIT,
    MAGIC,
    PROLOGUE,
    REMEDY,
    SIGNATURE_LIMIT,
    align,
    parse,
)

LEAN = "lean_runtime"
SHA256 = 32
RUNTIME_LIMIT = 16 << 20


@dataclass(frozen=True)
class Envelope:
    """``format``: of the file. ``version``: of the tactix that built it. ``runtime``: the lean one
    in it, else None.
    """

    format: int
    version: str
    seal: Seal
    runtime: bytes | None


def read(data: memoryview) -> Envelope:
    """The envelope of a plan file of any format. Raises PlanFormatError."""
    if not data:
        raise PlanFormatError(EMPTY, do=REMEDY)
    start = bytes(data[: PROLOGUE.size])
    if len(start) < PROLOGUE.size or not start.startswith(MAGIC):
        raise PlanFormatError("not a tactix plan", do=REMEDY)
    _, version, signed, length, _, digest = PROLOGUE.unpack(start)
    if length > HEADER_LIMIT or signed > SIGNATURE_LIMIT:
        raise PlanFormatError(
            f"a header of {length} bytes, a signature of {signed}", who=f"plan format {version}"
        )
    end = PROLOGUE.size + length
    text, signature = bytes(data[PROLOGUE.size : end]), bytes(data[end : end + signed])
    if hashlib.sha256(text).digest() != digest:
        raise PlanFormatError("the header does not fit its sha256", do="Copy the plan again")
    header = parse(text)
    try:
        meta, blobs = header["meta"], header["blobs"]
        runtime = _blob(data[align(end + signed) :], *blobs[meta[LEAN]]) if LEAN in meta else None
        return Envelope(
            version, str(meta.get("tactix", "")), Seal(digest, signature[SHA256:]), runtime
        )
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise PlanFormatError(
            "the header is no plan's", who=f"plan format {version}", why=str(e)[:200]
        ) from None


def _blob(data: memoryview, at: int, length: int, digest: str) -> bytes:
    if not (at >= 0 and 0 <= length <= RUNTIME_LIMIT and at + length <= len(data)):
        raise PlanFormatError(
            f"{length} bytes at {at}", who=f"blob {LEAN!r}", why="too long, or not in the file"
        )
    content = bytes(data[at : at + length])
    if hashlib.sha256(content).hexdigest() != digest:
        raise PlanFormatError(
            "content does not fit its sha256", who=f"blob {LEAN!r}", do="Copy the plan again"
        )
    return content


def with_runtime(blobs: Mapping[str, Any], meta: Mapping[str, Any], wheel: bytes) -> dict[str, Any]:
    """Fields of a plan that holds that runtime."""
    return {"blobs": {**blobs, LEAN: wheel}, "meta": {**meta, LEAN: LEAN}}
