"""The last step of a build: what its stages add to the plan, what is told, what is kept."""

from __future__ import annotations

import time
from collections import ChainMap
from dataclasses import replace

from tactix.base.errors import TimingCacheError, punctuated
from tactix.pipeline import shortfall
from tactix.pipeline.build_log import tell_plan
from tactix.pipeline.shortfall import Shortfall
from tactix.pipeline.state import BuildState
from tactix.pipeline.verbosity import trimmed
from tactix.plan.schema import Plan
from tactix.select.precision import LOWER, told

WHY_SHORT = "`tactix explain PLAN` tells why, layer by layer"
MORE_TIME = "A larger budget measures more"


def finish(plan: Plan, state: BuildState) -> Plan:
    """The plan as the stages of the build have it. Tells what was chosen, and in one line what
    fell short of the fast path and of the budget, and saves the timings.

    Raises ConfigError for a wish about the precision of layers that no layer fits.
    """
    tell_plan(plan, state.config.memory_pool_limits, state.logger)
    short = shortfall.of_plan(plan).to_json()
    plan = state.parts.plan(replace(plan, ledger={**plan.ledger, shortfall.KEY: short}))
    state.precisions.check(state.logger)
    _tell_precision(plan, state)
    short_of, late = Shortfall.read(plan.ledger).text, state.overrun(time.monotonic())
    if short_of or late:
        cures = [WHY_SHORT] if short_of else []
        cures += [MORE_TIME] if late else []
        state.logger.warning(punctuated(("; ".join(filter(None, (short_of, late))), *cures)))
    try:
        state.cache.save()
    except TimingCacheError as e:  # what was built is worth more
        state.logger.warning(str(e))
    return trimmed(plan, state.config.profiling_verbosity)


def _tell_precision(plan: Plan, state: BuildState) -> None:
    """Warn of a build in which nothing was lowered, though that was asked for."""
    asked = sorted(LOWER & state.config.numerics & {r.numerics for r in state.rules})
    found = [p.ledger.get("precision", {"lowered": [], "wide": {}}) for p in plan.nested()]
    if asked and not any(x["lowered"] for x in found):
        why = told(ChainMap(*(x["wide"] for x in found))) or "no layer of it can be"
        told_why = f"nothing is computed in {', '.join(asked)}: {why}"
        state.logger.warning(punctuated((told_why, "Without that flag the build takes less time")))
