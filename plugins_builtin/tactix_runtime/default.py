"""The flavour that runs a plan in this process with everything that the runtime offers.

What is of another format or major version, and holds the runtime for that, is left to the flavour
``dispatch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import PlanFormatError
from tactix.contracts.flavour import DEFAULT, Flavour, Source
from tactix.plan.schema import Plan
from tactix_runtime.dispatch import (
    DispatchFlavour,
    check_trust,
    envelope_of,
    is_of_other_version,
    is_ours,
)

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.flavour import Options
    from tactix.contracts.launcher import Step
    from tactix.contracts.runtime import RuntimeView
    from tactix.contracts.session import SessionView


class DefaultFlavour(Flavour[Plan]):
    """An Engine over the plan itself; its contexts are segmented where the plan needs it."""

    key = DEFAULT
    host = DispatchFlavour.key

    def open(self, runtime: RuntimeView[Plan], source: Source, verify: bool | None) -> EngineView:
        """An engine; a lean runtime's for a plan of another version. Raises what ``load`` and the
        flavour ``dispatch`` do.
        """
        try:
            plan = runtime.read(source, verify)
        except PlanFormatError:  # perhaps one that only its own version can decode
            if not is_of_other_version(source):
                raise
        else:
            if is_ours(plan.meta):
                return runtime.load(plan)
        return runtime.session.flavours[self.host].open(runtime, source, verify)

    def hands_over(self, runtime: RuntimeView[Plan], source: Source) -> bool:
        """Whether that is a plan of another version with the runtime for it. Raises UntrustedPlan,
        OSError.
        """
        other = is_of_other_version(source)
        if other:
            check_trust(runtime, envelope_of(source)[1])
        return other

    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """An engine.

        Raises PlanFormatError, PlanCompatibilityError, PluginError, AllocationError.
        """
        from tactix.run.inspector import InspectedEngine
        from tactix_runtime import streaming
        from tactix_runtime.embedded_packs import carried

        session = carried(plan, session)
        engine: type[InspectedEngine] = InspectedEngine
        if streaming.META in plan.meta:
            from tactix_runtime.streaming.engine import StreamedEngine as engine
        elif "refit" in plan.meta:
            from tactix_refit.engine import RefittableEngine as engine
        if not plan.produced:
            return engine(plan, session, device, options)
        from tactix_runtime.dynamic_shapes import SegmentedContext

        return engine(plan, session, device, options, SegmentedContext)

    def on_references(self, plan: Plan, steps: Sequence[Step]) -> Plan:
        """The plan without its host code. Raises PlanCompatibilityError."""
        from tactix_runtime.references import on_references

        return on_references(plan, steps)
