"""Devices: what they say of themselves, streams that keep their order, and copies that keep every
byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Device, DeviceProperties, Stream
from tactix.select.bench import Bench
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import NotHere, check
from tactix_sdk.testing.subject import Subject

COPIED = (0, 1, 3, 4097, (1 << 20) + 1)
"""Bytes that are copied there and back."""
NO_STREAM = (1 << 62) + 7
"""A handle that no stream has."""


@check("device")
def device(subject: Subject) -> str:
    """Devices tell facts that hold, or why they are not here; streams keep order, copies every
    byte.
    """
    looks = (_declared, _here, _facts, _copies, _ordered, _failing, _marks)
    return check_parts("device", subject, "devices", subject.objects("devices"), looks)


def _declared(subject: Subject, one: Device) -> Iterator[str]:
    """What holds wherever it is."""
    if not isinstance(one.kind, str) or not one.kind:
        yield f"its kind is {one.kind!r}: give a name, such as 'cpu'"
    if one.alignment < 1 or one.alignment & (one.alignment - 1):
        yield f"its alignment is {one.alignment}, no power of two"
    if one.spread < 0:
        yield f"its spread is {one.spread} bytes"
    costs = one.costs
    if costs.launch < 0 or costs.reformat < 0 or costs.bandwidth <= 0:
        yield f"its costs are {costs}: seconds are 0 or more, bandwidth is more"
    if one.bench is not None and not (isinstance(one.bench, type) and issubclass(one.bench, Bench)):
        yield f"its bench is {one.bench!r}, no subclass of tactix.select.bench.Bench"
    if not _memory(subject, one):
        yield f"there is no allocator for {one.kind!r}: give one through tactix_allocators"
    try:
        one.target("no such model of any device")
    except Exception as e:
        yield from wrong_type(e, "target, of a model that is none,", InvalidArgument)
    else:
        yield "target takes a model that is none"


def _memory(subject: Subject, one: Device) -> list[Allocator]:
    return [a for a in subject.session.allocators.values() if a.device == one.kind]


def _here(subject: Subject, one: Device) -> Iterator[str]:
    """It is asked whether it is here."""
    said = [one.available() for _ in range(2)]
    if not isinstance(said[0], str) or said[0] != said[1]:
        yield f"available() gives {said[0]!r}, then {said[1]!r}: give an empty text, or why not"
    if said[0]:
        raise NotHere(str(said[0]))


def _facts(subject: Subject, one: Device) -> Iterator[str]:
    """It tells its properties."""
    p = one.properties()
    if not isinstance(p, DeviceProperties):
        yield f"properties() gives a {type(p).__name__}, no DeviceProperties"
        return
    if p != one.properties():
        yield "properties() gives others the second time"
    if p.kind != one.kind:
        yield f"its properties are of the kind {p.kind!r}, it is of the kind {one.kind!r}"
    if not p.name.strip():
        yield "its properties have no name"
    if not all(isinstance(f, str) and f for f in p.features):
        yield f"its features are {sorted(map(str, p.features))}: give names"
    if p.cores < 1 or p.memory < 0 or p.vector_bits < 1:
        yield f"it has {p.cores} cores, {p.memory} bytes, vectors of {p.vector_bits} bits"
    try:
        json.dumps([p.facts, p.tuned_to])
    except (TypeError, ValueError) as e:
        yield f"its facts are no JSON, as the timing cache's key needs them: {e}"
    if one.persistent_cache() < 0:
        yield f"persistent_cache() gives {one.persistent_cache()} bytes"


def _copies(subject: Subject, one: Device) -> Iterator[str]:
    """Arrays are copied there and back."""
    import numpy as np

    memory = _memory(subject, one)[:1]
    for own in memory:
        for size in COPIED:
            array = np.arange(size, dtype=np.uint64).astype(np.uint8)
            for name, copy in (("copy_in", one.copy_in), ("copy_all", _all(one))):
                if not np.array_equal(_there_and_back(one, own, array, copy), array):
                    yield f"{name}, then copy_out, of {size} bytes gives others"


def _all(one: Device) -> Any:
    return lambda address, array: one.copy_all([(address, array)])


def _there_and_back(one: Device, own: Allocator, array: Any, copy: Any) -> Any:
    import numpy as np

    address = own.allocate(array.nbytes, 64)
    try:
        copy(address, array)
        out = np.zeros_like(array)
        one.copy_out(out, address)
    finally:
        own.deallocate(address)
    return out


def _streams(one: Device) -> tuple[Stream, Stream] | None:
    """Two new ones; None from a device that has none."""
    try:
        return one.create_stream(), one.create_stream()
    except NotImplementedError:
        return None


def _ordered(subject: Subject, one: Device) -> Iterator[str]:
    """Streams do work in order, and are found by their handles."""
    made = _streams(one)
    if made is None:
        return
    handles = [s.handle for s in made]
    if not all(isinstance(h, int) and h for h in handles) or handles[0] == handles[1]:
        yield (
            f"two streams have the handles {handles[0]!r} and {handles[1]!r}: "
            "give each its own, none 0"
        )
    done = list[int]()
    for stream in made:
        if one.stream_of(stream.handle).handle != stream.handle:
            yield f"stream_of({stream.handle}) is another stream"
        for n in range(20):
            stream.submit(partial(done.append, n))
        stream.synchronize()
        if done != list(range(20)):
            yield f"20 pieces of work in a stream were done in the order {done}"
        done.clear()
    try:
        one.stream_of(NO_STREAM)
    except Exception as e:
        yield from wrong_type(e, "stream_of, of a handle that no stream has,", InvalidArgument)
    else:
        if one.host_memory:
            yield "stream_of takes a handle that no stream has"


class _Failure(Exception):
    """What work in a stream raises."""


def _fail() -> None:
    raise _Failure


def _failing(subject: Subject, one: Device) -> Iterator[str]:
    """Work in a stream fails."""
    made = _streams(one)
    if made is None:
        return
    try:
        made[0].submit(_fail)
        made[0].synchronize()
    except _Failure:
        pass
    else:
        yield "synchronize() does not raise what work in the stream has raised"
    done = list[int]()
    made[0].submit(partial(done.append, 1))
    made[0].synchronize()
    if not done:
        yield "after work has failed a stream does no other"


def _marks(subject: Subject, one: Device) -> Iterator[str]:
    """Events are recorded in a stream."""
    made = _streams(one)
    try:
        first, second = one.create_event(), one.create_event()
    except NotImplementedError:
        return
    if made is None:
        yield "it has events, and no streams"
        return
    first.record(made[0])
    second.record(made[0])
    made[0].synchronize()
    second.synchronize()
    if (seconds := second.elapsed(first)) < 0:
        yield f"an event is {seconds} s after one that was recorded before it"
