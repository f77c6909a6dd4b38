"""Launches of kernels that are functions of C as tables, over the types of processor_launches.h."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_cpu.launcher import ArgumentSlots
from tactix_ship.c_library.arithmetic import arithmetic_of
from tactix_ship.c_library.features import cpuid_bits
from tactix_ship.c_library.kernels import entry_name
from tactix_ship.c_library.launch_tables import LaunchTables, ProgramTables, code_of, numbers, table
from tactix_ship.c_library.names import literal, remark


class ProcessorTables(LaunchTables):
    """Of plans that were checked. Raises PlanCompatibilityError for one that runs at no shape that
    was looked at.
    """

    def __init__(self, plans: Sequence[Plan], name: str) -> None:
        self._name = name
        self._slots = [_slots(p) for p in plans]
        self.programs = [
            ProgramTables(p, slots, arithmetic_of(p, slots.dims))
            for p, slots in zip(plans, self._slots, strict=True)
        ]

    def sizes(self) -> Iterable[tuple[str, int, str]]:
        required = self._required()
        yield "FEATURES", len(self._needed()), "instruction sets that the kernels use"
        yield "USES_TILES", int(any(f.startswith("amx") for f in required)), "of AMX"

    def whole(self) -> Iterable[str]:
        entries = dict.fromkeys(e for p in self.programs for _, e in _entries(p))
        yield ""
        yield "/* Entries of the kernels: arguments, number of the share, of how many. */"
        yield from (f"void {self._entry(e)}(const int64_t *, int, int);" for e in entries)
        rows = self._needed() or ["{0},"]
        made = table("const feature features[]", rows, "What the kernels were compiled for.")
        yield from ("", "#if defined(__x86_64__)", *made, "#endif")

    def program(self, index: int, prefix: str) -> Iterable[str]:
        p, slots = self.programs[index], self._slots[index]
        rows = [f"{self._entry(e)}, /* {remark(s.name)} */" for s, e in _entries(p)]
        what = "Launches, as they run."
        yield from table(f"const txe_kernel {prefix}kernels[]", rows or ["0,"], what)
        what = "The first argument of each launch."
        yield from numbers(f"const int32_t {prefix}first_slots[]", slots.starts, what)
        yield from _faults(slots, prefix)

    def fields(self, index: int, prefix: str) -> Iterator[str]:
        yield f".launches = {len(self.programs[index].launches)},"
        yield f".kernels = {prefix}kernels, .first_slots = {prefix}first_slots,"
        yield f".faults = {len(self._slots[index].faults)}, .fault = {prefix}faults"

    def _entry(self, entry: str) -> str:
        return entry_name(entry, self._name)

    def _required(self) -> set[str]:
        return {f for p in self.programs for s in p.plan.steps for f in s.artifact.requires}

    def _needed(self) -> list[str]:
        return [
            f'{{"{f}", {b.leaf:#x}, {b.sub_leaf}, {b.register}, {b.bit}, {b.saved:#x}}},'
            for f, b in cpuid_bits(self._required())
        ]


def _slots(plan: Plan) -> ArgumentSlots:
    return ArgumentSlots((s, x) for s in plan.steps for x in s.artifact.launches)


def _entries(p: ProgramTables) -> list[tuple[Step, str]]:
    """Steps and the kernels' entries in the plan, by launch."""
    return [(s, x.symbol or code_of(s).symbol) for s, x in p.launches]


def _faults(slots: ArgumentSlots, prefix: str) -> list[str]:
    out, rows = list[str](), list[str]()
    for i, (slot, step) in enumerate(slots.faults):
        told = [f"{{{literal(a)}, {literal(b)}}}," for a, b in step.artifact.refusals]
        own = f"{prefix}refusals{i}"
        if told:
            out += table(f"const refusal {own}[]", told, f"Of {step.name}.")
        rows.append(f"{{{slot}, {literal(step.name)}, {own if told else 'NULL'}, {len(told)}}},")
    what = "Launches that may refuse a value."
    return out + table(f"const fault {prefix}faults[]", rows or ["{0, 0, 0, 0},"], what)
