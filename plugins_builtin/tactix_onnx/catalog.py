"""What gives an operator its meaning: a converter, a layer that imports it, or a function body, in
that order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tactix.base.errors import ModelImportError
from tactix.contracts.importer import ANY_DOMAIN, Converter
from tactix.contracts.layer import Layer
from tactix.plugins.names import OWN

if TYPE_CHECKING:
    import onnx

    from tactix_onnx.convert import Context

MAIN = "ai.onnx"
"""The name of the default domain; files often write the empty string."""

NEWEST = (1 << 31) - 1
"""The version of what an operator has become by now."""

Opsets = Mapping[str, int]


def domain_of(domain: str) -> str:
    return domain or MAIN


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Operator-set version by domain."""
    return {domain_of(o.domain): o.version for o in imports}


@dataclass(frozen=True)
class Claim:
    """A converter, or a layer whose attributes are the operator's."""

    convert: Callable[..., Any] | None = None
    layer: Layer | None = None


@dataclass(frozen=True)
class Function:
    """A body that stands for a node: its formal inputs, attributes with defaults, and operator
    sets.
    """

    proto: onnx.FunctionProto
    defaults: Mapping[str, onnx.AttributeProto]
    opsets: Opsets


class Catalog:
    """Index of converters, importing layers and the model's own functions.

    A layer of a pack is not taken for an operator that one of tactix's stands for.

    ``supported``: functions whose bodies were searched for unknown operators, by domain, name,
    overload and version.
    """

    def __init__(
        self, converters: Any, layers: Iterable[Layer], functions: Iterable[onnx.FunctionProto]
    ) -> None:
        self._converters: dict[str, list[Converter]] = {}
        for c in _flatten(converters):
            if c.format == "onnx":
                self._converters.setdefault(c.op, []).append(c)
        self._layers: dict[str, Layer] = {}
        for layer in sorted(layers, key=lambda x: (not x.key.startswith(f"{OWN}."), x.key)):
            for name in layer.imports:
                form, _, op = name.partition(":")
                if form == "onnx":
                    self._layers.setdefault(op, layer)
        self.supported: set[tuple[str, str, str, int]] = set()
        self._functions: dict[tuple[str, str, str], onnx.FunctionProto] = {}
        for f in functions:
            key = (domain_of(f.domain), f.name, f.overload)
            if key in self._functions:
                raise ModelImportError(f"the model has two functions {f.domain}::{f.name}")
            self._functions[key] = f

    def claim(self, domain: str, op: str, version: int) -> Claim | None:
        """The converter with the highest ``since`` up to the version, or the layer that imports the
        operator, or the converter of its name in any domain.
        """
        key = f"{domain}::{op}"
        if own := self._converter(key, version):
            return Claim(convert=own.convert)
        if key in self._layers:
            return Claim(layer=self._layers[key])
        anywhere = self._converter(f"{ANY_DOMAIN}::{op}", version)
        return Claim(convert=anywhere.convert) if anywhere else None

    def _converter(self, key: str, version: int) -> Converter | None:
        fitting = [c for c in self._converters.get(key, ()) if c.since <= version]
        return max(fitting, key=lambda c: c.since, default=None)

    def is_local(self, node: onnx.NodeProto) -> bool:
        """Whether the model has a function of its own for the node."""
        return (domain_of(node.domain), node.op_type, node.overload) in self._functions

    def function(self, node: onnx.NodeProto, version: int) -> Function | None:
        """The model's own function for the node, or the body that the operator set defines."""
        domain = domain_of(node.domain)
        local = self._functions.get((domain, node.op_type, node.overload))
        if local is not None:
            defaults = {a.name: a for a in local.attribute_proto}
            return Function(local, defaults, opsets_of(local.opset_import))
        proto = _schema_body(domain, node.op_type, version)
        return proto and Function(
            proto, defaults_of(domain, node.op_type, version), _body_opsets(proto, version)
        )

    def typed_function(self, ctx: Context) -> Function | None:
        """A body that the operator set derives from the node's attributes and the types of its
        inputs.
        """
        schema = schema_of(ctx.domain, ctx.op, ctx.opset)
        versions = schema.context_dependent_function_opset_versions if schema else []
        if schema is None or not versions:
            return None
        import onnx

        from tactix_onnx.types import type_of

        types = [type_of(v.spec) if v is not None else onnx.TypeProto() for v in ctx.inputs]
        best = max((v for v in versions if v <= ctx.opset), default=min(versions))
        text = schema.get_context_dependent_function_with_opset_version(
            best, ctx.node.SerializeToString(), [t.SerializeToString() for t in types]
        )
        proto = onnx.FunctionProto()
        proto.ParseFromString(text)
        return Function(
            proto, defaults_of(ctx.domain, ctx.op, ctx.opset), _body_opsets(proto, ctx.opset)
        )

    def knows(self, node: onnx.NodeProto, opsets: Opsets) -> bool:
        """Whether something claims the operator or expands it."""
        domain = domain_of(node.domain)
        version = opsets.get(domain, 1)
        if self.claim(domain, node.op_type, version) is not None:
            return True
        schema = schema_of(domain, node.op_type, version)
        if schema is not None and schema.has_context_dependent_function:
            return True
        return self.function(node, version) is not None


