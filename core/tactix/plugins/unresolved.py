"""Names of layers and attributes in rules and tactics that nothing provides: what waits for them
never happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from tactix.base.spelling import did_you_mean
from tactix.contracts.layer import Layer
from tactix.contracts.rule import AnyOf, Op, Rule
from tactix.contracts.tactic import Tactic


def unresolved(
    layers: Mapping[str, Layer], rules: Iterable[Rule], tactics: Iterable[Tactic]
) -> Iterator[str]:
    """One sentence for each name, with what may have been meant."""
    by_name: dict[str, list[Layer]] = {}
    for key, layer in layers.items():
        by_name.setdefault(key, []).append(layer)
        by_name.setdefault(key.partition("@")[0], []).append(layer)
    for rule in rules:
        for op in _ops(rule.pattern):
            yield from (f"rule {rule.key} ({rule.where}) {what}" for what in _faults(op, by_name))
    for tactic in tactics:
        for name in tactic.implements:
            if "." in name and name not in layers:  # others are traits
                yield f"tactic {tactic.key} implements {name!r}, {_unknown(name, layers)}"


def _ops(pattern: object) -> Iterator[Op]:
    """The layers of a pattern, those within others too."""
    if isinstance(pattern, Op):
        yield pattern
        for p in pattern.inputs or ():
            yield from _ops(p)
    for option in pattern.options if isinstance(pattern, AnyOf) else ():
        yield from _ops(option)


def _faults(op: Op, by_name: Mapping[str, list[Layer]]) -> Iterator[str]:
    if op.layer.startswith("*"):
        return
    if op.layer not in by_name:
        yield f"names the layer {op.layer!r}, {_unknown(op.layer, by_name)}"
        return
    known = {f.name for layer in by_name[op.layer] for f in dataclasses.fields(layer.Attrs)}
    for name, _ in op.attrs:
        if name not in known:
            cure = did_you_mean(name, known, f"It has: {', '.join(sorted(known)) or 'none'}")
            yield f"names the attribute {name!r} of {op.layer}, which has none such. {cure}"


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"which nobody provides. {did_you_mean(name, known)}".rstrip()
