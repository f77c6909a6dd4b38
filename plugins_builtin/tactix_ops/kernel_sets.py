"""What stands in a plan for the choice between its sets of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.errors import ExecutionError
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step


class KernelSetsLauncher(Launcher):
    """``params``: ``{"kernel_sets": [index of a plan, for each profile]}``; the runtime chooses."""

    key = "tactix.kernel_sets@1"
    device = "cpu"
    host_code = False
    switches = True

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError: a step of sets of kernels is the only one of its plan."""
        do = "Build the plan again"
        raise ExecutionError("it is no choice between plans", who=steps[0].name, do=do)
