"""What every built-in operation means, and how it is rewritten.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack
from tactix_ops import launchers

if TYPE_CHECKING:
    from tactix.contracts.layer import Layer
    from tactix.contracts.rule import Rule
    from tactix.contracts.tactic import Tactic

pack = BasePack("tactix")
pack.launcher(launchers)


@pack.layer
def layers() -> list[Layer]:
    from tactix_ops.layers import all_layers

    return all_layers()


@pack.rule
def rules() -> list[Rule]:
    from tactix_ops.rules import (
        all_rules,
        graphics_rules,
        lowering_rules,
        processor_rules,
        reordering_rules,
    )

    for_some = (processor_rules, graphics_rules, reordering_rules, lowering_rules)
    return [*all_rules(), *(rule for rules in for_some for rule in rules())]


@pack.tactic
def tactics() -> list[Tactic]:
    from tactix_ops.tactics import all_tactics

    return all_tactics()
