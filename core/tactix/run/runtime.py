"""Runtime: turns plans into engines."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tactix
from tactix.base.cores import usable_cores
from tactix.base.error_recorder import ErrorRecorder, Recorded, recording
from tactix.base.errors import (
    ConfigError,
    InvalidArgument,
    PlanCompatibilityError,
    PluginError,
    TactixError,
    UntrustedPlan,
    punctuated,
)
from tactix.base.logger import Logger, checked_logger
from tactix.base.threads import threads_needed
from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Device
from tactix.contracts.flavour import DEFAULT, Options, Source, TempfileControlFlag
from tactix.contracts.launcher import MOST_THREADS, Step
from tactix.contracts.trust import OnUntrusted
from tactix.plan import compat, container
from tactix.plan.schema import Plan, validate
from tactix.run.admission import (
    Verdict,
    code_steps,
    embedded,
    refusal,
    why_unsigned,
    without_packs,
)
from tactix.run.engine import Engine
from tactix.run.engine_facts import EngineFacts
from tactix.run.link import check_requirements, device_of
from tactix.run.memory_log import memory_told
from tactix.run.plan_file import RuntimeSettings
from tactix.run.replica_loads import named

if TYPE_CHECKING:
    from tactix.plugins.session import Session


class Runtime(Recorded):
    """Loads plans onto one device, or several of one kind.

    ``session``: the plugins, by default all that are installed. ``device``: a key or a kind, by
    default what the plan was built for: the first such, or with its number another (``cuda:1``).
    ``allocator``: a key or an object, by default tactix's own
    for the device.
    ``max_threads``: of one inference, at most MOST_THREADS; 0 means TACTIX_NUM_THREADS or all
    usable cores.
    ``copy_weights``: read weights into memory of their own (huge pages where the system has them)
    instead of mapping the file.
    ``sign``: whether an engine signs its plan when it saves it, if it was made in this process.

    ``on_untrusted``: what becomes of a plan from a file whose code no trust store trusts:
    ``refuse``, the default, ``references`` or ``allow`` (see ``OnUntrusted``); without it
    TACTIX_UNTRUSTED counts.

    ``lean_runtime``: see ``load_runtime``. ``tempfile_control_flags``: where a lean runtime may be
    kept; without memory, in a new folder in ``temporary_directory``, by default the system's.

    ``flavour``: what runs plans. One that is not there is a PluginError here if a session is given,
    else when the first plan is loaded: looking for plugins would cost every start its time.

    Raises ConfigError, InvalidArgument, PluginError.
    """

    _devices: tuple[str, ...] = ()
    lean_runtime: str | Path = ""
    temporary_directory: str | None = None
    tempfile_control_flags = (
        TempfileControlFlag.ALLOW_IN_MEMORY_FILES | TempfileControlFlag.ALLOW_TEMPORARY_FILES
    )

    def __init__(
        self,
        logger: Logger | None = None,
        session: Session | None = None,
        *,
        flavour: str = DEFAULT,
        device: str = "",
        allocator: str | Allocator = "",
        max_threads: int = 0,
        copy_weights: bool = False,
        on_untrusted: str = "",
        sign: bool = True,
        error_recorder: ErrorRecorder | None = None,
    ) -> None:
        self.logger = checked_logger(logger)
        self._session = session
        if session is not None and flavour != DEFAULT:
            session.flavours[flavour]  # an unknown one is better told now
        if device and not isinstance(device, str):
            do = "Give its key or kind, as 'cpu' or 'cuda:1'"
            raise InvalidArgument(f"device is {device!r}", do=do)
        self.flavour, self.device, self.copy_weights = flavour, device, copy_weights
        self.allocator = allocator
        self.on_untrusted = OnUntrusted.chosen(on_untrusted)
        self.sign = sign
        self.error_recorder = error_recorder
        self.max_threads = max_threads

    @property
    def session(self) -> Session:
        """Made when it is first needed."""
        if self._session is None:
            from tactix.plugins.session import Session

            self._session = Session(group="runtime", logger=self.logger)
        return self._session

    @property
    def max_threads(self) -> int:
        """Intra-op threads of engines to come. Setting raises InvalidArgument, ConfigError."""
        return self._max_threads

    @max_threads.setter
    def max_threads(self, threads: int) -> None:
        if not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
            do = f"Give 1 to {MOST_THREADS}, or 0 for all usable cores"
            raise InvalidArgument(f"max_threads is {threads!r}", do=do)
        self._max_threads = threads or default_threads()

    @property
    def allocator(self) -> str | Allocator:
        """A key or an object; empty for tactix's own. Setting raises InvalidArgument for what is
        neither.
        """
        return self._allocator

    @allocator.setter
    def allocator(self, given: str | Allocator) -> None:
        if not isinstance(given, (str, Allocator)):
            do = "Give a key, or an object with key, device, allocate and deallocate"
            raise InvalidArgument(f"allocator is {given!r}", do=do)
        self._allocator = given

    @property
    def devices(self) -> tuple[str, ...]:
        """Several devices of one kind, as ``("cuda:0", "cuda:1")``, or ``("all",)``: engines to
        come are each a ``ReplicatedEngine``, with a replica on every one. Empty for one device.
        Setting takes any names, or a text with commas; raises InvalidArgument.
        """
        return self._devices

    @devices.setter
    def devices(self, names: Sequence[str] | str) -> None:
        given = [n.strip() for n in names.split(",") if names] if isinstance(names, str) else names
        named = isinstance(given, Iterable) and all(isinstance(n, str) and n for n in given)
        if not named:
            do = "Give names, as ['cuda:0', 'cuda:1'], or 'all'"
            raise InvalidArgument(f"devices are {names!r}", do=do)
        if given and self.device:
            what = f"devices {', '.join(given)} beside device {self.device!r}"
            raise InvalidArgument(what, do="Give one of the two")
        self._devices = tuple(given)

    @property
    def on_untrusted(self) -> OnUntrusted:
        """What becomes of plans to come whose code is not trusted. Setting raises ConfigError."""
        return self._on_untrusted

    @on_untrusted.setter
    def on_untrusted(self, policy: str) -> None:
        self._on_untrusted = OnUntrusted.chosen(policy)

    @property
    def engine_host_code_allowed(self) -> bool:
        """TensorRT's name of ``on_untrusted = "allow"``; False means ``refuse``."""
        return self.on_untrusted is OnUntrusted.ALLOW

    @engine_host_code_allowed.setter
    def engine_host_code_allowed(self, allowed: bool) -> None:
        self.on_untrusted = OnUntrusted.ALLOW if allowed else OnUntrusted.REFUSE

    def deserialize(self, source: Source, *, verify: bool | None = None) -> Engine:
        """An engine from a plan file, which is mapped, or its bytes.

        ``verify``: whether to check the weights' sha256, too; by default those of signed plans.
        Raises PlanFormatError, PlanCompatibilityError, UntrustedPlan, PluginError, AllocationError,
        OSError.
        """
        with recording(self):
            found = self.session.flavours[self.flavour].open(self, source, verify)
            if isinstance(source, (str, Path)) and isinstance(found, EngineFacts):
                found.came_from(source, self._settings())
            return cast(Engine, found)  # one of another version has the same methods

    def _settings(self) -> RuntimeSettings:
        """Keywords of a runtime that loads a plan as this one does, in another process."""
        return {
            "flavour": self.flavour,
            "device": self.device,
            "devices": self.devices,
            "allocator": self.allocator,
            "max_threads": self.max_threads,
            "copy_weights": self.copy_weights,
            "on_untrusted": str(self.on_untrusted.value),
        }

    def read(self, source: Source, verify: bool | None = None) -> Plan:
        """The plan in a file, which is mapped, or in bytes; it is not asked whether it may run
        here.

        ``verify``: as of ``deserialize``. Raises PlanFormatError, UntrustedPlan for a forged
        signature, OSError.
        """
        return container.load(source, verify=verify, admit=self.session.trusted_by)

    def load_runtime(self, path: str | Path) -> Runtime:
        """One like this that hands plans to the lean runtime at that path, a wheel or a folder.
        That is not checked.

        Raises PluginError where nothing in use can do that.
        """
        out = copy.copy(self)
        out.flavour, out.lean_runtime = self.session.flavours[DEFAULT].host, path
        if not out.flavour:
            raise PluginError("this runtime hands no plan to another one", do="Install tactix")
        return out

    def check(self, source: str | Path | bytes | Plan) -> list[str]:
        """All reasons why the default flavour cannot run a plan here; empty if it can. Nothing of
        it is run.
        """
        try:
            flavour = self.session.flavours[DEFAULT]
            if not isinstance(source, Plan) and flavour.hands_over(self, source):
                return []
            plan = source if isinstance(source, Plan) else container.load(source)
        except TactixError as e:
            return [str(e)]
        gone = plan.stripped
        reasons = (
            [f"{len(gone)} weights are missing: it was stripped. Refit the plan first"]
            if gone
            else []
        )
        tests: list[Callable[[Plan], Plan | None]] = [
            self._trusted,
            self._admit_everywhere,
            lambda p: check_requirements(p, self.session),
        ]
        for test in tests:
            try:
                plan = test(plan) or plan
            except TactixError as e:
                reasons += _reasons(e)
        return reasons

    def load(self, plan: Plan) -> Engine:
        """An engine of a plan in memory. Raises as ``deserialize``, and InvalidArgument for what is
        no plan.
        """
        with recording(self):
            return self.attempt(plan)

    def attempt(self, plan: Plan, path: str | Path | None = None) -> Engine:
        """As ``load``, for a caller who knows what to do if it fails: nobody is told of an error
        but by raising it. ``path``: of the file that the plan was read from.
        """
        engine = self._attempted(plan)
        if path is not None and isinstance(engine, EngineFacts):
            engine.came_from(path, self._settings())
        return engine

    def _attempted(self, plan: Plan) -> Engine:
        if not isinstance(plan, Plan):
            what = f"load takes a Plan, got a {type(plan).__name__}"
            raise InvalidArgument(
                what, do="Give files and bytes to Runtime.deserialize, or to tactix.load"
            )
        plan = self._trusted(validate(plan))
        devices = self._devices_for(plan)
        if not self.devices:
            return self._engine(plan, devices[0])
        from tactix.run.replicated_engine import ReplicatedEngine

        engines: list[Engine] = []
        try:
            for device in devices:
                engines.append(self._engine(plan, device))
        except TactixError as e:
            named(e, device.label)
            for engine in engines:
                engine.close()
            raise
        replicated = ReplicatedEngine(engines)
        replicated.inherit_recorder(self)
        return cast(Engine, replicated)  # it has the same methods

    def _engine(self, plan: Plan, device: Device) -> Engine:
        self._admit(plan, device)
        options = Options(
            self.max_threads, self.copy_weights, self.allocator, self.sign, self.logger
        )
        flavour = self.session.flavours[self.flavour]
        told = memory_told(self.logger, f"engine of {plan.name or 'a plan'}", device)
        with threads_needed(), told:
            engine = flavour.load(plan, self.session, device, options)
        engine.inherit_recorder(self)
        return cast(Engine, engine)

    def _devices_for(self, plan: Plan) -> list[Device]:
        """The one that the plan runs on, or all that were asked for. Raises
        PlanCompatibilityError, InvalidArgument for one that is named twice.
        """
        built = str(plan.device.get("key") or plan.device.get("kind") or "cpu")
        if self.devices == (ALL,):
            return list(self._device(plan, built).siblings())
        found = [self._device(plan, name) for name in self.devices or (self.device or built,)]
        if len(set(found)) < len(found):
            labels = ", ".join(d.label for d in found)
            do = "Name each once: contexts of one device already run beside each other"
            raise InvalidArgument(f"a device is named twice: {labels}", do=do)
        return found

    def _device(self, plan: Plan, wanted: str) -> Device:
        try:
            device = device_of(self.session, wanted)
        except ConfigError as e:
            raise PlanCompatibilityError(
                "the plan cannot run here",
                reasons=(": ".join(filter(None, (e.what, e.why))),),
                do=e.do,
            ) from e
        if why := device.available():
            raise PlanCompatibilityError(
                f"device {wanted} is not here",
                who=f"plan {plan.name}",
                reasons=(*_built_for_another(plan, device), why),
            )
        return device

    def judge(self, plan: Plan) -> Verdict:
        """What loading this plan would do with its code; none of it is run.

        Raises UntrustedPlan for a forged signature.
        """
        steps = code_steps(plan, self.session.launchers)
        code = bool(steps or embedded(plan))
        if plan.seal is None:
            return Verdict("it was made in this process", code, "runs")
        trusted_by, policy = self.session.trusted_by(plan.seal), self.on_untrusted
        if trusted_by or not code or policy is OnUntrusted.ALLOW:
            return Verdict(trusted_by, code, "runs")
        try:
            self._on_references(plan, steps)
        except UntrustedPlan:
            return Verdict("", code, "refused")
        return Verdict("", code, "references")

    def _trusted(self, plan: Plan) -> Plan:
        """The plan that may run: this one, or with references in place of its code. Raises
        UntrustedPlan.
        """
        if (
            plan.seal is None
            or self.session.trusted_by(plan.seal)
            or self.on_untrusted is OnUntrusted.ALLOW
        ):
            return plan
        steps = code_steps(plan, self.session.launchers)
        if steps or embedded(plan):
            return self._on_references(plan, steps, self.logger.warning)
        text = (
            f"plan {plan.name or 'without name'} is not trusted: "
            "it brings no code, but what it computes"
        )
        self.logger.warning(
            f"{text}, weights included, may be anybody's; `tactix sign` it if you know its origin"
        )
        return plan

    def _on_references(
        self, plan: Plan, steps: list[Step], warn: Callable[[str], None] = lambda text: None
    ) -> Plan:
        """The plan without its code. Raises UntrustedPlan where that is not wanted or cannot be."""
        assert plan.seal is not None
        flavour = self.session.flavours[self.flavour]
        error = refusal(plan, plan.seal, steps, why_unsigned(self.session))
        error.do = punctuated((error.do, self.session.unasked()), "; ")
        if self.on_untrusted is not OnUntrusted.REFERENCES:
            raise error
        try:
            brought = {r.key for r in plan.requirements if r.embedded}
            plan = flavour.on_references(without_packs(plan), steps)
            check_requirements(plan, self.session, refused=brought)
        except TactixError as e:
            error.why += f"; references cannot run in its place: {e}"
            raise error from e
        warn(f"the references of layers, which are slow, run in place of its code: {error}")
        return plan

    def _admit_everywhere(self, plan: Plan) -> None:
        for device in self._devices_for(plan):
            self._admit(plan, device)

    def _admit(self, plan: Plan, device: Device) -> None:
        properties = device.properties()
        if reasons := compat.check(plan, properties, tactix.__version__):
            raise PlanCompatibilityError(
                "the plan cannot run here", reasons=tuple(reasons), do=container.CURE
            )
        for text in compat.warnings(plan, properties, tactix.__version__):
            told = f"plan {plan.name or 'without name'}: {text}"
            self.logger.warning(punctuated((told, "A build here would be tuned to what is here")))


def _built_for_another(plan: Plan, device: Device) -> Iterator[str]:
    """Why a plan would not run on a device, were it here: what compat.check says of one that is."""
    built = str(plan.device.get("key") or "")
    if built and built != device.key:
        yield f"the plan was built for {built}, so that it would not run there either"


ALL = "all"
"""In place of names of devices: all of the kind that the plan was built for."""


def default_threads(cores: int = 0) -> int:
    """TACTIX_NUM_THREADS, or so many cores, but at most MOST_THREADS; 0 means those that this
    process may use. Raises ConfigError.
    """
    text = os.environ.get("TACTIX_NUM_THREADS", "")
    if not text:
        return min(cores or usable_cores(), MOST_THREADS)
    if text not in map(str, range(1, MOST_THREADS + 1)):
        do = f"Set it to an integer from 1 to {MOST_THREADS}"
        raise ConfigError(f"TACTIX_NUM_THREADS is {text!r}", do=do)
    return int(text)


def _reasons(error: TactixError) -> tuple[str, ...]:
    """Each reason of an error, the last with the cure of all."""
    *others, last = getattr(error, "reasons", ()) or (str(error),)
    told = last if last == str(error) else punctuated((last, error.do))
    return (*others, told)
