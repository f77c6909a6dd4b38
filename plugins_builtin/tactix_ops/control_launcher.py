"""Runs steps with bodies: branches and loops. Each body is a plan of its own, run as often as the
step says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Env
from tactix.base.errors import ExecutionError, TactixError
from tactix.contracts.launcher import (
    BindableBody,
    Launcher,
    LinkContext,
    Runnable,
    Step,
    StepBody,
)
from tactix.contracts.program import PlacedPart
from tactix_sdk.numpy_launcher import held, owned


class ControlLauncher(Launcher):
    """``params``: ``{"control": "If" | "Loop" | "Scan", ...}`` with the layer's numbers."""

    key = "tactix.control@1"
    device = "cpu"
    host_code = False
    nests = True

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError: steps with bodies are produced."""
        raise ExecutionError(
            "it is no branch or loop", who=steps[0].name, do="Build the plan again"
        )

    def told(self, step: Step) -> frozenset[str]:
        """As ``Launcher.told``: how often a loop with rows runs, and sizes of branches."""
        from tactix_ops.native_control import told

        return told(step)

    def part(
        self,
        step: Step,
        env: Env,
        expected: Env,
        bodies: Sequence[BindableBody],
        ctx: LinkContext,
    ) -> PlacedPart | None:
        """As ``Launcher.part``; None also for a step that lacks what it needs, as in a damaged
        plan. Raises ShapeError.
        """
        from tactix_ops.native_control import part

        try:
            return part(step, env, expected, bodies)
        except (LookupError, TypeError, ValueError, AttributeError, MemoryError):
            return None

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """The results in memory of their own. Raises ExecutionError, and what a body raises."""
        # not when a plan without bodies is loaded
        from tactix_ops.layers.control import RUN, Running
        from tactix_ops.steady_loops import steadily

        params = step.artifact.params
        kind = params.get("control")
        run = RUN.get(kind) if isinstance(kind, str) else None
        if not isinstance(kind, str) or run is None or not bodies:
            raise ExecutionError(
                "it is no branch or loop", who=step.name, do="Build the plan again"
            )
        try:
            found = steadily(kind, params, bodies[0], values)
            if found is None:
                found = run(Running(params, bodies, [o.spec for o in step.outputs], env), values)
            kept = held(values)
            return [owned(y, o.spec.dtype, kept) for o, y in zip(step.outputs, found, strict=True)]
        except TactixError:
            raise
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            MemoryError,
        ) as e:
            raise ExecutionError(
                "it cannot be run", who=step.name, why=f"{type(e).__name__}: {e}"
            ) from e
