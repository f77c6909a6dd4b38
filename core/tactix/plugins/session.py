"""Session: the plugins in use and what they gave. Nothing is scanned or imported before something
is asked for.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from tactix import __version__
from tactix.base.errors import ConfigError, PluginError, punctuated
from tactix.base.logger import Logger, checked_logger
from tactix.base.spelling import did_you_mean
from tactix.contracts.region import STRUCTURAL
from tactix.contracts.rule import AnyOf, Op, Rule
from tactix.contracts.tactic import Tactic
from tactix.contracts.trust import LOCAL
from tactix.plugins import loader
from tactix.plugins.hookspecs import HOOKS, AllHooks, RuntimeHooks
from tactix.plugins.identity import Provider, called, own_first
from tactix.plugins.loader import Found, Plugin, PluginFailure, Settings
from tactix.plugins.names import OWN, check_namespace
from tactix.plugins.pack import BasePack, plugin_in
from tactix.plugins.registry import KINDS, Clash, Entry, Registry
from tactix.plugins.unresolved import unresolved

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.build_stage import BuildStage
    from tactix.contracts.calibrator import Calibrator
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.device import Device
    from tactix.contracts.flavour import Flavour
    from tactix.contracts.importer import Converter, Importer
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.layer import Layer
    from tactix.contracts.presenter import Presenter
    from tactix.contracts.tool import Tool
    from tactix.contracts.trust import Seal, TrustStore

_SELF = Provider(OWN, __version__)
TouchesOthers = Callable[[Entry[Any]], bool]
"""Whether an object of a pack touches what belongs to others."""


@dataclass(frozen=True)
class _Use:
    """What of a registry is ``active``, by key, and how many objects of each namespace wait for
    their pack to be enabled.
    """

    active: tuple[Entry[Any], ...]
    waiting: Mapping[str, int]


class Session:
    """Plugins, found through entry points or given in process, and one registry per kind of what
    they give.

    ``group``: ``build``, or ``runtime`` which only knows what running plans needs. ``plugins``:
    packs, modules or objects with a ``TACTIX_NAMESPACE``, or pairs (namespace, module or object);
    they take the place of installed ones of their namespace. ``discover``: whether to look for
    installed ones. ``only``: packs to use, beside tactix itself.
    ``enable``: packs that may touch what others provide: see the method. ``disable``: packs to
    leave out. All three are namespaces or distributions. ``strict``: the first plugin that fails
    raises. ``trace``: imports and hooks are reported on stderr. TACTIX_PLUGINS (``only`` and
    ``enable`` in one), TACTIX_DISABLE and TACTIX_NO_DISCOVERY=1 add to the arguments;
    TACTIX_STRICT_PLUGINS=1 and TACTIX_TRACE_PLUGINS=1 stand in for those left out.

    May be used from several threads. Raises ConfigError for arguments that make no sense. A key
    that two packs provide is left out, with a warning (``strict``: PluginError); everything else of
    theirs works.
    """

    def __init__(
        self,
        group: str = "build",
        plugins: Iterable[Any] = (),
        discover: bool = True,
        enable: Iterable[str] = (),
        disable: Iterable[str] = (),
        only: Iterable[str] | None = None,
        strict: bool | None = None,
        logger: Logger | None = None,
        trace: bool | None = None,
    ) -> None:
        if group not in HOOKS:
            raise ConfigError(
                f"no entry-point group {group!r}", do=f"There are: {', '.join(HOOKS)}"
            )
        self.group = group
        self.logger = checked_logger(logger)
        self._settings = Settings.read(discover, only, enable, disable, strict, trace)
        self._enabled = {OWN, *self._settings.enable}
        self._asked = set(self._settings.named)
        self._given = [_given(p) for p in plugins]
        self.kinds = [n for n in KINDS if group == "build" or f"tactix_{n}" in HOOKS[group]]
        self._lock = threading.RLock()
        self._manager: pluggy.PluginManager | None = None
        self._plugins: list[Plugin] = []
        self._shared: dict[str, list[Provider]] = {}
        self._failures: list[PluginFailure] = []
        self._reported: set[tuple[str, str]] = set()
        self._uses: dict[str, _Use] = {}
        self._unresolved: tuple[str, ...] | None = None

    # -- registries -------------------------------------------------------------------------------

    layers: Registry[Layer]
    importers: Registry[Importer]
    converters: Registry[Converter]
    rules: Registry[Rule]
    tactics: Registry[Tactic]
    compilers: Registry[Compiler]
    calibrators: Registry[Calibrator]
    build_stages: Registry[BuildStage[Any, Any, Any, Any]]
    tools: Registry[Tool]
    launchers: Registry[Launcher]
    devices: Registry[Device]
    allocators: Registry[Allocator]
    flavours: Registry[Flavour[Any]]
    trust_stores: Registry[TrustStore]
    presenters: Registry[Presenter]

    def __getattr__(self, name: str) -> Any:
        if name in KINDS:  # the first use of a registry; from then on it is an attribute
            return self._registry(name)
        raise AttributeError(f"a session has no {name!r}")

    @property
    def signer(self) -> Callable[[bytes], bytes] | None:
        """What signs plans that are made here; None if there is no trust store called LOCAL."""
        local = self.trust_stores.get(LOCAL)
        return local.sign if local else None

    @property
    def digest(self) -> str:
        """sha256 over the digests of all registries of the session."""
        return hashlib.sha256(
            repr([(n, self._registry(n).digest) for n in self.kinds]).encode()
        ).hexdigest()

    def failures(self) -> tuple[PluginFailure, ...]:
        """What has failed so far, in the order of the plugins."""
        self._load()
        return tuple(sorted(self._failures, key=lambda t: (t.namespace, t.dist, t.phase)))

    def clashes(self) -> tuple[Clash, ...]:
        """The keys of all registries of the session that are provided more than once."""
        return tuple(c for n in self.kinds for c in self._registry(n).clashes.values())

    # -- what may touch what others provide -------------------------------------------------------

    def enable(self, pack: str) -> None:
        """Let a pack touch what others provide: rules and tactics for their layers, converters of
        their operators, importers of their formats, compilers of their languages, trust stores and
        presenters. ``pack``: a namespace or a distribution. Raises ConfigError for one that is
        not there.
        """
        with self._lock:
            if self._manager:
                self._check_name(pack, asked=True)
            self._asked.add(pack)
            if pack not in self._enabled:
                self._enabled.add(pack)
                self._uses.clear()
                self._unresolved = None

    def active_tactics(self) -> list[Tactic]:
        """Tactics in use, by key."""
        self._report_not_enabled("rules", "tactics")
        return [e.object for e in self._use("tactics").active]

    def active_rules(self) -> list[Rule]:
        """Rules in use: highest benefit first, then by key."""
        self._report_not_enabled("rules", "tactics")
        rules = (e.object for e in self._use("rules").active)
        return sorted(rules, key=lambda r: (-r.benefit, r.key))

    def unresolved(self) -> tuple[str, ...]:
        """Names in rules and tactics in use that nothing provides, one sentence each."""
        self._report_not_enabled("rules", "tactics")
        with self._lock:
            if self._unresolved is None:
                rules, tactics = self.active_rules(), self.active_tactics()
                self._unresolved = tuple(unresolved(self.layers, rules, tactics))
            return self._unresolved

    def active_converters(self) -> list[Converter]:
        """Converters in use, by key; of operators that belong to others, those of enabled packs
        alone.
        """
        self._report_not_enabled("converters")
        return [e.object for e in self._use("converters").active]

    def active_importers(self) -> list[Importer]:
        """Importers in use, tactix's own first; of formats that tactix knows, those of enabled
        packs alone.
        """
        return self._own_first("importers")

    def active_compilers(self) -> list[Compiler]:
        """Compilers in use, tactix's own first; of languages that tactix compiles, those of enabled
        packs alone.
        """
        return self._own_first("compilers")

    def active_build_stages(self) -> list[BuildStage[Any, Any, Any, Any]]:
        """Build stages in use, tactix's own first; then those of enabled packs."""
        return self._own_first("build_stages")

    def trusted_by(self, seal: Seal) -> str:
        """Why a plan is trusted, in words of tactix's own trust store or that of an enabled pack;
        empty if it is not.

        Raises UntrustedPlan for a forged signature.
        """
        return next(
            filter(None, (store.trusted_by(seal) for store in self._own_first("trust_stores"))), ""
        )

    def presented(self, subject: object) -> str | None:
        """A picture of it as HTML, by the first presenter in use that knows it; None if none does.
        One that fails is told as a warning.
        """
        for one in self._own_first("presenters"):
            try:
                found: str | None = one.html(subject)
            except Exception as e:
                self.logger.warning(f"presenter {one.key} failed: {type(e).__name__}: {e}")
            else:
                if found is not None:
                    return found
        return None

    def unasked(self) -> str:
        """Of which packs the trust stores were not asked, in words, with the cure."""
        unasked = [
            f"the trust store of {n} is not asked: {enable_cure(n)}"
            for n in self.not_enabled("trust_stores")
        ]
        return punctuated(unasked, "; ")

    def strangers(self) -> dict[str, Provider]:
        """Who provides the tactics and launchers that are not tactix's own, by key."""
        entries: list[Entry[Any]] = [*self.tactics.entries(), *self.launchers.entries()]
        return {e.key: e.provider for e in entries if e.provider.dist != OWN}

    def needs_enabling(self, kind: str, e: Entry[Any]) -> bool:
        """Whether an object of that registry waits for its pack to be enabled, as it touches what
        others provide.
        """
        touches_others = self._touching_others.get(kind)
        return touches_others is not None and not self._is_enabled(e) and touches_others(e)

    def _is_enabled(self, e: Entry[Any]) -> bool:
        names = self._enabled
        return e.namespace in names or any(called(n, e.namespace, e.provider.dist) for n in names)

    def _own_first(self, kind: str) -> list[Any]:
        """What is in use of a registry, by key; tactix's own before that of packs."""
        self._report_not_enabled(kind)
        return [e.object for e in own_first(self._use(kind).active, lambda e: e.namespace)]

    def _use(self, kind: str) -> _Use:
        """Of a registry. Found once, as registries do not change: each build asks for thousands of
        objects.
        """
        with self._lock:
            if kind not in self._uses:
                entries = self._registry(kind).entries()
                waiting = [self.needs_enabling(kind, e) for e in entries]
                self._uses[kind] = _Use(
                    tuple(e for e, waits in zip(entries, waiting, strict=True) if not waits),
                    Counter(e.namespace for e, w in zip(entries, waiting, strict=True) if w),
                )
            return self._uses[kind]

    @property
    def _touching_others(self) -> dict[str, TouchesOthers]:
        """By registry, what may be disabled until enabled."""
        return {
            "rules": lambda e: any(
                self._of_others(e, layer) for layer in _mentioned(e.object.pattern)
            ),
            "tactics": lambda e: any(self._of_others(e, layer) for layer in e.object.implements),
            "converters": self._converts_for_others,
            "importers": lambda e: (
                getattr(e.object, "format", "") in {o.format for o in self._own("importers")}
            ),
            "compilers": lambda e: (
                getattr(e.object, "language", "") in {o.language for o in self._own("compilers")}
            ),
            "trust_stores": lambda e: True,
            "build_stages": lambda e: True,
            "presenters": lambda e: True,
        }

    def _own(self, kind: str) -> list[Any]:
        return [e.object for e in self._registry(kind).entries() if e.namespace == OWN]

    def _of_others(self, e: Entry[Any], layer: str) -> bool:
        """Whether a layer, or a trait, is not the pack's own; in a shared namespace its
        distribution tells.
        """
        if layer.split(".")[0] != e.namespace:
            return True
        rivals = self.layers.entries() if e.namespace in self._shared else ()
        return any(
            o.provider != e.provider for o in rivals if layer in (o.key, o.key.partition("@")[0])
        )

    def _converts_for_others(self, e: Entry[Converter]) -> bool:
        """Whether tactix, or the pack called as the operator's domain, has a converter of it or a
        layer for it.
        """
        c = e.object
        word, owners = f"{c.format}:{c.op}", {OWN, c.op.partition("::")[0]} - {e.namespace}
        others = (
            o for r in (self.converters, self.layers) for o in r.entries() if o.namespace in owners
        )
        return any(
            word in (o.key.partition("@")[0], *getattr(o.object, "imports", ())) for o in others
        )

    def not_enabled(self, *names: str) -> dict[str, str]:
        """What of each pack is disabled until enabled, in words: of all registries, or those that
        are named.
        """
        out: dict[str, list[str]] = {}
        for name in names or (n for n in self._touching_others if n in self.kinds):
            for namespace, n in self._use(name).waiting.items():
                out.setdefault(namespace, []).append(
                    f"{n} {KINDS[name].noun}{'s' if n > 1 else ''}"
                )
        return {namespace: ", ".join(out[namespace]) for namespace in sorted(out)}

    def _report_not_enabled(self, *names: str) -> None:
        for namespace, what in self.not_enabled(*names).items():
            with self._lock:
                if (namespace, what) in self._reported:
                    continue
                self._reported.add((namespace, what))
            text = f"{namespace}: {what} disabled until enabled (they touch what others provide)"
            self.logger.info(f"{text}; {enable_cure(namespace)}")

    # -- loading ----------------------------------------------------------------------------------

    def _load(self) -> pluggy.PluginManager:
        with self._lock:
            if self._manager is None:
                manager = _Hooks(OWN)
                manager.add_hookspecs(AllHooks if self.group == "build" else RuntimeHooks)
                self._failures = []
                self._plugins = self._choose()
                for name in sorted(self._asked | self._settings.enable):
                    self._check_name(name)
                for p in self._plugins:
                    if p.status == "active":
                        self._register(p, manager)
                self._manager = manager
            return self._manager

    def _choose(self) -> list[Plugin]:
        given = [self._in_process(namespace, target) for namespace, target in self._given]
        replaced = {p.namespace for p in given}
        found = loader.scan() if self._settings.discover else ()
        groups = tuple(HOOKS) if self.group == "build" else (self.group,)
        installed = loader.candidates(found, self._settings, replaced, groups)
        if OWN in replaced and (built_in := [p for p in installed if p.namespace == OWN]):
            raise ConfigError(
                f"a pack was given in process as {OWN!r}",
                why=f"it would take the place of all {len(built_in)} built-in packs",
                do="Give it a namespace of its own; its objects may have the same names there",
            )
        for p in installed:
            if p.status == "failed":
                self._bury(p, "scan", PluginError(p.reason))
            elif p.namespace in replaced:
                self.logger.info(f"{p.title} is not used: {p.reason}")
        if self._settings.discover:
            self._warn_of_unknown(self._settings.disable, [*found, *given])
        self._shared = loader.shared(installed, groups)
        for namespace, who in self._shared.items():
            cures = " or ".join(f"TACTIX_DISABLE={p.dist}" for p in who)
            told = f"namespace {namespace!r} is shared by {' and '.join(map(str, who))}"
            self.logger.warning(
                f"{told}: keys that both provide are left out. Disable or uninstall one: {cures}"
            )
        return sorted([*given, *installed], key=lambda p: p.namespace)

    def _warn_of_unknown(self, disabled: Iterable[str], known: Sequence[Found | Plugin]) -> None:
        """Names of packs to leave out that nothing has, of whichever group."""
        for name in sorted(disabled):
            if not any(called(name, p.namespace, p.provider.dist, p.part) for p in known):
                names = {x for p in known for x in (p.namespace, p.part, p.name, p.provider.dist)}
                cure = did_you_mean(name, names - {""}, "`tactix plugins list` shows what there is")
                self.logger.warning(
                    punctuated((f"TACTIX_DISABLE or disable=: there is no plugin {name!r}", cure))
                )

    def _in_process(self, namespace: str, target: Any) -> Plugin:
        provider = _SELF if namespace == OWN else Provider()
        out = Plugin(namespace, provider, tuple(HOOKS), lambda: target)
        if refusal := self._settings.refusal(namespace, provider.dist):
            out.bar("disabled", *refusal)
        return out

    def _check_name(self, name: str, asked: bool = False) -> None:
        if name != OWN and not any(
            called(name, p.namespace, p.provider.dist) for p in self._plugins
        ):
            if asked or name in self._asked:
                raise ConfigError(f"there is no plugin {name!r}", do=self._spelling(name))
            self.logger.warning(
                f"TACTIX_PLUGINS: there is no plugin {name!r}. {self._spelling(name)}"
            )

    def _spelling(self, name: str) -> str:
        known = {OWN}.union(*((p.namespace, p.provider.dist or OWN) for p in self._plugins))
        return did_you_mean(name, known, "Install a distribution that provides it")

    def _register(self, p: Plugin, manager: pluggy.PluginManager) -> None:
        phase, start = "import", time.perf_counter()
        try:
            loaded = p.load()
            phase = "api"
            loader.check_api(loaded)
            phase = "check"
            loader.check_called(loaded, p.namespace)
            loader.check_hooks(loaded, p.groups, manager.parse_hookimpl_opts)
            manager.register(loaded, f"{p.namespace}:{id(p)}")
        except (Exception, SystemExit) as e:
            self._bury(p, phase, e)
        p.milliseconds = (time.perf_counter() - start) * 1e3
        self._trace(f"import of {p.title}", p.milliseconds)

    def _bury(self, p: Plugin, phase: str, error: BaseException) -> None:
        t = loader.plugin_failure(p, phase, error)
        if self._settings.strict:
            raise t.exception() from error
        self._failures.append(t)
        p.bar("incompatible" if phase == "api" else "failed", t.reason, t.hint)
        self.logger.warning(punctuated((t.reason, t.hint)))

    def _trace(self, what: str, milliseconds: float) -> None:
        if self._settings.trace:
            print(f"[tactix] [trace] {what}: {milliseconds:.2f} ms", file=sys.stderr)

    # -- collecting -------------------------------------------------------------------------------

    def _registry(self, name: str) -> Registry[Any]:
        if name not in self.kinds:
            raise ConfigError(
                f"the entry-point group tactix.{self.group}.v1 has no {name}",
                do="Use Session(group='build')",
            )
        with self._lock:
            if name not in self.__dict__:
                self.__dict__[name] = self._collect(name)
            found: Registry[Any] = self.__dict__[name]
            return found

    def _collect(self, name: str) -> Registry[Any]:
        manager, hook = self._load(), f"tactix_{name}"
        calls = {i.plugin_name: i.function for i in getattr(manager.hook, hook).get_hookimpls()}
        entries = [Entry[Any](OWN, _SELF, s) for s in STRUCTURAL] if name == "layers" else []
        done: set[tuple[str, Any]] = set()
        for p in self._plugins:
            call = calls.get(f"{p.namespace}:{id(p)}")
            if call is not None and (p.namespace, call) not in done:
                done.add((p.namespace, call))
                entries += self._call(p, hook, call)
        once = {
            (e.namespace, id(e.object)): e for e in reversed(entries)
        }  # what is in both groups counts once
        found = Registry(
            KINDS[name], once.values(), lambda namespace: self.why_missing(namespace, hook)
        )
        for clash in found.clashes.values():
            if self._settings.strict:
                raise clash.error()
            self.logger.warning(str(clash.error()))
        return found

    def _call(self, p: Plugin, hook: str, call: Callable[[], Any]) -> list[Entry[Any]]:
        out: list[Entry[Any]] = []
        start = time.perf_counter()
        try:
            out = KINDS[hook.removeprefix("tactix_")].entries(
                p.namespace, p.provider, call(), p.part
            )
        except (Exception, SystemExit) as e:
            self._bury(p, hook, e)
        took = (time.perf_counter() - start) * 1e3
        p.milliseconds += took
        self._trace(f"{hook} of {p.title} gave {len(out)}", took)
        return out

    def why_missing(self, namespace: str, hook: str) -> tuple[str, str]:
        """Why what a namespace gives through a hook may not be here, and the cure; empty texts for
        no reason.
        """
        why, cure = self.why_unused(namespace, hook)
        if why or any(p.namespace == namespace for p in self._plugins):
            return why, cure
        if namespace == OWN:
            return (
                "the built-in plugins were not found",
                "Install tactix, or do not turn discovery off",
            )
        return f"there is no plugin {namespace!r}", self._spelling(namespace)

    def why_unused(self, namespace: str, hook: str) -> tuple[str, str]:
        """Why plugins of a namespace that are here do not give through a hook, and the cure; empty
        texts for no reason.
        """
        for t in self._failures:
            if t.namespace == namespace and t.phase in (*loader.PHASES, hook):
                return f"its {t.reason}", t.hint
        mine = [p for p in self._plugins if p.namespace == namespace]
        if out := [p for p in mine if p.status in ("disabled", "incompatible")]:
            whys = dict.fromkeys(f"its {p.title} is not used: {p.reason}" for p in out)
            cures = dict.fromkeys(p.cure for p in out)
            same = len(cures) == 1 and len(out) == len(mine) > 1  # said once of all
            why = f"none of its plugins is used: {out[0].reason}"
            return (why if same else punctuated(whys, "; ")), punctuated(cures, "; ")
        return "", ""

    def found(self) -> tuple[Plugin, ...]:
        """Every pack that was found or given, used or not, once per group, by namespace."""
        self._load()
        return tuple(self._plugins)


