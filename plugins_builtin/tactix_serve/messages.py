"""Message classes of open_inference.proto, made when they are first needed: no generated source,
and no clash with a client of the same protocol in the same process, as the pool is our own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SOURCE = "open_inference.proto"
PACKAGE = "inference"
_TOKEN = re.compile(r"[A-Za-z_][\w.]*|\d+|\"[^\"]*\"|[{}()<>=;,]")
_SCALARS = ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")


@dataclass(frozen=True)
class Rpc:
    """A method of the service; messages by name. ``streams``: both ways."""

    name: str
    request: str
    response: str
    streams: bool


@dataclass(frozen=True)
class Protocol:
    """``messages``: classes by name."""

    messages: Mapping[str, Any]
    methods: tuple[Rpc, ...]


@functools.cache
def protocol() -> Protocol:
    """What the file says."""
    text = resources.files(__package__).joinpath(SOURCE).read_text()
    tokens = iter(_TOKEN.findall(re.sub(r"//.*", "", text)))
    file = descriptor_pb2.FileDescriptorProto(name=SOURCE, package=PACKAGE, syntax="proto3")
    methods = list[Rpc]()
    for token in tokens:
        if token == "message":
            _message(file.message_type.add(name=next(tokens)), f".{PACKAGE}", tokens)
        elif token == "enum":
            _enum(file.enum_type.add(name=next(tokens)), tokens)
        elif token == "service":
            methods += _service(tokens)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {m.name: pool.FindMessageTypeByName(f"{PACKAGE}.{m.name}") for m in file.message_type}
    classes = {name: message_factory.GetMessageClass(d) for name, d in found.items()}
    return Protocol(classes, tuple(methods))


def _message(made: Any, scope: str, tokens: Iterator[str]) -> None:
    """Up to its closing brace. What is no scalar is looked up by protobuf, from the inside out,
    which tells messages and enums apart.
    """
    assert next(tokens) == "{"
    for token in tokens:
        if token == "}":
            return
        if token == "message":
            _message(made.nested_type.add(name=next(tokens)), f"{scope}.{made.name}", tokens)
        elif token == "oneof":
            made.oneof_decl.add(name=next(tokens))
            _oneof(made, tokens)
        elif token == "map":
            _map(made, f"{scope}.{made.name}", tokens)
        elif token == "repeated":
            _field(made, next(tokens), tokens, repeated=True)
        else:
            _field(made, token, tokens)


def _field(made: Any, kind: str, tokens: Iterator[str], repeated: bool = False) -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    name, _, number, _ = (next(tokens) for _ in range(4))
    field = made.field.add(name=name, number=int(number))
    field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    else:
        field.type_name = kind
    return field


def _enum(made: Any, tokens: Iterator[str]) -> None:
    """Up to its closing brace."""
    assert next(tokens) == "{"
    for name in tokens:
        if name == "}":
            return
        _, number, _ = (next(tokens) for _ in range(3))
        made.value.add(name=name, number=int(number))


def _oneof(made: Any, tokens: Iterator[str]) -> None:
    assert next(tokens) == "{"
    for token in tokens:
        if token == "}":
            return
        _field(made, token, tokens).oneof_index = len(made.oneof_decl) - 1


def _map(made: Any, scope: str, tokens: Iterator[str]) -> None:
    """As protobuf has it: repeated messages of a key and a value."""
    _, key, _, value, _, name, _, number, _ = (next(tokens) for _ in range(9))
    entry = made.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for i, (part, kind) in enumerate((("key", key), ("value", value)), 1):
        _field(entry, kind, iter((part, "=", str(i), ";")))
    field = iter((name, "=", number, ";"))
    _field(made, f"{scope}.{entry.name}", field, repeated=True)


def _service(tokens: Iterator[str]) -> Iterator[Rpc]:
    """Up to its closing brace."""
    for token in tokens:
        if token == "}":
            return
        if token != "rpc":
            continue
        words = [next(tokens)]
        while words[-1] != "{":
            words.append(next(tokens))
        assert next(tokens) == "}"
        names = [w for w in words if w[0].isupper()]
        yield Rpc(names[0], names[1], names[2], "stream" in words)
