"""What a node is given, held against onnx's own description of its operator: how many inputs and
outputs, which of them must be there, their types, and that those of one type variable are one.

Every node is asked about, so answers are kept by operator, version and types. What only a newer
version of an operator permits is taken, and remarked: exporters write bfloat16 under numbers of
operator sets that do not have it yet, and onnx's own bodies use newer forms.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError
from tactix.contracts.graph import Value
from tactix_onnx.catalog import MAIN, domain_of, newer_schemas, schema_of
from tactix_onnx.weights import ONNX_DTYPES

if TYPE_CHECKING:
    import onnx

    from tactix.base.tensor import Element

Types = tuple[str | None, ...]
"""Of each input its type as onnx's schemas write it; None for an input that is left out, and ""
where the type is not known whole.
"""


@dataclass(frozen=True)
class Misfit:
    """Why a node does not have the form of its operator. ``what`` has a field for the tensor's name
    of each of ``inputs``, those that it is about.
    """

    what: str
    why: str
    do: str
    inputs: tuple[int, ...] = ()

    def of(self, names: Sequence[str]) -> str:
        """``what`` where the node's inputs have these names."""
        return self.what.format(*(f" {names[i]!r}" for i in self.inputs))


@dataclass(frozen=True)
class Fit:
    """``misfit``: None for what the operator permits at this version. ``newer``: the first version
    that permits it where this one does not.
    """

    misfit: Misfit | None = None
    newer: int | None = None


FITS = Fit()


def check(
    node: onnx.NodeProto, opset: int, inputs: Sequence[Value | None], remarks: dict[str, str]
) -> None:
    """Raises ModelImportError for what no version of the node's operator from ``opset`` on permits.
    ``remarks``: gets what to tell of what a newer one does, and the node's name.
    """
    domain = domain_of(node.domain)
    types = tuple(None if v is None else _text(v) for v in inputs)
    found = _fit(domain, node.op_type, opset, types, len(node.output))
    if found.misfit is None or found.newer is not None:
        _check_sizes(node, domain, inputs)
    if found.misfit is None:
        return
    what = found.misfit.of(node.input)
    if found.newer is None:
        raise ModelImportError(what, why=found.misfit.why, do=found.misfit.do)
    about = f"{node.op_type} of {domain} {opset} is used as {domain} {found.newer} has it"
    if about not in remarks:
        remarks[about] = f"node {node.name!r}: {what}, and {found.misfit.why} until then"


_ONE: Mapping[str, Sequence[int]] = {
    "BlackmanWindow": (0,), "Clip": (1, 2), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2),
    "Dropout": (1, 2), "HammingWindow": (0,), "HannWindow": (0,), "If": (0,), "Loop": (0, 1),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4), "OneHot": (1,),
    "Pad": (2,), "Range": (0, 1, 2), "STFT": (1, 3), "TopK": (1,), "Trilu": (1,),
}  # fmt: skip
"""Inputs that are a number, by operator: of one element, whatever the rank."""

_LISTS: Mapping[str, Sequence[int]] = {
    "AffineGrid": (1,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,),
    "Expand": (1,), "Pad": (1, 3), "Reshape": (1,), "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4),
    "Split": (1,), "Squeeze": (1,), "Tile": (1,), "Unsqueeze": (1,), "Upsample": (1,),
}  # fmt: skip
"""Inputs that are a list of numbers."""


def _check_sizes(node: onnx.NodeProto, domain: str, inputs: Sequence[Value | None]) -> None:
    """Raises ModelImportError where a number or a list of them is given as something else."""
    op = node.op_type
    if domain != MAIN or (op not in _ONE and op not in _LISTS):
        return
    for i, v in _tensors(inputs, _ONE.get(op, ())):
        if isinstance(v.spec.numel, int) and v.spec.numel != 1:
            what = f"input {i} {node.input[i]!r} is {v.spec}"
            raise ModelImportError(what, why=f"{op} takes one element there", do=RESHAPE)
    for i, v in _tensors(inputs, _LISTS.get(op, ())):
        if v.spec.rank > 1:
            what = f"input {i} {node.input[i]!r} is {v.spec}"
            raise ModelImportError(what, why=f"{op} takes a vector there", do=RESHAPE)


RESHAPE = "Put a Reshape before it, or export the model again"


def _tensors(inputs: Sequence[Value | None], places: Sequence[int]) -> Iterator[tuple[int, Value]]:
    """Those at these places that are there, and no sequences."""
    for i in places:
        v = inputs[i] if i < len(inputs) else None
        if v is not None and v.spec.element is None:
            yield i, v


