"""A plan as tables of C: tables.h, over the types of program.h."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from tactix.base.arithmetic import IntegerOperation
from tactix.base.dims import Expr, symbol_name
from tactix.plan.schema import Plan, TensorIO
from tactix_ship.c_library.header import type_name
from tactix_ship.c_library.launch_tables import (
    LaunchTables,
    ProgramTables,
    filled_rows,
    joined,
    numbers,
    table,
)
from tactix_ship.c_library.names import literal, remark
from tactix_ship.c_library.weights import WeightLayout

NO_LIMIT = "INT64_MAX"


def tables(
    plan: Plan,
    launches: LaunchTables,
    weights: WeightLayout,
    description: str,
    name: str,
) -> str:
    """The text of tables.h. ``plan``: that around all programs."""
    programs = launches.programs
    parts = [
        f"/* The plan {remark(plan.name)} as tables. */",
        *_sizes(plan, launches),
        f"#define WEIGHTS_BYTES {weights.nbytes}",
        f"#define DESCRIPTION {literal(description)}",
        *launches.whole(),
        *_tensors((*plan.inputs, *plan.outputs), name),
        *_symbols(plan),
        *_profiles(plan),
        *_shared(plan),
    ]
    for i, p in enumerate(programs):
        parts += [*launches.program(i, f"p{i}_"), *_program(p, weights, f"p{i}_")]
    rows = []
    for i, p in enumerate(programs):
        work = " ".join(launches.fields(i, f"p{i}_"))
        own = [f".work = {{{work}}},", *_fields(p, f"p{i}_")]
        rows += ["{", *(f"    {field}" for field in own), "},"]
    parts += table("const program programs[PROGRAMS]", rows, "A row for each set of kernels.")
    return "\n".join(parts) + "\n"


# -- tables of the whole -------------------------------------------------------------------------


def _sizes(plan: Plan, launches: LaunchTables) -> list[str]:
    ios = (*plan.inputs, *plan.outputs)
    symbols = sorted(plan.symbols)
    threads = plan.meta.get("threads")
    rows = [
        ("AXES", sum(len(io.shape) for io in ios), "of all inputs and outputs"),
        ("SYMBOLS", len(symbols), "open sizes"),
        ("LENGTH_SYMBOL", symbols.index(plan.states.length) if plan.states else -1,
         "the one that is the length of states; -1: there are none"),
        ("PROFILES", len(plan.profiles), "ranges of sizes, one of which must take them"),
        ("PROGRAMS", len(launches.programs), "sets of kernels"),
        ("SHARED", len(plan.one_memory), "pairs of an input and an output that may be one memory"),
        ("TUNED_THREADS", threads if isinstance(threads, int) and threads > 0 else 1, "of a run"),
        *launches.sizes(),
    ]  # fmt: skip
    return ["enum {", *(f"    {n} = {v}, /* {what} */" for n, v, what in rows), "};"]


def _tensors(ios: Sequence[TensorIO], name: str) -> list[str]:
    out = ["", "/* Sizes of inputs and outputs as they are declared, and their names. */"]
    rows = []
    for i, io in enumerate(ios):
        dims = [-1 if isinstance(d, Expr) else int(d) for d in io.shape]
        names = [literal(str(d)) for d in io.shape]
        out.append(f"static const int64_t dims{i}[] = {{{joined(dims)}}};")
        out.append(f"static const char *const names{i}[] = {{{', '.join(names) or '0'}}};")
        size, rank = io.dtype.itemsize, len(io.shape)
        told = f"{literal(io.name)}, {type_name(io.dtype, name)}, {size}, {rank}, dims{i}, names{i}"
        rows.append(f"{{{told}}},")
    out += table(f"const {name}_tensor tensors[]", rows or ["{0},"], "Inputs, then outputs.")
    starts = [0, *accumulate(len(io.shape) for io in ios)]
    return out + numbers("const size_t first_axes[]", starts, "The first axis of each tensor.")


def _symbols(plan: Plan) -> list[str]:
    symbols = sorted(plan.symbols)
    names = [f"{literal(s)}," for s in symbols] or ["0,"]
    out = table("const char *const symbol_names[]", names, "Open sizes.")
    rows = []
    for io in plan.inputs:
        for d in io.shape:
            own = symbol_name(d)
            fixed = -1 if isinstance(d, Expr) else int(d)
            rows.append(f"{{{fixed}, {symbols.index(own) if own else -1}}},")
    return out + table("const axis axes[]", rows or ["{0, 0},"], "Axes of all inputs in a row.")


def _profiles(plan: Plan) -> list[str]:
    symbols = sorted(plan.symbols)
    rows = []
    for p in plan.profiles:
        ranges = [p.dims.get(s, (0, 0, None)) for s in symbols]
        told = [f"{{{low}, {NO_LIMIT if high is None else high}}}" for low, _, high in ranges]
        rows.append(f"{{{', '.join(told) or '{0, 0}'}}}, /* {remark(p.name)} */")
    chosen = plan.kernel_sets or [0] * len(plan.profiles)
    what = "Sizes that each profile takes, for each open size."
    out = table("const range profiles[][SYMBOLS + 1]", rows or ["{{0, 0}},"], what)
    return out + numbers("const int profile_programs[]", chosen, "The program of each profile.")


def _shared(plan: Plan) -> list[str]:
    inputs = [io.name for io in plan.inputs]
    outputs = [io.name for io in plan.outputs]
    rows = [f"{{{inputs.index(a)}, {outputs.index(b)}}}," for a, b in sorted(plan.one_memory)]
    what = "Inputs and outputs that may be one piece of memory."
    return table("const int32_t shared[][2]", rows or ["{0, 0},"], what)


# -- tables of a program -------------------------------------------------------------------------


def _program(p: ProgramTables, weights: WeightLayout, prefix: str) -> list[str]:
    return [*_arguments(p, prefix), *_buffers(p, weights, prefix), *_arithmetic(p, prefix)]


def _arguments(p: ProgramTables, prefix: str) -> list[str]:
    pointers = [(slot, f"{{{slot}, {buffer}, {more}}}") for slot, buffer, more in p.slots.pointers]
    scalars = [(slot, f"{{{slot}, {value}}}") for slot, value in p.slots.scalars]
    what = "Arguments that are addresses: slot, buffer, and which value is added."
    rows = _by_launch(p, pointers) or ["{0, 0, 0},"]
    out = table(f"const int64_t {prefix}pointers[][3]", rows, what)
    what = "Arguments that are numbers: slot, and which value it takes."
    rows = _by_launch(p, scalars) or ["{0, 0},"]
    return out + table(f"const int64_t {prefix}scalars[][2]", rows, what)


def _by_launch(p: ProgramTables, arguments: Iterable[tuple[int, str]]) -> list[str]:
    """Arguments by their slots; those of a launch in a row of their own."""
    rows = [list[str]() for _ in p.launches]
    for slot, told in arguments:
        rows[bisect_right(p.slots.starts, slot) - 1].append(told)
    return [
        f"{', '.join(row)}, /* {remark(s.name)} */"
        for row, (s, _) in zip(rows, p.launches, strict=True)
        if row
    ]


def _buffers(p: ProgramTables, weights: WeightLayout, prefix: str) -> list[str]:
    places, offsets = [], []
    kinds = {"input": "BOUND", "output": "BOUND", "weight": "NOWHERE", "object": "NOWHERE"}
    for b in p.plan.buffers:
        held = b.blob in weights.offsets if b.blob else False
        places.append("IN_WEIGHTS" if held else kinds.get(b.kind, "IN_ARENA"))
        offsets.append(weights.offsets[b.blob] if held else 0)
    tensors = [io.buffer for io in (*p.plan.inputs, *p.plan.outputs)]
    out = filled_rows(f"const uint8_t {prefix}places[]", places or ["0"], "Where each buffer lies.")
    what = "Bytes before those that are weights."
    out += numbers(f"const int64_t {prefix}offsets[]", offsets, what)
    what = "Buffers of the inputs, then of the outputs."
    return out + numbers(f"const int32_t {prefix}tensors[]", tensors, what)


_KINDS = {
    "+": "TXE_ADD", "*": "TXE_MULTIPLY", "//": "TXE_DIVIDE", "%": "TXE_REMAINDER", "max": "TXE_MAX",
    "min": "TXE_MIN", "bcast": "TXE_BROADCAST", ">=": "TXE_AT_LEAST", "==": "TXE_SAME",
    "!=": "TXE_OTHER",
}  # fmt: skip


def _arithmetic(p: ProgramTables, prefix: str) -> list[str]:
    line = p.arithmetic.line
    names = dict(enumerate(line.symbols))
    written = {o.to for o in line.operations}
    for i, value in enumerate(line.values[len(names) :], len(names)):
        names[i] = f"v{i}" if i in written else str(value)
    rows = [_operation(o, names) for o in line.operations]
    out = numbers(
        f"const int64_t {prefix}values[]", line.values, "Open sizes, constants, and what follows."
    )
    what = "From open sizes to bytes: kind, left, right, and where the result goes."
    out += table(f"const txe_operation {prefix}operations[]", rows or ["{0, 0, 0, 0},"], what)
    what = "Results: sizes of inputs and outputs, the arena, offsets in it, values of arguments."
    out += numbers(f"const int64_t {prefix}results[]", line.results, what)
    checks = [f"{{{c.operation}, {literal(c.text)}}}," for c in p.arithmetic.checks]
    what = "What it means that an operation has no value."
    return out + table(f"const check {prefix}checks[]", checks or ["{0, 0},"], what)


def _operation(o: IntegerOperation, names: Mapping[int, str]) -> str:
    told = f"{o.kind}({names[o.left]}, {names[o.right]})"
    if not o.kind.isalpha():
        told = f"{names[o.left]} {o.kind} {names[o.right]}"
    made = f"{names[o.to]} = " if o.kind not in (">=", "==", "!=") else ""
    return f"{{{_KINDS[o.kind]}, {o.left}, {o.right}, {o.to}}}, /* {remark(made + told)} */"


def _fields(p: ProgramTables, prefix: str) -> Iterator[str]:
    """Lines of a row of programs[]."""
    line, slots = p.arithmetic.line, p.slots
    yield f".slots = {slots.size},"
    for count, name in (
        (len(slots.pointers), "pointer"),
        (len(slots.scalars), "scalar"),
        (len(line.values), "value"),
        (len(line.operations), "operation"),
        (len(line.results), "result"),
        (len(p.arithmetic.checks), "check"),
    ):
        yield f".{name}s = {count}, .{name} = {prefix}{name}s,"
    yield f".buffers = {len(p.plan.buffers)}, .places = {prefix}places,"
    yield f".offsets = {prefix}offsets, .tensors = {prefix}tensors,"
