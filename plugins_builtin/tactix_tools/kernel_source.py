"""The C or CUDA of a plan's steps, as ``tactix inspect --source`` shows it.

A plan keeps the text that each kernel was compiled from, without the preludes that kernels share,
and in its ledger what these were. The name of a kernel's entry has 16 digits of the digest of all
of it: where the preludes are those of the tactix that is installed here, the digest is made again
and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, PlanFormatError
from tactix.base.logger import printable
from tactix.base.tensor import Format
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.attrs import decode
from tactix.contracts.launcher import Operand, Step
from tactix.plan.schema import Plan
from tactix.select.compile import COMPILED
from tactix_codegen.compiling import symbol
from tactix_codegen.preludes import installed_preludes
from tactix_tools import show
from tactix_tools.explanation import explain, wanted

WIDTH = 100
"""Columns of a header's lines, where words allow it."""
FITS = "the text, its preludes and flags are what the entry's name was made of"


@dataclass(frozen=True)
class KernelText:
    """One step's. ``computes``, ``inputs``, ``outputs``: lines. ``is_checked``: whether the digest
    of ``text`` with its preludes and flags is that in the name of its ``entry``; None where that
    cannot be told: ``check`` says why.
    """

    step: str
    entry: str
    language: str
    computes: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    tactic: str
    variant: str
    chosen: str
    compiler: str
    flags: Sequence[str]
    preludes: Sequence[str]
    target: str
    is_checked: bool | None
    check: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def header(self) -> str:
        """A comment of C that tells all of it but the text."""
        preludes = f"after {', '.join(self.preludes)}" if self.preludes else ""
        options = f"{self.compiler}{' with ' * bool(self.flags)}{' '.join(self.flags)}"
        rows = [
            ("computes", self.computes),
            ("inputs", self.inputs),
            ("outputs", self.outputs),
            ("tactic", [f"{self.tactic} [{self.variant}]"]),
            ("chosen", [self.chosen]),
            ("target", [self.target]),
            ("compiler", [options]),
            ("entry", [f"TX_ENTRY is {self.entry}", preludes]),
            ("text", [self.check]),
        ]
        lines = [f"/* {_plain(self.step)}", " *"]
        for title, told in rows:
            for i, line in enumerate(filter(None, told)):
                lines += _folded(title if i == 0 else "", line)
        return "\n".join([*lines, " */"])


def kernel_texts(plan: Plan, node: str) -> list[KernelText]:
    """Of the steps that ``node`` names: a step, or a node of the model.

    Raises InvalidArgument for a node that is not there, or that no kernel with a text runs;
    PlanFormatError for a ledger that cannot be read.
    """
    found = list(_steps(plan, node))
    try:
        texts = [_kernel_text(owner, s) for owner, s in found if _has_text(s)]
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        raise PlanFormatError("its notes cannot be read", who=plan.name, why=repr(e)[:200]) from e
    if not texts:
        raise InvalidArgument(
            "no kernel with a text runs it",
            who=node,
            why="; ".join(_without(s) for _, s in found[:4]),
            do="`tactix explain` tells what else bid for it",
        )
    return texts


def _steps(plan: Plan, node: str) -> Iterator[tuple[Plan, Step]]:
    """Steps with the plan that each lies in: those of that name, else those that the node of the
    model became.
    """
    every = [(p, s) for p in plan.nested() for s in p.steps]
    if named := [(p, s) for p, s in every if s.name == node]:
        return iter(named)
    rows = [{"name": s.name, "origin": s.info.get("origin", ()), "at": (p, s)} for p, s in every]
    ran = {x for _, s in every for x in (s.name, *_names(s, "origin"))}
    if node not in ran and (tactic := _stepless(plan, node)):
        raise InvalidArgument(
            f"{node!r} runs no code",
            why=f"{tactic} makes a view of it: its output lies where its input lies",
            do="`tactix explain` shows what it became",
        )
    return (r["at"] for r in wanted(rows, node))


def _stepless(plan: Plan, node: str) -> str:
    """The tactic that won a node of the model which no step runs; empty if there is no such
    node.
    """
    rows = [r for r in explain(plan)["nodes"] if node in (r["name"], *r["origin"])]
    return next((c["tactic"] for r in rows for c in r["candidates"] if c["chosen"]), "")


def _has_text(s: Step) -> bool:
    code = s.artifact.code
    return isinstance(code, Binary) and bool(code.source and code.symbol)


def _without(s: Step) -> str:
    """What runs a step that has no text."""
    who = f"{s.name!r} is run by {s.info.get('tactic', 'a tactic that is not noted')}"
    if s.plans:
        return f"{who}, which runs the steps of its bodies"
    if isinstance(s.artifact.code, Binary):
        return f"{who}, whose machine code came without a text"
    return f"{who}: the launcher {s.artifact.launcher} runs it, without generated code"


def _kernel_text(plan: Plan, s: Step) -> KernelText:
    code = s.artifact.code
    assert isinstance(code, Binary)
    noted = plan.ledger.get(COMPILED, {}).get(code.symbol, {})
    language, flags = noted.get("language", ""), tuple(noted.get("flags", ()))
    known = [installed_preludes().get(p) for p in noted.get("preludes", ())]
    is_checked, check = _checked(code, noted, [p.text for p in known if p])
    return KernelText(
        s.name,
        code.symbol,
        language,
        _computes(s),
        _operands("x", s.inputs),
        _operands("y", s.outputs),
        str(s.info.get("tactic", "?")),
        str(s.info.get("variant", "?")),
        _chosen(plan, s),
        str(noted.get("compiler", "not noted")),
        flags,
        [p.file if p else "one that is not here" for p in known],
        _target(plan),
        is_checked,
        check,
        code.source,
    )


