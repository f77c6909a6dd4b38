"""What every built-in operation means, and how it is rewritten.

Imports stay inside the hooks, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.layer import Layer
    from tactix.contracts.rule import Rule
    from tactix.contracts.tactic import Tactic


@hookimpl
def tactix_layers() -> list[Layer]:
    from tactix_ops.layers import all_layers

    return all_layers()


@hookimpl
def tactix_launchers() -> list[Launcher]:
    from tactix_ops import launchers

    return launchers()


@hookimpl
def tactix_rules() -> list[Rule]:
    from tactix_ops.rules import all_rules, lowering_rules

    return [*all_rules(), *lowering_rules()]


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_ops.tactics import all_tactics

    return all_tactics()
