"""The kernels of a plan as texts: what each was compiled from, and together with which others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import PlanCompatibilityError
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix.select.compile import COMPILED
from tactix_codegen.compiling import symbol
from tactix_codegen.preludes import Prelude, installed_preludes
from tactix_cpu.compiler import BEST, QUICK, CCompiler, Effort, version
from tactix_ship.c_library.names import remark

AGAIN = "Build the plan again with this version of tactix, and its packs' kernels with its preludes"


@dataclass(frozen=True)
class Kernels:
    """``sources``: by the names of their entries in the plan. ``uses``: for each the steps, by
    their names. ``identity``: of the compiler that the plan has its machine code from.
    """

    sources: Mapping[str, Source]
    uses: Mapping[str, Sequence[str]]
    identity: str

    @property
    def effort(self) -> Effort:
        """With which options they were compiled."""
        return QUICK if " ".join(QUICK.flags) in self.identity else BEST

    @property
    def preludes(self) -> Sequence[Prelude]:
        """Files that they include."""
        used = {text for s in self.sources.values() for text in s.preludes}
        return [p for p in installed_preludes().values() if p.text in used]


def kernels_of(plans: Sequence[Plan], ledger: Mapping[str, Any]) -> Kernels:
    """Of steps that were checked. ``ledger``: of the plan around these. Raises
    PlanCompatibilityError for texts that are not what was compiled.
    """
    sources: dict[str, Source] = {}
    uses: dict[str, list[str]] = {}
    identities: dict[str, None] = {}
    wrong: list[str] = []
    for plan in plans:
        notes = {**_notes(ledger), **_notes(plan.ledger)}
        for s in plan.steps:
            code = s.artifact.code
            assert isinstance(code, Binary)
            for entry in _entries(s, code):
                found = _source(code, notes.get(entry, {}))
                if found is None or symbol(found) != entry:
                    wrong.append(s.name)
                    continue
                sources[entry] = found
                uses.setdefault(entry, []).append(f"{s.name}: {s.info.get('tactic', '?')}")
                identities[str(notes[entry].get("compiler", ""))] = None
    if wrong:
        names = ", ".join(map(repr, dict.fromkeys(wrong)))
        reason = f"what their kernels were compiled from is not noted, or not here: {names}"
        what = "the plan cannot be a C library"
        raise PlanCompatibilityError(what, who=plans[0].name, reasons=(reason,), do=AGAIN)
    return Kernels(sources, uses, next(iter(identities), ""))


def _notes(ledger: Mapping[str, Any]) -> Mapping[str, Any]:
    found = ledger.get(COMPILED, {})
    return found if isinstance(found, Mapping) else {}


def _entries(s: Step, code: Binary) -> list[str]:
    return list(dict.fromkeys(x.symbol or code.symbol for x in s.artifact.launches))


def _source(code: Binary, noted: Mapping[str, Any]) -> Source | None:
    """The text with what stood before it; None where that is not here."""
    try:
        preludes = [installed_preludes().get(str(p)) for p in noted["preludes"]]
        flags = tuple(map(str, noted["flags"]))
        texts = tuple(p.text for p in preludes if p)
        whole = len(texts) == len(preludes)
        return Source(str(noted["language"]), code.source, texts, flags) if whole else None
    except (LookupError, TypeError):
        return None


# -- the device and the compiler ------------------------------------------------------------------


def device_of(plan: Plan) -> DeviceProperties:
    """What the plan says of its target."""
    d = plan.device
    features = frozenset(map(str, d.get("features", ())))
    bits = d.get("vector_bits", 128)
    wide = bits if isinstance(bits, int) else 128
    return DeviceProperties("cpu", str(d.get("name", "")), features, wide)


def same_compiler(compiler: CCompiler, kernels: Kernels) -> bool:
    """Whether it makes the machine code that the plan has."""
    return kernels.identity.startswith(f"{version(compiler.command)} ")


# -- files ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KernelUnit:
    """A file that is compiled: its name, its text, and the options that its kernels ask for."""

    file: str
    text: str
    flags: tuple[str, ...]


def entry_name(entry: str, name: str) -> str:
    """Of a kernel in a library: two of these may be in one program."""
    return f"{name}_{entry}"


def kernel_files(kernels: Kernels, name: str) -> dict[str, str]:
    """The text of each kernel, by file name."""
    return {
        f"{entry}.inc": f"{_header(entry, kernels, name)}\n{source.text}"
        for entry, source in kernels.sources.items()
    }


def _header(entry: str, kernels: Kernels, name: str) -> str:
    steps = list(dict.fromkeys(kernels.uses[entry]))
    lines = [f" *   {remark(step)}" for step in steps]
    head = f"/* {entry_name(entry, name)}: TX_ENTRY, which runs"
    return "\n".join([head, *lines, " */"])


def units(kernels: Kernels, compiler: CCompiler, name: str) -> list[KernelUnit]:
    """What is compiled together: the kernels that stood together when the plan was built by such a
    compiler, as their code may depend on that.
    """
    entries = {s.digest: entry for entry, s in kernels.sources.items()}
    made = compiler.units(list(kernels.sources.values()))
    out = []
    for i, unit in enumerate(made):
        own = [kernels.sources[entries[digest]] for digest in unit.sources]
        text = _unit_text(own, [entries[d] for d in unit.sources], kernels.effort, name)
        out.append(KernelUnit(f"unit{i}.c", text, unit.flags))
    return out


def _unit_text(sources: Sequence[Source], entries: Sequence[str], effort: Effort, name: str) -> str:
    files = {p.text: p.file for p in installed_preludes().values()}
    preludes = dict.fromkeys(files[text] for s in sources for text in s.preludes)
    parts = ["/* Kernels of a plan, with what they share. */", _WARNINGS]
    parts += [f'#include "preludes/{file}"' for file in preludes] or ["#include <stdint.h>"]
    parts += [effort.text.rstrip()] if effort.text else []
    for entry in entries:
        own = entry_name(entry, name)
        parts += [
            "",
            f"#define TX_ENTRY {own}",
            f"#define TX_NAME(x) {own}_##x",
            "void TX_ENTRY(const int64_t *, int, int);",
            f'#include "{entry}.inc"',
            "#undef TX_ENTRY",
            "#undef TX_NAME",
        ]
    return "\n".join(parts) + "\n"


_WARNINGS = """\
#if defined(__GNUC__) /* kernels have parameters and variables that not all networks need */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#endif"""

_OF_WARNINGS = re.compile(r"-w|-W.*")


def options(kernels: Kernels, compiler: CCompiler, device: DeviceProperties) -> list[str]:
    """Of all units of kernels; which warnings there are is the user's to say."""
    return [f for f in compiler.options(device) if not _OF_WARNINGS.fullmatch(f)]