def _flatten(converters: Any) -> Iterator[Converter]:
    items = converters.values() if isinstance(converters, Mapping) else converters
    for item in items:
        if isinstance(item, Converter):
            yield item
        else:
            yield from item


@functools.cache
def schema_of(domain: str, op: str, version: int) -> Any:
    """onnx's own description of an operator, or None."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(op, version, "" if domain == MAIN else domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def defaults_of(domain: str, op: str, version: int) -> Mapping[str, onnx.AttributeProto]:
    """Default attributes of an operator by name."""
    schema = schema_of(domain, op, version)
    found = schema.attributes.items() if schema else ()
    return {name: a.default_value for name, a in found if a.default_value.name}


@functools.cache
def attribute_types(domain: str, op: str, version: int) -> Mapping[str, tuple[int, ...]]:
    """AttributeProto.AttributeType of an operator's attributes by name: at this version, and at the
    newest.

    Bodies that onnx itself derives use newer attributes than their operator sets have.
    """
    out: dict[str, tuple[int, ...]] = {}
    for schema in (schema_of(domain, op, version), schema_of(domain, op, NEWEST)):
        for name, a in schema.attributes.items() if schema else ():
            out[name] = (*out.get(name, ()), int(a.type.value))
    return out


def newer_schemas(domain: str, op: str, version: int) -> Iterator[Any]:
    """The descriptions of an operator that changed after a version, the next one first."""
    for later in _changes(domain).get(op, ()):
        schema = schema_of(domain, op, later)
        if later > version and not schema.deprecated:
            yield schema


@functools.cache
def _changes(domain: str) -> Mapping[str, Sequence[int]]:
    """The versions of a domain at which each of its operators changed, in order."""
    import onnx.defs

    out: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if domain_of(schema.domain) == domain:
            out.setdefault(schema.name, []).append(schema.since_version)
    return {op: sorted(versions) for op, versions in out.items()}


@functools.cache
def _schema_body(domain: str, op: str, version: int) -> onnx.FunctionProto | None:
    schema = schema_of(domain, op, version)
    versions: Sequence[int] = schema.function_opset_versions if schema else ()
    if not versions:
        return None
    import onnx

    proto = onnx.FunctionProto()
    best = max((v for v in versions if v <= version), default=min(versions))
    proto.ParseFromString(schema.get_function_with_opset_version(best))
    return proto


def _body_opsets(proto: onnx.FunctionProto, version: int) -> Opsets:
    return opsets_of(proto.opset_import) or {MAIN: version}
