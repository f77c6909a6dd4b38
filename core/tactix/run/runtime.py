"""Runtime: turns plans into engines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import tactix
from tactix.contracts.device import Device
from tactix.plan import compat, container
from tactix.plan.schema import Plan, validate
from tactix.run.engine import Engine
from tactix.run.link import Options
from tactix.words.error_recorder import Recorded, Recorder, recording
from tactix.words.errors import ConfigError, InvalidArgument, PlanCompatibilityError
from tactix.words.logger import Logger

if TYPE_CHECKING:
    from tactix.plugins.session import Session


class Runtime(Recorded):
    """Loads plans onto one device.

    ``session``: the plugins, by default all that are installed. ``device``: a key or a kind; by default what the plan
    was built for. ``max_threads``: of one inference; 0 means TACTIX_NUM_THREADS or all usable cores. ``copy_weights``:
    read weights into memory of their own (huge pages where the system has them) instead of mapping the file.
    ``engine_host_code_allowed`` is only kept: nothing is held back by it.

    Raises ConfigError, InvalidArgument.
    """

    engine_host_code_allowed = False

    def __init__(
        self,
        logger: Logger | None = None,
        session: Session | None = None,
        *,
        flavour: str = "default",
        device: str = "",
        allocator: str = "",
        max_threads: int = 0,
        copy_weights: bool = False,
        error_recorder: Recorder | None = None,
    ) -> None:
        self.logger = logger or Logger()
        self._session = session
        self.flavour, self.device, self.allocator, self.copy_weights = flavour, device, allocator, copy_weights
        self.error_recorder = error_recorder
        self.max_threads = max_threads or default_threads()

    @property
    def session(self) -> Session:
        """Made when it is first needed."""
        if self._session is None:
            from tactix.plugins.session import Session

            self._session = Session(door="runtime", logger=self.logger)
        return self._session

    @property
    def max_threads(self) -> int:
        """Intra-op threads of the engines to come."""
        return self._max_threads

    @max_threads.setter
    def max_threads(self, threads: int) -> None:
        if not isinstance(threads, int) or threads < 1:
            raise InvalidArgument(f"max_threads is {threads!r}", do="Give a positive integer")
        self._max_threads = threads

    def deserialize(self, source: str | Path | bytes | bytearray | memoryview, *, verify: bool = False) -> Engine:
        """An engine from a plan file, which is mapped, or its bytes. ``verify``: check the weights' sha256, too.

        Raises PlanFormatError, PlanCompatibilityError, PluginError, AllocationError, OSError.
        """
        with recording(self):
            return self.load(container.load(source, verify=verify))

    def load(self, plan: Plan) -> Engine:
        """An engine of a plan in memory. Raises as ``deserialize``."""
        with recording(self):
            device = self._device(validate(plan))
            self._admit(plan, device)
            options = Options(self.max_threads, self.copy_weights, self.allocator)
            engine = self.session.flavours[self.flavour].load(plan, self.session, device, options)
            engine.inherit_recorder(self)
            return engine  # type: ignore[no-any-return]

    def _device(self, plan: Plan) -> Device:
        wanted = self.device or str(plan.device.get("key") or plan.device.get("kind") or "cpu")
        devices = self.session.devices
        for d in devices.values():
            if wanted in (d.key, d.kind):
                if why := d.available():
                    raise PlanCompatibilityError(f"device {d.key} is not here", reasons=(why,))
                return d
        raise PlanCompatibilityError(
            "the plan cannot run here", reasons=(f"no plugin provides device {wanted!r}",),
            do=f"There are: {', '.join(devices) or 'none'}",
        )  # fmt: skip

    def _admit(self, plan: Plan, device: Device) -> None:
        properties = device.properties()
        if reasons := compat.check(plan, properties, tactix.__version__):
            raise PlanCompatibilityError("the plan cannot run here", reasons=tuple(reasons), do="Build it here")
        for text in compat.warnings(plan, properties, tactix.__version__):
            self.logger.warning(f"plan {plan.name or 'without name'}: {text}")


def default_threads() -> int:
    """TACTIX_NUM_THREADS, or the processors that this process may use. Raises ConfigError."""
    text = os.environ.get("TACTIX_NUM_THREADS", "")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"TACTIX_NUM_THREADS is {text!r}", do="Set it to a positive integer")
    return int(text)
