"""The header of a library: its tensors in words, in enumerations, and as functions by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.plan.schema import Plan, TensorIO
from tactix_ship.c_library.names import identifiers, named, remark, text_of

_TYPES = {
    DType.FP32: ("FLOAT32", "float"), DType.FP64: ("FLOAT64", "double"),
    DType.FP16: ("FLOAT16", "uint16_t"), DType.BF16: ("BFLOAT16", "uint16_t"),
    DType.INT64: ("INT64", "int64_t"), DType.INT32: ("INT32", "int32_t"),
    DType.INT16: ("INT16", "int16_t"), DType.INT8: ("INT8", "int8_t"),
    DType.UINT64: ("UINT64", "uint64_t"), DType.UINT32: ("UINT32", "uint32_t"),
    DType.UINT16: ("UINT16", "uint16_t"), DType.UINT8: ("UINT8", "uint8_t"),
    DType.BOOL: ("BOOL", "uint8_t"),
    DType.COMPLEX64: ("COMPLEX64", "float"), DType.COMPLEX128: ("COMPLEX128", "double"),
    DType.FP8: ("FLOAT8E4M3", "uint8_t"), DType.FP8E5M2: ("FLOAT8E5M2", "uint8_t"),
    DType.FP8FNUZ: ("FLOAT8E4M3FNUZ", "uint8_t"), DType.FP8E5M2FNUZ: ("FLOAT8E5M2FNUZ", "uint8_t"),
    DType.FP8E8M0: ("FLOAT8E8M0", "uint8_t"), DType.FP4: ("FLOAT4E2M1", "uint8_t"),
    DType.INT4: ("INT4", "int8_t"), DType.INT2: ("INT2", "int8_t"),
    DType.UINT4: ("UINT4", "uint8_t"), DType.UINT2: ("UINT2", "uint8_t"),
}  # fmt: skip
"""Their enumerators, and the types of C that hold their elements; places are their numbers."""
_REMARKS = {
    DType.FP16: "bits of IEEE 754 binary16",
    DType.BF16: "the upper half of a float's bits",
    DType.BOOL: "a byte, 0 or 1",
    DType.COMPLEX64: "two floats",
    DType.COMPLEX128: "two doubles",
    DType.INT4: "a byte for each element, as all types of fewer than 8 bits",
}


def type_name(dtype: DType, name: str) -> str:
    """The enumerator of a type."""
    return f"{name.upper()}_{_TYPES[dtype][0]}"


def c_type(dtype: DType) -> str:
    """What holds an element, or, of complex numbers, a half."""
    return _TYPES[dtype][1]


def header(plan: Plan, description: str, name: str, on_cuda: bool = False) -> str:
    """The text of NAME.h. ``on_cuda``: of a library for a GPU."""
    typed = [*_typed("input", plan.inputs, name), *_typed("output", plan.outputs, name)]
    if on_cuda:
        typed += _typed("input", plan.inputs, name, "device_")
        typed += _typed("output", plan.outputs, name, "device_")
    found = {
        **_device_parts(name, on_cuda),
        "summary": _summary(plan, description),
        "types": _types(name),
        "inputs": _places("input", plan.inputs, name),
        "outputs": _places("output", plan.outputs, name),
        "states": [named(line, name) for line in STATE_DECLARATION if plan.states],
        "typed": typed,
    }
    return filled(text_of("library.h", name), found)


DEVICE_STATUSES = {
    "NO_DEVICE": "there is no NVIDIA driver, or no such GPU",
    "DRIVER_ERROR": "the driver refused a call; the text has CUDA's name of the reason",
}
"""Those of libraries for a GPU alone, behind the others, and what they mean."""


def _device_parts(name: str, on_cuda: bool) -> dict[str, Sequence[str]]:
    """What the header of a library for a GPU has beside the others'."""
    if not on_cuda:
        return {"statuses": [], "options": [], "calls": []}
    statuses = [
        f"    {name.upper()}_{f'{status} = {number},':<23}/* {what} */"
        for number, (status, what) in enumerate(DEVICE_STATUSES.items(), 9)
    ]
    return {
        "statuses": statuses,
        "options": ["    int device;          /* number of the GPU, as the driver counts */"],
        "calls": text_of("cuda_calls_declared.h", name).splitlines(),
    }


