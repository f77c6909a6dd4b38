"""The flavour that reads no more than a plan's envelope, and hands the plan to the lean runtime
that can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tactix
from tactix.base.errors import (
    InvalidArgument,
    PlanCompatibilityError,
    PlanFormatError,
    UntrustedPlan,
)
from tactix.contracts.flavour import Flavour, Source
from tactix.contracts.trust import OnUntrusted
from tactix.plan.compat import same_major
from tactix.plan.container import VERSION, buffer, mapped
from tactix.plan.schema import Plan
from tactix.run.admission import Verdict, origin, why_unsigned

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.flavour import Options
    from tactix.contracts.runtime import RuntimeView
    from tactix.contracts.session import SessionView
    from tactix_runtime.envelope import Envelope


class DispatchFlavour(Flavour[Plan]):
    """Runs plans of other versions and formats: on the runtime in the plan, or on the one at the
    runtime's path.
    """

    key = "dispatch"
    host = key

    def open(self, runtime: RuntimeView[Plan], source: Source, verify: bool | None) -> EngineView:
        """The lean runtime's engine. Raises PlanFormatError, PlanCompatibilityError,
        UntrustedPlan, ConfigError, OSError, and what that runtime raises, whose errors are ours as
        well.
        """
        from tactix_runtime import lean_runtime

        data, found = envelope_of(source)
        if runtime.lean_runtime:
            return hand_over(
                runtime, lean_runtime.files_at(runtime.lean_runtime), data, found, verify
            )
        if found.runtime is None:
            raise PlanCompatibilityError(
                "the plan has no lean runtime in it",
                reasons=(f"it was built by tactix {found.version}",),
                do="Build it with BuilderFlag.VERSION_COMPATIBLE (--version-compatible), "
                "or name one: runtime.load_runtime(path) (--lean-runtime)",
            )
        check_trust(runtime, found)
        return hand_over(runtime, lean_runtime.unpack(found.runtime), data, found, verify)

    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """Raises InvalidArgument: a lean runtime knows no objects of ours."""
        raise no_bytes(self.key)


def envelope_of(source: Source) -> tuple[memoryview, Envelope]:
    """The content of a plan, mapped if it is a file, and its envelope. A lean runtime checks
    what it gets for itself.

    Raises PlanFormatError, OSError.
    """
    from tactix_runtime.envelope import read

    if not isinstance(source, (str, Path)):
        return (data := buffer(source)), read(data)
    try:
        return (data := mapped(source)), read(data)
    except PlanFormatError as e:
        e.who = ": ".join(filter(None, (str(source), e.who)))
        raise


def is_of_other_version(source: Source) -> bool:
    """Whether that is a plan of another format or major version with its runtime in it. Raises
    OSError.
    """
    try:
        found = envelope_of(source)[1]
    except PlanFormatError:
        return False
    return found.runtime is not None and (found.format != VERSION or not _is_near(found.version))


def is_ours(meta: Mapping[str, Any]) -> bool:
    """Whether a plan that could be decoded is for this runtime, or brings no other."""
    from tactix_runtime.envelope import LEAN

    return LEAN not in meta or _is_near(str(meta.get("tactix", "")))


def _is_near(version: str) -> bool:
    return not version or same_major(version, tactix.__version__)


def judge(runtime: RuntimeView[Plan], found: Envelope) -> Verdict:
    """What becomes of the code that a plan brings with its runtime. Raises UntrustedPlan for a
    forged signature.
    """
    trusted_by = runtime.session.trusted_by(found.seal)
    runs = trusted_by or runtime.on_untrusted is OnUntrusted.ALLOW
    return Verdict(trusted_by, True, "runs" if runs else "refused")


def check_trust(runtime: RuntimeView[Plan], found: Envelope) -> None:
    """Raises UntrustedPlan where a plan's own runtime may not run."""
    if judge(runtime, found).outcome == "refused":
        raise _refusal(found, why_unsigned(runtime.session))


def no_bytes(flavour: str) -> InvalidArgument:
    """The error for a plan that is no file."""
    do = "Deserialize its bytes, or use the flavour 'default'"
    return InvalidArgument(
        "a plan in memory cannot be handed over", who=f"flavour {flavour!r}", do=do
    )


def hand_over(
    runtime: RuntimeView[Plan],
    files: Mapping[str, bytes],
    data: memoryview,
    found: Envelope,
    verify: bool | None,
) -> EngineView:
    """The engine that a lean runtime makes. It looks into no trust store: it is told what plan is
    trusted here.
    """
    from tactix_runtime.lean_runtime import admit

    if not isinstance(runtime.allocator, str):
        raise InvalidArgument(
            "an allocator of ours cannot be handed over", do="Name one by its key"
        )
    if runtime.devices:
        do = "Give one device, or build the plan again with this version"
        raise InvalidArgument("a plan of another version runs on one device", do=do)
    known = runtime.session.trusted_by(found.seal)
    package = admit(files, runtime.tempfile_control_flags, runtime.temporary_directory)
    settings = {
        "device": runtime.device,
        "allocator": runtime.allocator,
        "max_threads": runtime.max_threads,
        "copy_weights": runtime.copy_weights,
        "verify": verify,
        **policy(runtime.on_untrusted),
        "vouched": found.seal.digest if known else b"",
        "log": runtime.logger.log,
        "error_recorder": runtime.error_recorder,
    }
    engine: EngineView = package.open_plan(data, settings)
    return engine


def policy(on_untrusted: OnUntrusted) -> dict[str, bool]:
    """What lean runtimes of every version are told. Those that take code for a GPU as none are
    ``strict`` when it counts.
    """
    return {
        "engine_host_code_allowed": on_untrusted is OnUntrusted.ALLOW,
        "references": on_untrusted is OnUntrusted.REFERENCES,
        "strict": on_untrusted is OnUntrusted.REFUSE,
    }


def _refusal(found: Envelope, unsigned: tuple[str, str]) -> UntrustedPlan:
    told = origin(found.seal, unsigned)
    return UntrustedPlan(
        "the plan is not trusted",
        why=f"{told.why}; its lean runtime ({len(found.runtime or b'')} bytes of Python) "
        "would run in this process",
        do=f"{told.restore}If you trust its origin: {told.keys}"
        "let it run with on_untrusted='allow' (--untrusted allow)",
    )
