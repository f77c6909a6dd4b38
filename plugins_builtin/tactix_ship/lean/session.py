"""The session of the lean runtime: the built-ins alone, each asked for when it is needed; no scan,
no pluggy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tactix
from tactix.base.errors import ConfigError, PluginError
from tactix.contracts.flavour import DEFAULT, Flavour
from tactix.contracts.trust import LOCAL
from tactix.plan.schema import Plan

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.flavour import Options
    from tactix.contracts.launcher import Step
    from tactix.contracts.session import SessionView


class Session:
    """Registries as those of a full session; only built-in plugins are looked for."""

    def __init__(self, group: str = "runtime", logger: Any = None) -> None:
        if group != "runtime":
            raise ConfigError(
                f"the lean runtime has no entry-point group {group!r}", do="Install tactix"
            )
        self.group, self.logger = group, logger

    def __getattr__(self, name: str) -> Any:
        if name not in _SOURCES:
            raise AttributeError(f"a session has no {name!r}")
        found = self.__dict__[name] = LazyRegistry(name, _SOURCES[name])
        return found

    @property
    def signer(self) -> Callable[[bytes], bytes] | None:
        """What signs plans that are made here; None where a host, which has the keys, has loaded
        this runtime.
        """
        local = self.trust_stores.get(LOCAL)
        return local.sign if local else None

    def trusted_by(self, seal: Any) -> str:
        """Why a plan is trusted, in words; empty if it is not. Raises UntrustedPlan for a forged
        signature.
        """
        return next(
            filter(None, (store.trusted_by(seal) for store in self.trust_stores.values())), ""
        )

    def why_missing(self, namespace: str, hook: str) -> tuple[str, str]:
        """No reason is known here: what this runtime lacks was left out when it was made."""
        return "", ""

    def why_unused(self, namespace: str, hook: str) -> tuple[str, str]:
        """None: all that is here is used."""
        return "", ""

    def presented(self, subject: object) -> str | None:
        """None: this runtime draws nothing."""
        return None

    def unasked(self) -> str:
        """Packs whose trust stores were not asked: none, as only enabled ones are here."""
        return ""


class LazyRegistry(Mapping[str, Any]):
    """Objects by key, from one source after another: a later one is not imported before it is
    needed.
    """

    def __init__(self, name: str, sources: Sequence[Callable[[], Sequence[Any]]]) -> None:
        self._name, self._sources = name, list(sources)
        self._found: dict[str, Any] = {}

    def _more(self) -> list[str]:
        """Keys of the next source."""
        fresh = {o.key: o for o in self._sources[0]()}
        self._found.update(fresh)
        del self._sources[0]
        return list(fresh)

    def __getitem__(self, key: str) -> Any:
        while key not in self._found and self._sources:
            self._more()
        if key not in self._found:
            known = ", ".join(self._found)
            raise PluginError(
                f"the lean runtime has no {self._name[:-1]} {key!r}",
                do=f"There are: {known}",
                key=key,
            )
        return self._found[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._found[key] if key in self else default

    def __contains__(self, key: object) -> bool:
        while key not in self._found and self._sources:
            self._more()
        return key in self._found

    def __iter__(self) -> Iterator[str]:
        yield from list(self._found)
        while self._sources:
            yield from self._more()

    def __len__(self) -> int:
        return len(list(iter(self)))


def _own_layers() -> Sequence[Any]:
    from tactix.contracts.region import STRUCTURAL

    return STRUCTURAL


def _layers() -> Sequence[Any]:
    from tactix_ops.layers import all_layers

    return all_layers()


def _launchers() -> Sequence[Any]:
    from tactix_cpu.launcher import ElfLauncher

    return [ElfLauncher()]


def _other_launchers() -> Sequence[Any]:
    from tactix_ops import launchers

    return launchers()


def _devices() -> Sequence[Any]:
    from tactix_cpu import devices

    return devices()


def _allocators() -> Sequence[Any]:
    from tactix_cpu import allocators

    return allocators()


class LeanDefaultFlavour(Flavour[Plan]):
    """Engines that run, and no more."""

    key = DEFAULT

    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """An engine. Raises PlanCompatibilityError, AllocationError."""
        from tactix.run.engine import Engine

        session = with_packs(plan, session)
        if not plan.produced:
            return Engine(plan, session, device, options)
        from tactix_runtime.dynamic_shapes import SegmentedContext

        return Engine(plan, session, device, options, SegmentedContext)

    def on_references(self, plan: Plan, steps: Sequence[Step]) -> Plan:
        """The plan without its host code. Raises PlanCompatibilityError."""
        from tactix_runtime.references import on_references

        return on_references(plan, steps)


def with_packs(plan: Any, session: Any) -> Any:
    """The session, with the packs that the plan brings; they find this runtime where they look for
    tactix.

    Raises PlanFormatError, PluginError.
    """
    if not any(r.embedded for r in plan.requirements):
        return session
    from tactix_runtime.embedded_packs import carried

    top = tactix.__name__
    return carried(plan, session, {"tactix": top, "tactix_sdk": f"{top}.sdk"})


def _flavours() -> Sequence[Any]:
    return [LeanDefaultFlavour()]


def _trust_stores() -> Sequence[Any]:
    from tactix_trust import trust_stores

    return trust_stores()


def _cuda(name: str) -> Callable[[], Sequence[Any]]:
    def objects() -> Sequence[Any]:
        from tactix_cuda import allocators, devices, launchers

        found: dict[str, Callable[[], Sequence[Any]]]
        found = {"allocators": allocators, "devices": devices, "launchers": launchers}
        return found[name]()

    return objects


def _libraries() -> Sequence[Any]:
    from tactix_cublaslt import launchers as cublaslt
    from tactix_cudnn import launchers as cudnn

    return [*cublaslt(), *cudnn()]


_SOURCES: dict[str, tuple[Callable[[], Sequence[Any]], ...]] = {
    "layers": (_own_layers, _layers),
    "launchers": (_launchers, _other_launchers, _cuda("launchers"), _libraries),
    "devices": (_devices, _cuda("devices")),
    "allocators": (_allocators, _cuda("allocators")),
    "flavours": (_flavours,),
    "trust_stores": (_trust_stores,),
}