class _Hooks(pluggy.PluginManager):
    """A manager that looks for hooks only where they may be: to look at a name takes pluggy about
    8 us, twice, and every process that looks for packs waits for that.
    """

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """The options of a marked function; None for what is no hook."""
        other = isinstance(plugin, BasePack) and not name.startswith("tactix_")
        if other or name.startswith("__"):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def enable_cure(namespace: str) -> str:
    return f"enable with config.enable({namespace!r}) or --enable {namespace}"


def _given(plugin: Any) -> tuple[str, Any]:
    if isinstance(plugin, tuple) and len(plugin) == 2:
        namespace, target = plugin[0], plugin_in(plugin[1])
    else:
        target = plugin_in(plugin)
        namespace = getattr(target, "TACTIX_NAMESPACE", None)
    if not isinstance(namespace, str):
        shown = getattr(plugin, "__name__", repr(plugin))
        raise ConfigError(
            f"{shown} has no namespace", do="Give (namespace, plugin), or set its TACTIX_NAMESPACE"
        )
    return check_namespace(namespace, own=True), target


def _mentioned(pattern: Any) -> set[str]:
    """Layer names and traits anywhere in a pattern."""
    if isinstance(pattern, Op):
        return {pattern.layer}.union(*(_mentioned(p) for p in pattern.inputs or ()))
    return set().union(*map(_mentioned, pattern.options if isinstance(pattern, AnyOf) else ()))