def contexts(plan: Plan, name: str, on_cuda: bool = False) -> str:
    """The text of context.c. ``on_cuda``: of a library for a GPU."""
    names = [f'        "{name.upper()}_{s}",' for s in DEVICE_STATUSES if on_cuda]
    parts: dict[str, Sequence[str]] = {
        "states": [named(line, name) for line in STATE_DEFINITION if plan.states],
        "status_names": names,
        "calls": ['#include "calls.h"'] if on_cuda else [],
    }
    return filled(text_of("context.c", name), parts)


def filled(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """A text whose lines ``//@part`` become those of the parts."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += parts[line[3:]] if line.startswith("//@") else [line]
    return "\n".join(lines) + "\n"


STATE_DECLARATION = """
/* How much of the states is filled before the next run, in elements along the axis that grows. A
 * run reads that much of each state's input, and appends to it: bind the output of a state to the
 * memory of its input. */
LIB_API lib_status lib_set_length(lib_context *context, int64_t length);""".splitlines()
STATE_DEFINITION = """
static lib_status set_length(lib_context *c, int64_t length) {
    if (length < 0)
        return fail(c, LIB_INVALID_ARGUMENT, "states of %lld elements", (long long)length);
    c->settled = c->settled && c->length == length;
    c->length = length;
    return LIB_OK;
}

lib_status lib_set_length(lib_context *context, int64_t length) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, set_length(context, length)) : status;
}""".splitlines()


def _summary(plan: Plan, description: str) -> list[str]:
    lines = [f" * {remark(description)}"]
    for title, ios in (("Inputs", plan.inputs), ("Outputs", plan.outputs)):
        lines += [" *", f" * {title}:"]
        lines += [
            f" *   {i}  {remark(io.name)}: {_TYPES[io.dtype][0].lower()} {remark(show(io.shape))}"
            for i, io in enumerate(ios)
        ]
    if ranges := _ranges(plan):
        lines += [" *", " * Open sizes:", *(f" *   {remark(r)}" for r in ranges)]
    return lines


def _ranges(plan: Plan) -> list[str]:
    """``batch: 1 to 32``, of each profile."""
    out = []
    for p in plan.profiles:
        told = [
            f"{s} {low} {'or more' if high is None else f'to {high}'}"
            for s, (low, _, high) in p.dims.items()
        ]
        out += [f"{p.name}: {', '.join(told)}"] if told else []
    return out


def _types(name: str) -> list[str]:
    out = []
    for i, (dtype, (enumerator, held)) in enumerate(_TYPES.items()):
        told = _REMARKS.get(dtype, held)
        out.append(f"    {type_name(dtype, name)} = {i},{' ' * (16 - len(enumerator))}/* {told} */")
    return out


def _places(kind: str, ios: Sequence[TensorIO], name: str) -> list[str]:
    prefix = f"{name.upper()}_{kind.upper()}"
    own = identifiers(io.name for io in ios)
    rows = [
        f"    {prefix}_{ident.upper()} = {i}, /* {remark(io.name)} */"
        for i, (ident, io) in enumerate(zip(own, ios, strict=True))
    ]
    return [*rows, f"    {prefix}S = {len(ios)}"]


def _typed(kind: str, ios: Sequence[TensorIO], name: str, where: str = "") -> Iterable[str]:
    """Functions that take a pointer to elements and how many there are. ``where``: ``device_`` for
    memory of a GPU.
    """
    const = "const " if kind == "input" else ""
    for ident, io in zip(identifiers(io.name for io in ios), ios, strict=True):
        held, place = c_type(io.dtype), f"{name.upper()}_{kind.upper()}_{ident.upper()}"
        size = io.dtype.itemsize
        yield f"/* {remark(io.name)}: {_TYPES[io.dtype][0].lower()} {remark(show(io.shape))} */"
        yield f"static inline {name}_status {name}_bind_{where}{kind}_{ident}("
        yield f"    {name}_context *context, {const}{held} *elements, size_t count) {{"
        yield f"    const size_t bytes = count < SIZE_MAX / {size} ? count * {size} : SIZE_MAX;"
        yield f"    return {name}_bind_{where}{kind}(context, {place}, elements, bytes);"
        yield "}"
        yield ""
