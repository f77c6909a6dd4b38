"""Registry: what plugins gave through a hook, by key; checked, sorted, frozen, with a digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tactix.base.errors import PluginError
from tactix.base.spelling import did_you_mean
from tactix.contracts import build_stage, flavour, importer, layer, presenter, rule, tactic
from tactix.plugins.identity import Provider
from tactix.plugins.names import NAME, NAMESPACE, OWN, VERSION

T = TypeVar("T")


class MissingKey(PluginError, KeyError):
    """No plugin that is in use provides a key."""


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One object and where it comes from."""

    namespace: str
    provider: Provider
    object: T
    prefix: str = ""
    """What stands before the object's own key in the registry."""
    part: str = ""
    """The part of the namespace that gave it, where that has several."""

    @property
    def key(self) -> str:
        return self.prefix + str(getattr(self.object, "key"))  # noqa: B009

    @property
    def source(self) -> str:
        return f"plugin {self.namespace!r} ({self.provider})"


@dataclass(frozen=True)
class Clash:
    """A key that is provided more than once: left out, but for tactix's own. ``entries``: all of
    them, in order.
    """

    noun: str
    entries: tuple[Entry[Any], ...]

    @property
    def key(self) -> str:
        return self.entries[0].key

    @property
    def kept(self) -> Entry[Any] | None:
        return next((e for e in self.entries if e.namespace == OWN), None)

    @property
    def left_out(self) -> tuple[Entry[Any], ...]:
        return tuple(e for e in self.entries if e is not self.kept)

    def error(self) -> PluginError:
        """What was left out, whose it is, and how to get one of them."""
        packs = {e.source: e for e in self.left_out}
        first = self.left_out[0]
        who = {"key": self.key, "dist": first.provider.dist, "version": first.provider.version}
        cure = " or ".join(
            f"TACTIX_DISABLE={e.provider.dist or e.namespace}" for e in packs.values()
        )
        if self.kept:
            what = f"{self.noun} {self.key!r} of {' and of '.join(packs)} is left out"
            do = f"Give it another key, or disable the pack: {cure}"
            return PluginError(what, why="tactix has its own", do=do, phase="collect", **who)
        what = f"{self.noun} {self.key!r} is left out"
        if len(packs) == 1:
            why, do = f"{first.source} provides it twice", "Give each its own key or version"
        else:
            why, do = (
                f"it is provided by {' and by '.join(packs)}",
                f"Disable or uninstall one: {cure}",
            )
        return PluginError(what, why=why, do=do, phase="collect", **who)


@dataclass(frozen=True)
class Kind:
    """What a registry holds: its noun, and the form of its keys. A namespace in a key must be the
    pack's own.

    ``prefixed``: keys of packs get the namespace in front where they lack it.
    """

    noun: str
    form: str
    pattern: str
    contract: type = object
    prefixed: bool = False

    def entries(
        self, namespace: str, provider: Provider, objects: Any, part: str = ""
    ) -> list[Entry[Any]]:
        """Entries of what a hook returned. Raises PluginError if it is no list of objects with
        proper keys.
        """
        if not isinstance(objects, (list, tuple)):
            raise PluginError(
                f"the hook gave a {type(objects).__name__}, not a list of {self.noun}s"
            )
        for o in objects:
            self._check(namespace, o)
        return [
            Entry(namespace, provider, o, self._prefix(namespace, o.key), part) for o in objects
        ]

    def _prefix(self, namespace: str, key: str) -> str:
        owned = not self.prefixed or namespace == OWN or key.startswith(f"{namespace}.")
        return "" if owned else f"{namespace}."

    def _check(self, namespace: str, o: Any) -> None:
        if isinstance(o, type):
            raise PluginError(
                f"{o.__name__} is a class, not a {self.noun}",
                do=f"Give an instance: {o.__name__}()",
            )
        key = getattr(o, "key", None)
        if not isinstance(key, str):
            raise PluginError(f"{o!r:.80} is no {self.noun}", why="it has no key")
        found = re.fullmatch(self.pattern, key)
        if not found:
            raise PluginError(
                f"{key!r} is no key of a {self.noun}", do=f"Write it {self.form}", key=key
            )
        owner = found.groupdict().get("namespace")
        if owner not in (None, namespace):
            raise PluginError(
                f"{key!r} is in another namespace", do=f"Give it a key in {namespace!r}", key=key
            )
        if not isinstance(o, self.contract):
            why = f"it is no tactix_sdk.{self.contract.__name__}"
            raise PluginError(f"{o!r:.80} is no {self.noun}", why=why, key=key)
        names = getattr(o, "implements", ())
        if not (isinstance(names, (tuple, list)) and all(isinstance(k, str) for k in names)):
            raise PluginError(
                f"{key} implements {names!r}", do="Write a tuple of layers' keys", key=key
            )