@functools.lru_cache(1 << 14)
def _fit(domain: str, op: str, version: int, types: Types, outputs: int) -> Fit:
    own = schema_of(domain, op, version)
    if own is None or own.deprecated:
        return FITS
    problem = _problem(own, types, outputs)
    if problem is None:
        return FITS
    newer = newer_schemas(domain, op, version)
    fitting = (s.since_version for s in newer if _problem(s, types, outputs) is None)
    return Fit(problem, next(fitting, None))


def _problem(schema: Any, types: Types, outputs: int) -> Misfit | None:
    return _count(schema, types, outputs) or _wrong_type(schema, types) or _unequal(schema, types)


def _count(schema: Any, types: Types, outputs: int) -> Misfit | None:
    """Too few or too many inputs or outputs, or one left out that must be there."""
    given = (
        ("inputs", len(types), schema.min_input, schema.max_input, "takes"),
        ("outputs", outputs, 0, schema.max_output, "gives"),
    )
    for kind, count, fewest, most, verb in given:
        if not fewest <= count <= most:
            why = f"{schema.name} {verb} {_range(fewest, most)}"
            return Misfit(f"its {kind} are {count}", why, "Export the model again")
    for i, (formal, t) in enumerate(zip(_formals(schema, len(types)), types, strict=True)):
        if t is None and formal.option == type(formal.option).Single:
            what = f"input {i} ({formal.name}) is missing"
            return Misfit(what, f"{schema.name} needs it", "Export the model with it")
    return None


def _range(fewest: int, most: int) -> str:
    if most >= ENDLESS:
        return f"{fewest} or more"
    if not fewest:
        return f"at most {most}"
    return f"{most}" if fewest == most else f"{fewest} to {most}"


ENDLESS = (1 << 31) - 1
"""Most inputs of a variadic operator, as schemas have it."""

SHOWN = 8
"""So many types are named in an error."""


def _wrong_type(schema: Any, types: Types) -> Misfit | None:
    for i, (formal, t) in enumerate(zip(_formals(schema, len(types)), types, strict=True)):
        if t and t not in formal.types:
            may = sorted(formal.types)
            if may[0].startswith("map("):  # no tensor stands for one: the converter says what can
                continue
            more = f" and {len(may) - SHOWN} more" if len(may) > SHOWN else ""
            what = f"input {i} ({formal.name}){{}} is {t}"
            why = f"{schema.name} takes {', '.join(may[:SHOWN])}{more} there"
            return Misfit(what, why, _cure(t, may), (i,))
    return None


def _cure(given: str, may: Sequence[str]) -> str:
    if not given.startswith("tensor(") or not any(t.startswith("tensor(") for t in may):
        return "Export the model again"
    near = next((t for t in NEAREST if t in may), may[0])
    return f"Put a Cast to {near[len('tensor(') : -1]} before the node"


NEAREST = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(uint8)")
"""What a cure proposes, the first that fits."""


def _unequal(schema: Any, types: Types) -> Misfit | None:
    """Two inputs of one type variable that differ."""
    bound: dict[str, tuple[int, str]] = {}
    for i, (formal, t) in enumerate(zip(_formals(schema, len(types)), types, strict=True)):
        if not t or not formal.is_homogeneous:
            continue
        first, other = bound.setdefault(formal.type_str, (i, t))
        if t != other:
            what = f"input {first}{{}} is {other}, and input {i}{{}} {t}"
            why = f"{schema.name} takes one type ({formal.type_str}) for both"
            return Misfit(what, why, "Put a Cast before one of them", (first, i))
    return None


def _formals(schema: Any, count: int) -> Iterator[Any]:
    """The parameter of each input; the last one stands for all that follow where it is variadic."""
    formals = schema.inputs
    return (formals[min(i, len(formals) - 1)] for i in range(count))


# -- types ---------------------------------------------------------------------------------------


def _text(v: Value) -> str:
    element = v.spec.element
    return _tensor_texts()[v.spec.dtype] if element is None else _object_text(v.spec.dtype, element)


def _object_text(dtype: DType, element: Element) -> str:
    """A sequence or optional; "" for maps, whose labels' type the dtype does not tell, and for what
    has no element yet.
    """
    kind = {DType.SEQUENCE: "seq", DType.OPTIONAL: "optional"}.get(dtype)
    if kind is None or element.none:
        return ""
    inner = (
        _tensor_texts().get(element.dtype, "")
        if element.of is None
        else _object_text(element.dtype, element.of)
    )
    return f"{kind}({inner})" if inner else ""


@functools.cache
def _tensor_texts() -> dict[DType, str]:
    from onnx import TensorProto

    return {
        dtype: f"tensor({TensorProto.DataType.Name(code).lower()})"
        for code, dtype in ONNX_DTYPES.items()
    }
