"""A plan as tables of C: tables.h, over the types of program.h."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tactix.base.arithmetic import IntegerOperation
from tactix.base.dims import Expr, symbol_name
from tactix.contracts.artifact import Binary, Launch
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan, TensorIO
from tactix_cpu.launcher import ArgumentSlots
from tactix_ship.c_library.arithmetic import PlanArithmetic, arithmetic_of
from tactix_ship.c_library.features import cpuid_bits
from tactix_ship.c_library.header import type_name
from tactix_ship.c_library.kernels import entry_name
from tactix_ship.c_library.names import literal, remark
from tactix_ship.c_library.weights import WeightLayout

WIDTH = 110
"""Columns of a row of numbers."""
NO_LIMIT = "INT64_MAX"


@dataclass(frozen=True)
class ProgramTables:
    """A plan of one set of kernels, with what its launches take and the arithmetic of it."""

    plan: Plan
    slots: ArgumentSlots
    arithmetic: PlanArithmetic

    @property
    def launches(self) -> list[tuple[Step, Launch, str]]:
        """Steps, launches and the kernels' entries in the plan."""
        return [(s, x, x.symbol or _entry(s)) for s in self.plan.steps for x in s.artifact.launches]


def _entry(s: Step) -> str:
    assert isinstance(s.artifact.code, Binary)
    return s.artifact.code.symbol


def program_of(plan: Plan) -> ProgramTables:
    """Raises PlanCompatibilityError."""
    slots = ArgumentSlots((s, x) for s in plan.steps for x in s.artifact.launches)
    return ProgramTables(plan, slots, arithmetic_of(plan, slots))


def tables(
    plan: Plan,
    programs: Sequence[ProgramTables],
    weights: WeightLayout,
    description: str,
    name: str,
) -> str:
    """The text of tables.h. ``plan``: that around all programs."""
    parts = [
        f"/* The plan {remark(plan.name)} as tables. */",
        *_sizes(plan, programs),
        f"#define DESCRIPTION {literal(description)}",
        *_kernels(programs, name),
        *_tensors((*plan.inputs, *plan.outputs), name),
        *_symbols(plan),
        *_profiles(plan),
        *_shared(plan),
        *_features(programs),
    ]
    for i, p in enumerate(programs):
        parts += _program(p, weights, f"p{i}_", name)
    rows = []
    for i, p in enumerate(programs):
        rows += ["{", *(f"    {field}" for field in _fields(p, f"p{i}_")), "},"]
    parts += _table("const program programs[PROGRAMS]", rows, "A row for each set of kernels.")
    return "\n".join(parts) + "\n"


# -- tables of the whole -------------------------------------------------------------------------


def _sizes(plan: Plan, programs: Sequence[ProgramTables]) -> list[str]:
    ios = (*plan.inputs, *plan.outputs)
    symbols = sorted(plan.symbols)
    threads = plan.meta.get("threads")
    rows = [
        ("AXES", sum(len(io.shape) for io in ios), "of all inputs and outputs"),
        ("SYMBOLS", len(symbols), "open sizes"),
        ("LENGTH_SYMBOL", symbols.index(plan.states.length) if plan.states else -1,
         "the one that is the length of states; -1: there are none"),
        ("PROFILES", len(plan.profiles), "ranges of sizes, one of which must take them"),
        ("PROGRAMS", len(programs), "sets of kernels"),
        ("SHARED", len(plan.one_memory), "pairs of an input and an output that may be one memory"),
        ("TUNED_THREADS", threads if isinstance(threads, int) and threads > 0 else 1, "of a run"),
        ("FEATURES", len(_needed(programs)), "instruction sets that the kernels use"),
        ("USES_TILES", int(any(f.startswith("amx") for f in _requires(programs))), "of AMX"),
    ]  # fmt: skip
    return ["enum {", *(f"    {n} = {v}, /* {what} */" for n, v, what in rows), "};"]


def _kernels(programs: Sequence[ProgramTables], name: str) -> list[str]:
    entries = dict.fromkeys(entry for p in programs for _, _, entry in p.launches)
    head = ["", "/* Entries of the kernels: arguments, number of the share, of how many. */"]
    return head + [f"void {entry_name(e, name)}(const int64_t *, int, int);" for e in entries]


def _tensors(ios: Sequence[TensorIO], name: str) -> list[str]:
    out = ["", "/* Sizes of inputs and outputs as they are declared, and their names. */"]
    rows = []
    for i, io in enumerate(ios):
        dims = [-1 if isinstance(d, Expr) else int(d) for d in io.shape]
        names = [literal(str(d)) for d in io.shape]
        out.append(f"static const int64_t dims{i}[] = {{{_joined(dims)}}};")
        out.append(f"static const char *const names{i}[] = {{{', '.join(names) or '0'}}};")
        size, rank = io.dtype.itemsize, len(io.shape)
        told = f"{literal(io.name)}, {type_name(io.dtype, name)}, {size}, {rank}, dims{i}, names{i}"
        rows.append(f"{{{told}}},")
    out += _table(f"const {name}_tensor tensors[]", rows or ["{0},"], "Inputs, then outputs.")
    starts = [0, *accumulate(len(io.shape) for io in ios)]
    return out + _numbers("const size_t first_axes[]", starts, "The first axis of each tensor.")


