"""What holds of a node's attributes: each given once, of the operator's kind, in its range, and
none missing that must be there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import ModelImportError
from tactix_onnx.catalog import NEWEST, attribute_types, domain_of, schema_of

if TYPE_CHECKING:
    import onnx

AGAIN = "Export the model again"
CHANGE = "Change the attribute"

_ANY_AXIS = {"Flatten", "OneHot", "QuantizeLinear", "DequantizeLinear"}
"""Operators whose axis may be the rank of the first input, or means nothing for scalars."""

_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")

_LEAST: Mapping[str, int] = {
    "kernel_shape": 1, "strides": 1, "dilations": 1, "group": 1, "offset_group": 1,
    "num_groups": 1, "blocksize": 1, "size": 1, "hidden_size": 1, "num_outputs": 1, "p": 1,
    "pooled_shape": 1, "output_height": 1, "output_width": 1, "sampling_ratio": 0, "block_size": 0,
}  # fmt: skip
"""Least value of an integer, or of each of several, in ONNX's own operators."""

_MOST: Mapping[tuple[str, str], int] = {
    ("LpNormalization", "p"): 2, ("MaxPool", "storage_order"): 1, ("Mod", "fmod"): 1,
    ("RNN", "layout"): 1, ("GRU", "layout"): 1, ("LSTM", "layout"): 1,
}  # fmt: skip
"""Largest value, by operator and attribute; the least is 0 or what ``_LEAST`` says."""

_TEXTS: Mapping[tuple[str, str], Sequence[str]] = {
    ("", "auto_pad"): _AUTO_PAD,
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("GRU", "direction"): ("forward", "reverse", "bidirectional"),
    ("LSTM", "direction"): ("forward", "reverse", "bidirectional"),
    ("RNN", "direction"): ("forward", "reverse", "bidirectional"),
    ("NegativeLogLikelihoodLoss", "reduction"): ("none", "mean", "sum"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("ScatterElements", "reduction"): ("none", "add", "mul", "max", "min"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
    ("SoftmaxCrossEntropyLoss", "reduction"): ("none", "mean", "sum"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
}  # fmt: skip
"""What a text may be, by operator and attribute; "" stands for every operator."""


def check(node: onnx.NodeProto, opset: int, rank: int | None) -> None:
    """Raises ModelImportError for an attribute given twice, of another kind than the operator's, or
    out of its range, and for one that must be there and is not.

    ``rank``: of the first input, None if it has none. Files of the first IR versions name no kind
    of attributes.
    """
    domain, given, seen = domain_of(node.domain), node.attribute, set()
    types = attribute_types(domain, node.op_type, opset) if given else {}
    for a in given:
        who = f"attribute {a.name!r}"
        if a.name in seen:
            raise ModelImportError("it is given twice", who=who, do=AGAIN)
        seen.add(a.name)
        _check_kind(a, node.op_type, types.get(a.name, (a.type,)), who)
        if a.name in types:
            _check_axis(a, None if node.op_type in _ANY_AXIS else rank, who)
            _check_range(a, node.op_type, who)
    for name in _required(domain, node.op_type, opset):
        if name not in seen:
            why = f"{node.op_type} has no default of it"
            raise ModelImportError("it is missing", who=f"attribute {name!r}", why=why, do=AGAIN)


@functools.cache
def _required(domain: str, op: str, version: int) -> Sequence[str]:
    """Attributes without which a node means nothing, at its version and at the newest."""
    own, newest = schema_of(domain, op, version), schema_of(domain, op, NEWEST)
    if own is None or newest is None:
        return ()
    still = {name for name, a in newest.attributes.items() if a.required}
    return sorted(name for name, a in own.attributes.items() if a.required and name in still)


def _check_kind(a: onnx.AttributeProto, op: str, wanted: Sequence[int], who: str) -> None:
    import onnx

    if a.type not in wanted and a.type:
        kind = onnx.AttributeProto.AttributeType.Name
        why = f"{op} takes {kind(wanted[0])}"
        raise ModelImportError(f"it is of kind {kind(a.type)}", who=who, why=why, do=AGAIN)


def _check_axis(a: onnx.AttributeProto, rank: int | None, who: str) -> None:
    if a.name == "axis" and rank is not None and not -rank <= a.i < max(rank, 1):
        last = max(rank, 1) - 1
        why, do = f"the first input has {rank} axes", f"Give one from {-rank} to {last}"
        raise ModelImportError(f"it is {a.i}", who=who, why=why, do=do)


def _check_range(a: onnx.AttributeProto, op: str, who: str) -> None:
    import onnx

    kinds = onnx.AttributeProto
    if a.type == kinds.STRING:
        may = _TEXTS.get((op, a.name)) or _TEXTS.get(("", a.name))
        text = a.s.decode("utf-8", "replace")
        if may is not None and text not in may:
            why = f"{op} knows {', '.join(filter(None, may))}"
            raise ModelImportError(f"it is {text!r}", who=who, why=why, do=CHANGE)
    elif a.type in (kinds.INT, kinds.INTS):
        numbers = [a.i] if a.type == kinds.INT else list(a.ints)
        most = 1 if a.name == "keepdims" else _MOST.get((op, a.name))
        least = _LEAST.get(a.name, None if most is None else 0)
        if least is not None and any(
            n < least or n > (n if most is None else most) for n in numbers
        ):
            shown = numbers[0] if a.type == kinds.INT else numbers[:9]
            each = "it" if a.type == kinds.INT else "each"
            bound = f"{least} or more" if most is None else f"from {least} to {most}"
            why = f"{each} must be {bound}"
            raise ModelImportError(f"it is {shown}", who=who, why=why, do=CHANGE)
