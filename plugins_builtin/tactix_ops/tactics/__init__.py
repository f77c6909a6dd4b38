"""Tactics for any operation on any device that has the host's memory: references, branches and
loops, views.
"""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """The tactics of this package."""
    from tactix_ops.tactics import control, parts, reference, view

    return [*control.tactics(), *reference.tactics(), *view.tactics(), *parts.tactics()]
