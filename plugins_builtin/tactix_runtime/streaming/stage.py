"""The build stage of plans whose weights may stream."""

from __future__ import annotations

from dataclasses import replace

from tactix.config import BuilderConfig, BuilderFlag
from tactix.pipeline.stages import Part, Staged
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_runtime.streaming import META


class StreamingStage(Staged):
    """Marks plans, so that the flavour `default` makes engines that stream."""

    key = "tactix.weight_streaming"
    serves = frozenset({BuilderFlag.WEIGHT_STREAMING.value})
    depth = 50

    def join(self, session: Session, config: BuilderConfig) -> Part:
        return MarkedPlan()


class MarkedPlan(Part):
    """The plan with the mark."""

    def plan(self, plan: Plan) -> Plan:
        return replace(plan, meta={**plan.meta, META: True})
