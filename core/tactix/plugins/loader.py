"""Loader: entry points to checked plugins. Of what cannot be used the reason is kept; the rest
works.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tactix.base.errors import ConfigError, PluginError, TactixError
from tactix.base.spelling import did_you_mean
from tactix.plugins.hookspecs import API, HOOKS
from tactix.plugins.identity import Provider, called, installed_files, normal
from tactix.plugins.names import OWN, check_namespace
from tactix.plugins.pack import plugin_in

_GROUP = re.compile(r"tactix\.(build|runtime)\.v(\d+)")


@dataclass(frozen=True, order=True)
class Found:
    """One entry point of an installed distribution; nothing of it is imported yet. ``broken``: why
    its metadata are.
    """

    namespace: str
    provider: Provider
    group: str
    major: int
    module: str
    load: Callable[[], Any] = field(compare=False, repr=False)
    broken: str = ""
    part: str = ""
    """Of a namespace that has several packs: an entry point ``acme.extras`` is the part ``extras``
    of ``acme``.
    """

    @property
    def name(self) -> str:
        """``acme``, or ``acme.extras`` for a part."""
        return f"{self.namespace}.{self.part}" if self.part else self.namespace


_scan_lock = threading.Lock()


def scan() -> tuple[Found, ...]:
    """Entry points of every group and API major, sorted; read once per process."""
    with _scan_lock:
        return _scan()


def reset_scan() -> None:
    """Forget the scan, after distributions came or went."""
    with _scan_lock:
        _scan.cache_clear()


@functools.cache
def _scan() -> tuple[Found, ...]:
    from tactix.plugins._metadata import metadata

    out: dict[str, list[Found]] = {}
    for dist in metadata.distributions():
        text = dist.read_text("entry_points.txt") or ""
        if (
            "tactix." in text
        ):  # most have no business here: their other metadata are not even opened
            try:
                name, found = _found(dist)
                out.setdefault(name, found)  # of two copies on the path Python imports the first
            except Exception as e:
                where = str(dist.locate_file(""))
                out[f"{where} {len(out)}"] = [_unreadable(where, e)]
    return tuple(sorted(f for found in out.values() for f in found))


def _found(dist: Any) -> tuple[str, list[Found]]:
    """Its name, and its entry points. The metadata are no mail to be parsed: that would take longer
    than all else.
    """
    text = next(filter(None, map(dist.read_text, ("METADATA", "PKG-INFO"))))
    name, version = (
        re.findall(rf"(?mi)^{field}: *(\S+)", text)[0] for field in ("Name", "Version")
    )
    out = []
    for ep in dist.entry_points:
        if group := _GROUP.fullmatch(ep.group):
            provider = Provider(name, version, functools.partial(installed_files, dist, ep.value))
            namespace, _, part = ep.name.partition(".")
            load = functools.partial(_load, ep)
            out.append(
                Found(namespace, provider, group[1], int(group[2]), ep.value, load, part=part)
            )
    return normal(name), out


def _load(point: Any) -> Any:
    """What an entry point names. Raises PluginError for an attribute that is not there."""
    found: object = importlib.import_module(point.module)
    for name in filter(None, (point.attr or "").split(".")):
        if not hasattr(found, name):
            raise PluginError(
                f"there is no {name!r} in {point.module}",
                who=f"entry point {point.name} = {point.value!r} of {point.group}",
                do=did_you_mean(name, dir(found), "Name what is there, and install the pack again"),
            )
        found = getattr(found, name)
    return plugin_in(found)


def _unreadable(where: str, e: Exception) -> Found:
    why = f"the metadata of a distribution in {where} cannot be read: {type(e).__name__}: {e}"
    return Found("", Provider("unknown", ""), "build", API[0], "", tuple, why)


# -- which to use --------------------------------------------------------------------------------


def _words(name: str) -> frozenset[str]:
    return frozenset(w.strip() for w in os.environ.get(name, "").split(",") if w.strip())


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no")


@dataclass(frozen=True)
class Settings:
    """Which plugins to use; arguments together with the environment. ``named``: what arguments
    named, to be checked.
    """

    discover: bool
    only: frozenset[str] | None
    enable: frozenset[str]
    disable: frozenset[str]
    strict: bool
    trace: bool
    named: frozenset[str]

    @classmethod
    def read(
        cls,
        discover: bool,
        only: Iterable[str] | None,
        enable: Iterable[str],
        disable: Iterable[str],
        strict: bool | None,
        trace: bool | None,
    ) -> Settings:
        """Arguments first; TACTIX_NO_DISCOVERY, TACTIX_PLUGINS, TACTIX_DISABLE and the other
        switches add to them.
        """
        listed = _words("TACTIX_PLUGINS")
        allowed = None if only is None else frozenset(only)
        wanted = frozenset(enable)
        if listed:
            allowed = listed if allowed is None else allowed & listed
        return cls(
            discover and not _flag("TACTIX_NO_DISCOVERY"),
            allowed,
            wanted | listed,
            frozenset(disable) | _words("TACTIX_DISABLE"),
            _flag("TACTIX_STRICT_PLUGINS") if strict is None else strict,
            _flag("TACTIX_TRACE_PLUGINS") if trace is None else trace,
            wanted | frozenset(only or ()),
        )

    def refusal(self, namespace: str, dist: str, part: str = "") -> tuple[str, str] | None:
        """Why a plugin stays out and what would let it in, or None."""
        if hit := sorted(n for n in self.disable if called(n, namespace, dist, part)):
            return (
                "it is disabled",
                f"Take {hit[0]!r} out of TACTIX_DISABLE or the session's disable=",
            )
        stranger = namespace == OWN and normal(dist) != OWN  # it may not have that name
        asked = frozenset() if self.only is None else self.only - ({OWN} if stranger else set())
        if (
            self.only is None
            or dist == ""
            or (namespace == OWN and not stranger)
            or any(called(n, namespace, dist) for n in asked)
        ):
            return None
        return (
            "it is not among the plugins asked for",
            f"Add {dist if stranger else namespace!r} to TACTIX_PLUGINS or the session's only=",
        )


@dataclass
class Plugin:
    """One module or object of a pack in one session. ``groups``: where its entry points are.

    ``status``: ``active``, ``disabled``, ``incompatible`` or ``failed``; ``reason`` and ``cure``
    for the last three.
    """

    namespace: str
    provider: Provider
    groups: tuple[str, ...]
    load: Callable[[], Any]
    module: str = ""
    status: str = "active"
    reason: str = ""
    cure: str = ""
    milliseconds: float = 0.0
    part: str = ""

    @property
    def name(self) -> str:
        """``acme``, or ``acme.extras`` for a part."""
        return f"{self.namespace}.{self.part}" if self.part else self.namespace

    @property
    def title(self) -> str:
        return f"plugin {self.name!r} ({self.provider})"

    def bar(self, status: str, reason: str, cure: str) -> None:
        self.status, self.reason, self.cure = status, reason, cure


def candidates(
    found: Iterable[Found], settings: Settings, replaced: Iterable[str], groups: Iterable[str]
) -> list[Plugin]:
    """Plugins of a scan of these groups, barred where settings, the API or a ``replaced`` namespace
    say so.
    """
    merged: dict[tuple[str, Provider, str, int], Plugin] = {}
    for f in found:
        key = (f.namespace, f.provider, f.module, f.major)
        if key in merged:
            merged[key].groups += (f.group,)
        else:
            merged[key] = Plugin(f.namespace, f.provider, (f.group,), f.load, f.module, part=f.part)
            if f.broken:
                merged[key].bar("failed", f.broken, "Install it again")
    current = {(f.namespace, f.provider) for f in found if f.major == API[0]}
    out = []
    for (namespace, provider, _, major), p in merged.items():
        served = (
            major != API[0] and (namespace, provider) in current
        )  # a pack may serve several majors
        if not served and set(groups).intersection(p.groups):
            _bar(p, major, settings, namespace in replaced)
            out.append(p)
    return out


def _bar(p: Plugin, major: int, settings: Settings, replaced: bool) -> None:
    if p.status != "active":
        return
    if refusal := settings.refusal(p.namespace, p.provider.dist, p.part):
        p.bar("disabled", *refusal)
    elif replaced:
        p.bar(
            "disabled",
            "one given in process takes its place",
            "Leave that out of the session's plugins=",
        )
    elif major != API[0]:
        newer = "tactix" if major > API[0] else p.provider.dist
        p.bar(
            "incompatible",
            f"it speaks plugin API {major}, this tactix {API[0]}",
            f"pip install --upgrade {newer}",
        )
    else:
        try:
            check_namespace(p.namespace, own=normal(p.provider.dist) == OWN)
        except ConfigError as e:
            p.bar("failed", e.what, e.do)


def shared(plugins: Iterable[Plugin], groups: Iterable[str]) -> dict[str, list[Provider]]:
    """Namespaces that several distributions have in one of these groups, and which those are."""
    owners: dict[tuple[str, str], list[Provider]] = {}
    for p in plugins:
        for group in set(groups).intersection(p.groups) if p.status == "active" else ():
            owners.setdefault((p.namespace, group), []).append(p.provider)
    return {
        namespace: sorted(set(who))
        for (namespace, _), who in sorted(owners.items())
        if len(set(who)) > 1
    }


# -- what went wrong -----------------------------------------------------------------------------

PHASES = {
    "scan": "was refused",
    "import": "failed to load",
    "api": "is incompatible",
    "check": "was refused",
}
"""Steps before any hook is called, and how a message puts their failure."""


@dataclass(frozen=True)
class PluginFailure:
    """A plugin that failed, or one of its hooks (then ``phase`` is the hook's name)."""

    namespace: str
    dist: str
    version: str
    phase: str
    error: BaseException
    hint: str

    @property
    def reason(self) -> str:
        """Who failed, when, and why."""
        who = f"({self.dist} {self.version})" if self.dist else "(given in process)"
        verb = PHASES.get(self.phase, f"failed in {self.phase}")
        e = self.error
        why = str(e) if isinstance(e, TactixError) and e.what else f"{type(e).__name__}: {e}"
        return f"plugin {self.namespace!r} {who} {verb}: {why}"

    def exception(self) -> PluginError:
        """A new error to raise; its cause is the original one."""
        who = {
            "dist": self.dist,
            "version": self.version,
            "phase": self.phase,
            "key": self.namespace,
        }
        out = PluginError(self.reason, do=self.hint, **who)
        out.__cause__ = self.error
        return out


def plugin_failure(p: Plugin, phase: str, error: BaseException) -> PluginFailure:
    hint = p.cure or f"Fix that, or disable it with TACTIX_DISABLE={p.name}"
    return PluginFailure(p.namespace, p.provider.dist, p.provider.version, phase, error, hint)


# -- whether a loaded plugin keeps the rules -----------------------------------------------------


def check_api(plugin: Any) -> None:
    """Raises PluginError if the plugin's ``TACTIX_API`` asks for more than this version offers."""
    asked = getattr(plugin, "TACTIX_API", (API[0], 0))
    if not (
        isinstance(asked, tuple) and len(asked) == 2 and all(isinstance(n, int) for n in asked)
    ):
        raise PluginError(f"TACTIX_API is {asked!r}", do="Write it as two integers, (major, minor)")
    if asked[0] != API[0] or asked[1] > API[1]:
        needs, has = (".".join(map(str, v)) for v in (asked, API))
        raise PluginError(
            f"it needs plugin API {needs}, this tactix has {has}", do="pip install --upgrade tactix"
        )


def check_called(plugin: Any, namespace: str) -> None:
    """Raises PluginError if the plugin says that it is of another namespace than it is found by."""
    own = getattr(plugin, "TACTIX_NAMESPACE", namespace)
    if own != namespace:
        raise PluginError(
            f"it is of the namespace {own!r}",
            why=f"it is found, or given, as {namespace!r}",
            do="Call its entry point as its namespace",
        )


Options = Mapping[str, Any]


def check_hooks(
    plugin: Any, groups: Iterable[str], parse: Callable[[Any, str], Options | None]
) -> None:
    """Raises PluginError for a wrapper, an unknown or unmarked hook, one of another group, or one
    with arguments.

    ``parse``: gives the options of a marked attribute, as
    ``pluggy.PluginManager.parse_hookimpl_opts`` does.
    """
    here = frozenset().union(*(HOOKS[g] for g in groups))
    for name in dir(plugin):
        options = parse(plugin, name)
        if options is not None:
            _check_hook(options.get("specname") or name, options, here)
            parameters = inspect.signature(getattr(plugin, name)).parameters.values()
            if needed := [p.name for p in parameters if p.default is p.empty]:
                raise PluginError(
                    f"{name} takes {', '.join(needed)}", do="Hooks get no arguments: leave them out"
                )
        elif name in _EVERYWHERE and callable(getattr(plugin, name)):
            raise PluginError(f"{name} is not marked", do="Write @hookimpl above it")


_EVERYWHERE: frozenset[str] = frozenset().union(*HOOKS.values())


def _check_hook(hook: str, options: Options, here: frozenset[str]) -> None:
    if options.get("wrapper") or options.get("hookwrapper"):
        raise PluginError(
            f"{hook} is a wrapper", why="no plugin changes what another gives", do="Return your own"
        )
    if hook not in _EVERYWHERE and not options.get("optionalhook"):
        raise PluginError(f"unknown hook {hook!r}", do=_suggest(hook, _EVERYWHERE))
    if hook in _EVERYWHERE - here:
        name = next(g for g in HOOKS if hook in HOOKS[g])
        group = f"tactix.{name}.v{API[0]}"
        raise PluginError(
            f"{hook} belongs to the entry-point group {group}",
            do=f"Have an entry point of {group} name what has it",
        )


def _suggest(hook: str, known: Iterable[str]) -> str:
    return did_you_mean(hook, known, f"There are: {', '.join(sorted(known))}")
