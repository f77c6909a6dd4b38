"""The last step of a build: what its stages add to the plan, what is told, what is kept."""

from __future__ import annotations

import time
from collections import ChainMap
from dataclasses import replace

from tactix.base.errors import TimingCacheError
from tactix.pipeline import shortfall
from tactix.pipeline.shortfall import Shortfall
from tactix.pipeline.state import BuildState
from tactix.plan.schema import Plan
from tactix.select.precision import LOWER, told


def finish(plan: Plan, state: BuildState) -> Plan:
    """The plan as the stages of the build have it. Tells in one line what fell short of the fast
    path and of the budget, and saves the timings.

    Raises ConfigError for a wish about the precision of layers that no layer fits.
    """
    short = shortfall.of_plan(plan).to_json()
    plan = state.parts.plan(replace(plan, ledger={**plan.ledger, shortfall.KEY: short}))
    state.precisions.check(state.logger)
    _tell_precision(plan, state)
    lines = [Shortfall.read(plan.ledger).text, state.overrun(time.monotonic())]
    if any(lines):
        state.logger.warning("; ".join(filter(None, lines)))
    try:
        state.cache.save()
    except TimingCacheError as e:  # what was built is worth more
        state.logger.warning(str(e))
    return plan


def _tell_precision(plan: Plan, state: BuildState) -> None:
    """Warn of a build in which nothing was lowered, though that was asked for."""
    asked = sorted(LOWER & state.config.numerics & {r.numerics for r in state.rules})
    found = [p.ledger.get("precision", {"lowered": [], "wide": {}}) for p in plan.nested()]
    if asked and not any(x["lowered"] for x in found):
        why = told(ChainMap(*(x["wide"] for x in found))) or "no layer of it can be"
        state.logger.warning(f"nothing is computed in {', '.join(asked)}: {why}")
