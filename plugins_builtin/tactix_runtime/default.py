"""The flavour that runs a plan in this process with everything that the runtime offers.

What is of another format or major version, and holds the runtime for that, is left to the flavour ``dispatch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tactix.plan import container
from tactix.words.errors import PlanFormatError

if TYPE_CHECKING:
    from tactix.contracts.device import Device


class DefaultFlavour:
    """An Engine over the plan itself; its contexts are phased where the plan needs it."""

    key = "default"

    def open(self, runtime: Any, source: Any, verify: bool | None) -> Any:
        """An engine; a guest's for a plan of another version. Raises what ``load`` and the flavour ``dispatch`` do."""
        from tactix_runtime.dispatch import is_foreign, is_ours

        try:
            plan = container.load(source, verify=verify, admit=runtime.session.vouched)
        except PlanFormatError:  # perhaps one that only its own version can decode
            if not is_foreign(source):
                raise
        else:
            if is_ours(plan.meta):
                return runtime.load(plan)
        return runtime.session.flavours["dispatch"].open(runtime, source, verify)

    def hands_over(self, runtime: Any, source: Any) -> bool:
        """Whether that is a plan of another version with the runtime for it. Raises UntrustedPlan, OSError."""
        from tactix_runtime.dispatch import check_trust, envelope_of, is_foreign

        foreign = is_foreign(source)
        if foreign:
            check_trust(runtime, envelope_of(source)[1])
        return foreign

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """An engine. Raises PlanFormatError, PlanCompatibilityError, PluginError, AllocationError."""
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
        from tactix_runtime.dynamic_shapes import PhasedContext

        return engine(plan, session, device, options, PhasedContext)

    def check(self, plan: Any, session: Any) -> Any:
        """All reasons why the plan cannot run here."""
        from tactix.run.runtime import Runtime

        return Runtime(session=session).check(plan)

    def on_references(self, plan: Any, steps: Any) -> Any:
        """The plan without its host code. Raises PlanCompatibilityError."""
        from tactix_runtime.references import on_references

        return on_references(plan, steps)
