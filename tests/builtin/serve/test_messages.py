"""Messages of gRPC, read from the file, beside those of NVIDIA's client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from tactix_serve.messages import protocol


def test_a_message_goes_there_and_back() -> None:
    made = protocol().messages["ModelInferRequest"]
    request = made(model_name="m", raw_input_contents=[b"abc"])
    request.inputs.add(name="x", datatype="FP32", shape=[-1, 3])
    request.parameters["timeout"].int64_param = 5
    back = made.FromString(request.SerializeToString())
    assert back == request
    assert back.parameters["timeout"].WhichOneof("parameter_choice") == "int64_param"
    assert [rpc.name for rpc in protocol().methods if rpc.streams] == ["ModelStreamInfer"]


def _fields(message: Any) -> dict[str, Any]:
    """Number and kind of each field, by name, of a message and those inside."""
    own = {
        f.name: (f.number, f.type, f.message_type and f.message_type.name) for f in message.fields
    }
    return own | {f"{n.name}.{k}": v for n in message.nested_types for k, v in _fields(n).items()}


def test_numbers_are_those_of_the_client() -> None:
    client = pytest.importorskip("tritonclient.grpc")
    files = [client.service_pb2.DESCRIPTOR, client.model_config_pb2.DESCRIPTOR]
    theirs = {name: m for f in files for name, m in f.message_types_by_name.items()}
    for name, made in protocol().messages.items():
        ours, known = _fields(made.DESCRIPTOR), _fields(theirs[name])
        assert ours.items() <= known.items(), name
    ours = protocol().messages["ModelInput"].DESCRIPTOR.file.enum_types_by_name["DataType"]
    known = files[1].enum_types_by_name["DataType"]
    assert [(v.name, v.number) for v in ours.values] == [(v.name, v.number) for v in known.values]