_OWNED = rf"(?P<namespace>{NAMESPACE})\.{NAME}@{VERSION}"
_RULE = rf"(?P<namespace>{NAMESPACE})\.{NAME}"
_LOOSE = rf"(?:(?P<namespace>{NAMESPACE})\.)?{NAME}(?:@{VERSION})?"
_TOOL = rf"(?:(?P<namespace>{NAMESPACE})\.)?[A-Za-z][A-Za-z0-9_-]*"
_CONVERTER = rf"{NAMESPACE}:[^:\s]*::[^@:\s]+@{VERSION}"

KINDS: Mapping[str, Kind] = {
    "layers": Kind("layer", "namespace.Name@version", _OWNED, layer.Layer),
    "importers": Kind("importer", "namespace.name@version", _OWNED, importer.Importer),
    "converters": Kind("converter", "format:domain::Op@since", _CONVERTER, importer.Converter),
    "rules": Kind("rule", "namespace.name", _RULE, rule.Rule),
    "tactics": Kind("tactic", "namespace.name@version", _OWNED, tactic.Tactic),
    "compilers": Kind("compiler", "namespace.name@version", _OWNED),
    "calibrators": Kind("calibrator", "name or namespace.name", _LOOSE),
    "build_stages": Kind("build stage", "namespace.name", _RULE, build_stage.BuildStage),
    "tools": Kind("tool", "name or namespace.name", _TOOL, prefixed=True),
    "launchers": Kind("launcher", "namespace.name@version", _OWNED),
    "devices": Kind("device", "namespace.name@version", _OWNED),
    "allocators": Kind("allocator", "name or namespace.name", _LOOSE),
    "flavours": Kind("flavour", "name or namespace.name", _LOOSE, flavour.Flavour),
    "trust_stores": Kind("trust store", "name or namespace.name", _LOOSE),
    "presenters": Kind("presenter", "namespace.name", _RULE, presenter.Presenter),
}
"""By the name of the hook without ``tactix_``."""

Explain = Callable[[str], tuple[str, str]]


class Registry(Mapping[str, T]):
    """A frozen mapping from keys to objects, in the order of the keys.

    A key that packs provide twice is nobody's, as no order of theirs would be the same everywhere;
    one of tactix's own stays tactix's. ``clashes``: these keys. Raises PluginError if tactix itself
    provides one twice.

    ``explain``: why a namespace's objects may be missing, and what to do about it; empty texts for
    no reason.
    """

    def __init__(
        self, kind: Kind, entries: Iterable[Entry[T]], explain: Explain = lambda namespace: ("", "")
    ) -> None:
        self.kind, self._explain = kind, explain
        found: dict[str, list[Entry[T]]] = {}
        for e in sorted(entries, key=lambda e: (e.key, e.namespace, e.provider)):
            found.setdefault(e.key, []).append(e)
        clashes = {key: Clash(kind.noun, tuple(es)) for key, es in found.items() if len(es) > 1}
        for c in clashes.values():
            if any(e.namespace == OWN for e in c.left_out):
                what = f"{kind.noun} {c.key!r} is provided twice"
                raise PluginError(
                    what,
                    why="both times by tactix",
                    do="Give each its own key or version",
                    key=c.key,
                )
        taken = ((k, clashes[k].kept if k in clashes else es[0]) for k, es in found.items())
        self.clashes: Mapping[str, Clash] = clashes
        self._entries: dict[str, Entry[T]] = {k: e for k, e in taken if e is not None}

    def __getitem__(self, key: str) -> T:
        return self.entry(key).object

    def get(
        self, key: str, default: Any = None
    ) -> Any:  # beside Mapping's, which would word an error for each miss
        found = self._entries.get(key)
        return default if found is None else found.object

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return f"<registry of {len(self)} {self.kind.noun}s>"

    def entry(self, key: str) -> Entry[T]:
        """The object of a key with its provider. Raises MissingKey, a PluginError that says what
        could be done.
        """
        found = self._entries.get(key)
        if found is None:
            raise self._missing(key, list(self._entries))
        return found

    def entries(self) -> tuple[Entry[T], ...]:
        return tuple(self._entries.values())

    def provider(self, key: str) -> Provider:
        """Who provides the object of a key. Raises MissingKey."""
        return self.entry(key).provider

    @property
    def digest(self) -> str:
        """sha256 over the sorted keys with the distribution and version of each."""
        rows = [(k, e.provider.dist, e.provider.version) for k, e in self._entries.items()]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def _missing(self, key: str, known: list[str]) -> MissingKey:
        if key in self.clashes:
            e = self.clashes[key].error()
            return MissingKey(e.what, why=e.why, do=e.do, key=key)
        why, do = self._explain(key.split(".")[0] if "." in key and ":" not in key else OWN)
        if why:
            return MissingKey(f"{self.kind.noun} {key!r} is unavailable", why=why, do=do, key=key)
        all_of_them = (
            f"There are: {', '.join(known[:20])}" if known else "Install a plugin that provides one"
        )
        do = did_you_mean(key, known, all_of_them, most=3)
        return MissingKey(f"there is no {self.kind.noun} {key!r}", do=do, key=key)