def _symbols(plan: Plan) -> list[str]:
    symbols = sorted(plan.symbols)
    names = [f"{literal(s)}," for s in symbols] or ["0,"]
    out = _table("const char *const symbol_names[]", names, "Open sizes.")
    rows = []
    for io in plan.inputs:
        for d in io.shape:
            own = symbol_name(d)
            fixed = -1 if isinstance(d, Expr) else int(d)
            rows.append(f"{{{fixed}, {symbols.index(own) if own else -1}}},")
    return out + _table("const axis axes[]", rows or ["{0, 0},"], "Axes of all inputs in a row.")


def _profiles(plan: Plan) -> list[str]:
    symbols = sorted(plan.symbols)
    rows = []
    for p in plan.profiles:
        ranges = [p.dims.get(s, (0, 0, None)) for s in symbols]
        told = [f"{{{low}, {NO_LIMIT if high is None else high}}}" for low, _, high in ranges]
        rows.append(f"{{{', '.join(told) or '{0, 0}'}}}, /* {remark(p.name)} */")
    chosen = plan.kernel_sets or [0] * len(plan.profiles)
    what = "Sizes that each profile takes, for each open size."
    out = _table("const range profiles[][SYMBOLS + 1]", rows or ["{{0, 0}},"], what)
    return out + _numbers("const int profile_programs[]", chosen, "The program of each profile.")


def _shared(plan: Plan) -> list[str]:
    inputs = [io.name for io in plan.inputs]
    outputs = [io.name for io in plan.outputs]
    rows = [f"{{{inputs.index(a)}, {outputs.index(b)}}}," for a, b in sorted(plan.one_memory)]
    what = "Inputs and outputs that may be one piece of memory."
    return _table("const int32_t shared[][2]", rows or ["{0, 0},"], what)


def _requires(programs: Sequence[ProgramTables]) -> set[str]:
    return {f for p in programs for s in p.plan.steps for f in s.artifact.requires}


def _needed(programs: Sequence[ProgramTables]) -> list[str]:
    return [
        f'{{"{f}", {b.leaf:#x}, {b.sub_leaf}, {b.register}, {b.bit}, {b.saved:#x}}},'
        for f, b in cpuid_bits(_requires(programs))
    ]


def _features(programs: Sequence[ProgramTables]) -> list[str]:
    rows = _needed(programs) or ["{0},"]
    made = _table("const feature features[]", rows, "What the kernels were compiled for.")
    return ["", "#if defined(__x86_64__)", *made, "#endif"]


# -- tables of a program -------------------------------------------------------------------------


def _program(p: ProgramTables, weights: WeightLayout, prefix: str, name: str) -> list[str]:
    return [
        *_launches(p, prefix, name),
        *_arguments(p, prefix),
        *_faults(p, prefix),
        *_buffers(p, weights, prefix),
        *_arithmetic(p, prefix),
    ]


def _launches(p: ProgramTables, prefix: str, name: str) -> list[str]:
    rows = [f"{entry_name(e, name)}, /* {remark(s.name)} */" for s, _, e in p.launches]
    out = _table(f"const txe_kernel {prefix}kernels[]", rows or ["0,"], "Launches, as they run.")
    what = "The first argument of each launch."
    return out + _numbers(f"const int32_t {prefix}first_slots[]", p.slots.starts, what)


def _arguments(p: ProgramTables, prefix: str) -> list[str]:
    pointers = [(slot, f"{{{slot}, {buffer}, {more}}}") for slot, buffer, more in p.slots.pointers]
    scalars = [(slot, f"{{{slot}, {value}}}") for slot, value in p.slots.scalars]
    what = "Arguments that are addresses: slot, buffer, and which value is added."
    rows = _by_launch(p, pointers) or ["{0, 0, 0},"]
    out = _table(f"const int64_t {prefix}pointers[][3]", rows, what)
    what = "Arguments that are numbers: slot, and which value it takes."
    rows = _by_launch(p, scalars) or ["{0, 0},"]
    return out + _table(f"const int64_t {prefix}scalars[][2]", rows, what)


def _by_launch(p: ProgramTables, arguments: Iterable[tuple[int, str]]) -> list[str]:
    """Arguments by their slots; those of a launch in a row of their own."""
    rows = [list[str]() for _ in p.launches]
    for slot, told in arguments:
        rows[bisect_right(p.slots.starts, slot) - 1].append(told)
    return [
        f"{', '.join(row)}, /* {remark(s.name)} */"
        for row, (s, _, _) in zip(rows, p.launches, strict=True)
        if row
    ]


