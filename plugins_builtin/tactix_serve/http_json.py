"""Requests and answers as JSON, with binary tensors behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tactix.base.errors import InvalidArgument
from tactix_serve.datatypes import NO_NUMBERS, TensorMetadata, from_bytes, to_values
from tactix_serve.inference import (
    InferenceAnswer,
    InferenceRequest,
    InputTensor,
    OutputTensor,
    WantedOutput,
)
from tactix_serve.shared_memory import RegionSlice

HEADER = "Inference-Header-Content-Length"
"""How many bytes of a message are JSON; what follows are tensors."""

MICROSECONDS = 1e-6

SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
"""Parameters of requests that belong together."""

Json = Mapping[str, object]

DECODER = json.JSONDecoder(parse_constant=NO_NUMBERS.__getitem__)


@dataclass(frozen=True)
class RequestHead:
    """What is not in the body. ``length``: what HEADER says. ``carrier``: see InferenceRequest."""

    model: str
    version: str
    length: str | None
    carrier: Mapping[str, str]


def parsed(head: RequestHead, body: memoryview) -> InferenceRequest:
    """Raises InvalidArgument."""
    length = _length(head.length, body.nbytes)
    found = document(bytes(body[:length]))
    parameters = _table(found, "parameters")
    refuse_sequences(parameters)
    tensors, rest = list[InputTensor](), body[length:]
    for row in _rows(found, "inputs", needed=True):
        tensor, rest = _input(row, rest)
        tensors.append(tensor)
    if rest.nbytes:
        raise InvalidArgument(f"{rest.nbytes} bytes follow the last input")
    binary = _flag(parameters, "binary_data_output")
    outputs = [_output(row, binary) for row in _rows(found, "outputs")]
    return InferenceRequest(
        head.model,
        head.version,
        tensors,
        outputs,
        _text(found, "id") if "id" in found else "",
        time_limit(parameters),
        binary,
        head.carrier,
    )


def document(text: bytes) -> Json:
    """A JSON object. Raises InvalidArgument."""
    try:
        found = DECODER.decode(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError) as e:
        raise InvalidArgument("the request is no JSON", why=str(e)[:200]) from None
    if not isinstance(found, dict):
        raise InvalidArgument("the request is no JSON object")
    return found


def answered(answer: InferenceAnswer) -> tuple[bytes, list[bytes | memoryview]]:
    """The JSON, and tensors that follow it. Raises InvalidArgument for what JSON cannot say."""
    rows, behind = list[Json](), list[bytes | memoryview]()
    for output in answer.outputs:
        row = {
            "name": output.metadata.name,
            "datatype": output.metadata.datatype,
            "shape": list(output.shape),
        }
        rows.append({**row, **_content(output, behind)})
    named = {"model_name": answer.model, "model_version": answer.version, "outputs": rows}
    return json.dumps({**named, **({"id": answer.id} if answer.id else {})}).encode(), behind


def _content(output: OutputTensor, behind: list[bytes | memoryview]) -> Json:
    place = output.wanted.region
    if place is not None:
        return {
            "parameters": {
                "shared_memory_region": place.region,
                "shared_memory_offset": place.offset,
                "shared_memory_byte_size": output.size,
            }
        }
    if output.wanted.binary:
        behind.append(output.content)
        return {"parameters": {"binary_data_size": output.size}}
    name, datatype = output.metadata.name, output.metadata.datatype
    array = from_bytes(name, datatype, output.shape, memoryview(output.content))
    return {"data": to_values(name, datatype, array)}


def metadata_rows(tensors: Sequence[TensorMetadata]) -> list[Json]:
    return [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]


def _length(header: str | None, size: int) -> int:
    if header is None:
        return size
    if not (header.isascii() and header.isdigit() and int(header) <= size):
        what = f"{HEADER} is {header[:40]!r}"
        raise InvalidArgument(what, why=f"the body has {size} bytes")
    return int(header)


def _input(row: Json, rest: memoryview) -> tuple[InputTensor, memoryview]:
    """And what follows its bytes."""
    name, datatype = _text(row, "name"), _text(row, "datatype")
    shape = row.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int for n in shape):
        raise InvalidArgument(f"input {name!r} has the shape {shape!r}", do="Give a list of sizes")
    parameters = _table(row, "parameters")
    if (region := region_slice(parameters)) is not None:
        return InputTensor(name, datatype, tuple(shape), region=region), rest
    if "binary_data_size" not in parameters:
        if "data" not in row:
            raise InvalidArgument(f"input {name!r} has no data")
        return InputTensor(name, datatype, tuple(shape), values=row["data"]), rest
    size = _integer(parameters, "binary_data_size")
    if size > rest.nbytes:
        what = f"input {name!r} takes {size} bytes"
        raise InvalidArgument(what, why=f"{rest.nbytes} follow the JSON", do=f"Set {HEADER}")
    return InputTensor(name, datatype, tuple(shape), content=rest[:size]), rest[size:]


def _output(row: Json, binary: bool) -> WantedOutput:
    parameters = _table(row, "parameters")
    if "classification" in parameters:
        raise InvalidArgument("classification is not served", do="Ask for the scores")
    if "binary_data" in parameters:
        binary = _flag(parameters, "binary_data")
    return WantedOutput(_text(row, "name"), binary, region_slice(parameters))


def time_limit(parameters: Json) -> float | None:
    """Seconds, where a request says any. Raises InvalidArgument."""
    told = parameters.get("timeout")
    return _integer(parameters, "timeout") * MICROSECONDS if told else None


def refuse_sequences(parameters: Json) -> None:
    """A model here keeps nothing from request to request. Raises InvalidArgument."""
    if asked := [key for key in SEQUENCE if parameters.get(key)]:
        do = "Send the state with each request"
        raise InvalidArgument(f"sequences of requests are not served: {asked[0]!r}", do=do)


def region_slice(parameters: Json) -> RegionSlice | None:
    """Where a tensor lies by its parameters. Raises InvalidArgument."""
    if "shared_memory_region" not in parameters:
        return None
    size = _integer(parameters, "shared_memory_byte_size")
    start = "shared_memory_offset"
    offset = _integer(parameters, start) if start in parameters else 0
    return RegionSlice(_text(parameters, "shared_memory_region"), offset, size)


def _table(row: Json, key: str) -> Json:
    found = row.get(key, {})
    if not isinstance(found, dict):
        raise InvalidArgument(f"{key!r} is no object")
    return found


def _rows(found: Json, key: str, needed: bool = False) -> list[Json]:
    rows = found.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise InvalidArgument(f"{key!r} is no list of objects")
    if needed and not rows:
        raise InvalidArgument(f"the request has no {key}")
    return rows


def _text(row: Json, key: str) -> str:
    found = row.get(key)
    if not isinstance(found, str):
        raise InvalidArgument(f"{key!r} is {found!r}", do="Give text")
    return found


def _integer(row: Json, key: str) -> int:
    found = row.get(key)
    if type(found) is not int or found < 0:
        raise InvalidArgument(f"{key!r} is {found!r}", do="Give an integer from 0")
    return found


def _flag(row: Json, key: str) -> bool:
    found = row.get(key, False)
    if type(found) is not bool:
        raise InvalidArgument(f"{key!r} is {found!r}", do="Give true or false")
    return found