def _checked(
    code: Binary, noted: Mapping[str, Any], preludes: Sequence[str]
) -> tuple[bool | None, str]:
    if not noted:
        return (
            None,
            "as the plan keeps it; what it was compiled with is not noted, "
            "so that it cannot be checked",
        )
    if len(preludes) < len(noted["preludes"]):
        return (
            None,
            "as the plan keeps it; its preludes are of another version or pack, "
            "so that it cannot be checked",
        )
    made = symbol(Source(noted["language"], code.source, tuple(preludes), tuple(noted["flags"])))
    return (
        (True, FITS)
        if made == code.symbol
        else (False, f"NOT what was compiled: that would be {made}")
    )


# -- what stands in the header -------------------------------------------------------------------


def _computes(s: Step) -> list[str]:
    """A line for each layer, as far as the plan keeps what a step computes; else their names."""
    meaning, origin = s.info.get("reference"), ", ".join(_names(s, "origin"))
    of = f"of the model's {origin}" if origin else ""
    if not isinstance(meaning, Mapping):
        return [f"{' + '.join(map(_short, _names(s, 'layers'))) or '?'} {of}".strip()]
    body = meaning.get("body")
    if body is None:
        given = [f"x{i}" for i in range(len(s.inputs))]
        return [f"y0 = {_call(meaning, given)} {of}".strip()]
    names, lines = [f"x{i}" for i in range(body["arity"])], []
    for n in body["nodes"]:
        inputs = [names[i] if i >= 0 else "-" for i in n["inputs"]]
        made = [_result(body["results"], len(names) + k) for k in range(n["outputs"])]
        names += made
        lines.append(f"{', '.join(made)} = {_call(n, inputs)}")
    return [*lines, *([of] if of else [])]


def _names(s: Step, key: str) -> list[str]:
    """A list of names in the step's header; empty where there is none."""
    told = s.info.get(key)
    return [str(x) for x in told] if isinstance(told, (list, tuple)) else []


def _result(results: Sequence[int], value: int) -> str:
    return f"y{list(results).index(value)}" if value in results else f"t{value}"


def _call(layer: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """``Softmax(x0, axis=1)``; attributes that say nothing are left out, long ones cut."""
    told = {k: v for k, v in layer.get("attrs", {}).items() if v not in (None, [], "", False)}
    given = [*inputs, *(f"{k}={_shown(v)[:60]}" for k, v in told.items())]
    return f"{_short(layer['layer'])}({', '.join(given)})"


def _shown(encoded: object) -> str:
    """An attribute as people read it: ``[batch, 16]``."""
    try:
        return _spelled(decode(encoded))
    except InvalidArgument:
        return str(encoded)


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spelled, value))}]"
    if isinstance(value, DType):
        return str(value.value)
    return value.name if isinstance(value, Format) else str(value)


def _short(key: str) -> str:
    """tactix's own layers without name space and version."""
    return str(key).removeprefix("tactix.").removesuffix("@1")


def _operands(letter: str, operands: Sequence[Operand]) -> list[str]:
    return [f"{letter}{i}: {o.spec}, {o.format.name}" for i, o in enumerate(operands)]


def _chosen(plan: Plan, s: Step) -> str:
    """Its time against the next candidate's, from the ledger; no change of format is in it."""
    if s.name not in plan.ledger.get("nodes", {}):
        own = s.info.get("seconds")
        told = f", {show.duration(own)}" if isinstance(own, (int, float)) else ""
        return f"by estimate{told}; not raced"
    (row,) = (r for r in explain(plan)["nodes"] if r["name"] == s.name)
    won: dict[str, Any] = next((c for c in row["candidates"] if c["chosen"]), {})
    rivals = [c for c in row["candidates"] if "costs_more" in c]
    own = (
        f"{show.duration(won['seconds'])} {won['status']}"
        if "seconds" in won
        else won.get("status", "?")
    )
    if not rivals:
        return f"{own}; no other candidate was left"
    best = min(rivals, key=lambda c: c["costs_more"])
    tie = ", a near tie" if best.get("near_tie") else ""
    return f"{own}; next {best['tactic']} [{best['variant']}] {show.duration(best['seconds'])}{tie}"


def _target(plan: Plan) -> str:
    d = plan.device
    bits = f", vectors of {d['vector_bits']} bits" if d.get("vector_bits") else ""
    features = " ".join(map(str, d.get("features", ())))
    return f"{d.get('kind', '?')} {d.get('name', '?')}{bits}: {features}"


def _plain(text: str) -> str:
    """Text that neither ends a comment nor begins one."""
    return printable(text).replace("*/", "* /").replace("/*", "/ *")


def _folded(title: str, text: str) -> Iterator[str]:
    """Lines of a comment: a title once, then the text, folded between words."""
    line = f" * {title:<9}"
    for word in _plain(text).split(" "):
        if len(line) + 1 + len(word) > WIDTH and line.strip(" *"):
            yield line.rstrip()
            line = f" * {'':<9}"
        line += f" {word}"
    yield line