def _faults(p: ProgramTables, prefix: str) -> list[str]:
    out, rows = list[str](), list[str]()
    for i, (slot, step) in enumerate(p.slots.faults):
        told = [f"{{{literal(a)}, {literal(b)}}}," for a, b in step.artifact.refusals]
        own = f"{prefix}refusals{i}"
        if told:
            out += _table(f"const refusal {own}[]", told, f"Of {step.name}.")
        rows.append(f"{{{slot}, {literal(step.name)}, {own if told else 'NULL'}, {len(told)}}},")
    what = "Launches that may refuse a value."
    return out + _table(f"const fault {prefix}faults[]", rows or ["{0, 0, 0, 0},"], what)


def _buffers(p: ProgramTables, weights: WeightLayout, prefix: str) -> list[str]:
    places, offsets = [], []
    kinds = {"input": "BOUND", "output": "BOUND", "weight": "NOWHERE", "object": "NOWHERE"}
    for b in p.plan.buffers:
        held = b.blob in weights.offsets if b.blob else False
        places.append("IN_WEIGHTS" if held else kinds.get(b.kind, "IN_ARENA"))
        offsets.append(weights.offsets[b.blob] if held else 0)
    tensors = [io.buffer for io in (*p.plan.inputs, *p.plan.outputs)]
    out = _rows(f"const uint8_t {prefix}places[]", places or ["0"], "Where each buffer lies.")
    what = "Bytes before those that are weights."
    out += _numbers(f"const int64_t {prefix}offsets[]", offsets, what)
    what = "Buffers of the inputs, then of the outputs."
    return out + _numbers(f"const int32_t {prefix}tensors[]", tensors, what)


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
    out = _numbers(
        f"const int64_t {prefix}values[]", line.values, "Open sizes, constants, and what follows."
    )
    what = "From open sizes to bytes: kind, left, right, and where the result goes."
    out += _table(f"const txe_operation {prefix}operations[]", rows or ["{0, 0, 0, 0},"], what)
    what = "Results: sizes of inputs and outputs, the arena, offsets in it, values of arguments."
    out += _numbers(f"const int64_t {prefix}results[]", line.results, what)
    checks = [f"{{{c.operation}, {literal(c.text)}}}," for c in p.arithmetic.checks]
    what = "What it means that an operation has no value."
    return out + _table(f"const check {prefix}checks[]", checks or ["{0, 0},"], what)


def _operation(o: IntegerOperation, names: Mapping[int, str]) -> str:
    told = f"{o.kind}({names[o.left]}, {names[o.right]})"
    if not o.kind.isalpha():
        told = f"{names[o.left]} {o.kind} {names[o.right]}"
    made = f"{names[o.to]} = " if o.kind not in (">=", "==", "!=") else ""
    return f"{{{_KINDS[o.kind]}, {o.left}, {o.right}, {o.to}}}, /* {remark(made + told)} */"


def _fields(p: ProgramTables, prefix: str) -> Iterator[str]:
    """Lines of a row of programs[]."""
    line, slots = p.arithmetic.line, p.slots
    yield f".launches = {len(p.launches)}, .slots = {slots.size},"
    yield f".kernels = {prefix}kernels, .first_slots = {prefix}first_slots,"
    for count, name in (
        (len(slots.pointers), "pointer"),
        (len(slots.scalars), "scalar"),
        (len(slots.faults), "fault"),
        (len(line.values), "value"),
        (len(line.operations), "operation"),
        (len(line.results), "result"),
        (len(p.arithmetic.checks), "check"),
    ):
        yield f".{name}s = {count}, .{name} = {prefix}{name}s,"
    yield f".buffers = {len(p.plan.buffers)}, .places = {prefix}places,"
    yield f".offsets = {prefix}offsets, .tensors = {prefix}tensors,"


# -- text ----------------------------------------------------------------------------------------


def _joined(values: Iterable[int]) -> str:
    return ", ".join(map(str, values)) or "0"


def _table(head: str, rows: Iterable[str], what: str) -> list[str]:
    """A table with a row a line."""
    return ["", f"/* {remark(what)} */", f"static {head} = {{", *(f"    {r}" for r in rows), "};"]


def _numbers(head: str, values: Iterable[int], what: str) -> list[str]:
    return _rows(head, list(map(str, values)) or ["0"], what)


def _rows(head: str, values: Sequence[str], what: str) -> list[str]:
    """A table with as many values a line as have room."""
    lines = [""]
    for v in values:
        if len(lines[-1]) + len(v) + 2 > WIDTH:
            lines.append("")
        lines[-1] += f"{v}, "
    return _table(head, [line.rstrip() for line in lines], what)
