"""A pack as one object, which its entry points name: ``acme = "acme_blas:pack"``.

    pack = BasePack("acme")

    @pack.launcher
    def launchers() -> list[Launcher]:
        from acme_blas.launcher import BlasLauncher
        return [BlasLauncher()]

The namespace stands there once. The object has a hook for each kind of thing that it was given,
``tactix_launchers`` and so on, as a module with ``@hookimpl`` has: an entry point of the group
``tactix.runtime.v1`` takes what running needs from it, one of ``tactix.build.v1`` the rest. What
makes layers and tactics of functions is in ``tactix_sdk.Pack``.

Every process that looks for packs imports this, so all that only objects need is imported when one
is given.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from tactix.base.errors import PluginError, TactixError
from tactix.plugins.names import check_namespace

if TYPE_CHECKING:
    from typing import TypeAlias

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
    from tactix.contracts.rule import Rule
    from tactix.contracts.tactic import Tactic
    from tactix.contracts.tool import Tool
    from tactix.contracts.trust import TrustStore

    Thing = TypeVar("Thing")
    Given: TypeAlias = Thing | Callable[[], Thing | Sequence[Thing]]
    GivenLayer = TypeVar("GivenLayer", bound=Given[Layer])
    GivenRule = TypeVar("GivenRule", bound=Given[Rule])
    GivenTactic = TypeVar("GivenTactic", bound=Given[Tactic])
    GivenConverter = TypeVar("GivenConverter", bound=Given[Converter])
    GivenImporter = TypeVar("GivenImporter", bound=Given[Importer])
    GivenCompiler = TypeVar("GivenCompiler", bound=Given[Compiler])
    GivenCalibrator = TypeVar("GivenCalibrator", bound=Given[Calibrator])
    GivenStage = TypeVar("GivenStage", bound=Given[BuildStage[Any, Any, Any, Any]])
    GivenLauncher = TypeVar("GivenLauncher", bound=Given[Launcher])
    GivenDevice = TypeVar("GivenDevice", bound=Given[Device])
    GivenAllocator = TypeVar("GivenAllocator", bound=Given[Allocator])
    GivenFlavour = TypeVar("GivenFlavour", bound=Given[Flavour[Any]])
    GivenStore = TypeVar("GivenStore", bound=Given[TrustStore])
    GivenPresenter = TypeVar("GivenPresenter", bound=Given[Presenter])

AnyGiven = TypeVar("AnyGiven")

MARK = "tactix_impl"
"""Where ``hookimpl`` notes that a function is a hook, and with which options. Written here without
pluggy, which is half of the time that importing a built-in pack takes, and which no lean runtime
has.
"""


class BasePack:
    """What a pack provides. Raises ConfigError for what is no namespace.

    Methods take an object, or a function without parameters that gives one or a list when a session
    first needs them: what it imports is not imported before, and each session has its own. Each
    gives back what it was given, so it may stand above a function. They raise PluginError, or
    InvalidArgument, with the author's file and line for what is no such object, a key of another
    namespace, and a key that the pack has already.
    """

    _modules = frozenset({__name__})
    """Those whose lines are not the author's."""

    def __init__(self, namespace: str) -> None:
        with at_line(self._author()):
            self.TACTIX_NAMESPACE = check_namespace(namespace, own=True)
        self._given: dict[str, list[object]] = {}
        self._hooks: dict[str, Callable[[], list[object]]] = {}
        self._places: dict[tuple[str, str], str] = {}

    def layer(self, given: GivenLayer, /) -> GivenLayer:
        """See ``Layer``."""
        return self._register("layers", given, self._author())

    def rule(self, given: GivenRule, /) -> GivenRule:
        """A ``Rule``; one whose key is a bare name gets the namespace in front of it."""
        where = self._author()
        return self._register("rules", _in_namespace(given, self.TACTIX_NAMESPACE), where)

    def tactic(self, given: GivenTactic, /) -> GivenTactic:
        """An object of a class of one's own: see ``Tactic``."""
        return self._register("tactics", given, self._author())

    def converter(self, given: GivenConverter, /) -> GivenConverter:
        """A ``Converter`` of whatever format."""
        return self._register("converters", given, self._author())

    def importer(self, given: GivenImporter, /) -> GivenImporter:
        """See ``Importer``."""
        return self._register("importers", given, self._author())

    def compiler(self, given: GivenCompiler, /) -> GivenCompiler:
        """See ``Compiler``."""
        return self._register("compilers", given, self._author())

    def calibrator(self, given: GivenCalibrator, /) -> GivenCalibrator:
        """See ``Calibrator``."""
        return self._register("calibrators", given, self._author())

    def build_stage(self, given: GivenStage, /) -> GivenStage:
        """See ``BuildStage``."""
        return self._register("build_stages", given, self._author())

    def launcher(self, given: GivenLauncher, /) -> GivenLauncher:
        """See ``Launcher``."""
        return self._register("launchers", given, self._author())

    def device(self, given: GivenDevice, /) -> GivenDevice:
        """See ``Device``."""
        return self._register("devices", given, self._author())

    def allocator(self, given: GivenAllocator, /) -> GivenAllocator:
        """See ``Allocator``."""
        return self._register("allocators", given, self._author())

    def flavour(self, given: GivenFlavour, /) -> GivenFlavour:
        """See ``Flavour``."""
        return self._register("flavours", given, self._author())

    def trust_store(self, given: GivenStore, /) -> GivenStore:
        """See ``TrustStore``."""
        return self._register("trust_stores", given, self._author())

    def presenter(self, given: GivenPresenter, /) -> GivenPresenter:
        """See ``Presenter``."""
        return self._register("presenters", given, self._author())

    def tool(self, given: Tool | Callable[[], object], /) -> Tool:
        """A subcommand of a function that gives a click command when it is used. It is called as
        the function; the docstring is its line of help. Or a ``Tool``. Raises PluginError for a
        function without a docstring.
        """
        where = self._author()
        with at_line(where):
            made = _tool(given)
        return self._register("tools", made, where)

    # -- beneath ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<pack {self.TACTIX_NAMESPACE!r}>"

    def _author(self) -> str:
        """File and line from where the pack was called."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals.get("__name__") in self._modules:
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _register(self, kind: str, given: AnyGiven, where: str) -> AnyGiven:
        with at_line(where):
            if not isinstance(given, FunctionType):
                self._claim(kind, given, where)
            if kind not in self._given:
                if hasattr(self, f"tactix_{kind}"):
                    raise self._meeting(kind)
                self._given[kind] = []
                self._hooks[kind] = self._hook(kind)
                setattr(self, f"tactix_{kind}", self._hooks[kind])
        self._given[kind].append(given)
        return given

    def check(self) -> None:
        """Raises PluginError where a hook was put in the place of the pack's own."""
        for kind, hook in self._hooks.items():
            if vars(self).get(f"tactix_{kind}") is not hook:
                raise self._meeting(kind)

    def _meeting(self, kind: str) -> PluginError:
        return PluginError(
            f"{self!r} has a hook tactix_{kind} beside what it was given by its methods",
            why="one would take the place of the other",
            do="Give all of it to the pack's methods, and set no hook on the pack",
        )

    def _claim(self, kind: str, given: object, where: str) -> None:
        """Raises PluginError for what is none of that kind, and for a key that is there already."""
        from tactix.plugins.identity import Provider
        from tactix.plugins.registry import KINDS

        (entry,) = KINDS[kind].entries(self.TACTIX_NAMESPACE, Provider(), [given])
        if before := self._places.get((kind, entry.key)):
            raise PluginError(
                f"{KINDS[kind].noun} {entry.key!r} is there already",
                why=f"given at {before}",
                do="Give each its own name or version",
                key=entry.key,
            )
        self._places[kind, entry.key] = where

    def _hook(self, kind: str) -> Callable[[], list[object]]:
        """What a session calls; there is one for what the pack was given alone, as a hook belongs
        to an entry-point group.
        """

        def hook() -> list[object]:
            found = [o for given in self._given[kind] for o in _objects(given)]
            if kind == "rules":
                return [_in_namespace(o, self.TACTIX_NAMESPACE) for o in found]
            return found

        setattr(hook, MARK, {})
        return hook


def plugin_in(target: object) -> object:
    """The plugin that a module or object is. A module that has a pack stands for it: hosts and
    entry points that name modules need not know how these are written.

    Raises PluginError for a module with several packs or with hooks beside a pack, and for a pack
    on which a hook was put: part of what they give would be lost.
    """
    plugin = _pack_in(target) if isinstance(target, ModuleType) else target
    if isinstance(plugin, BasePack):
        plugin.check()
    return plugin


def _pack_in(module: ModuleType) -> object:
    """Its pack, or the module where it has none. Raises PluginError."""
    things = vars(module)
    packs = {id(o): (name, o) for name, o in things.items() if isinstance(o, BasePack)}
    hooks = [n for n, o in things.items() if isinstance(o, FunctionType) and MARK in vars(o)]
    if not packs:
        return module
    name, pack = next(iter(packs.values()))
    if hooks:
        raise PluginError(
            f"it has both the pack {name!r} and bare hooks: {', '.join(sorted(hooks))}",
            who=f"module {module.__name__!r}",
            why="a plugin is the one or the other, and what the other gives would be lost",
            do=f"Give what the hooks return to the methods of {name!r}, or move them to a module "
            "with an entry point of its own",
        )
    if len(packs) > 1:
        raise PluginError(
            f"it has several packs: {', '.join(n for n, _ in packs.values())}",
            who=f"module {module.__name__!r}",
            why="none of them is more the plugin than another",
            do=f"Name one, as in {module.__name__}:{name}",
        )
    return pack


@contextlib.contextmanager
def at_line(where: str) -> Iterator[None]:
    """Errors say where in the author's code they come from."""
    try:
        yield
    except TactixError as e:
        e.who = ": ".join(filter(None, (where, e.who)))
        raise


def _objects(given: object) -> Sequence[object]:
    """What was given, or what the function gives that was."""
    found = given() if isinstance(given, FunctionType) else given
    return found if isinstance(found, (list, tuple)) else [found]


def _in_namespace(thing: AnyGiven, namespace: str) -> AnyGiven:
    """A rule with the namespace in its key; anything else as it is."""
    if isinstance(thing, FunctionType):
        return thing
    import dataclasses

    from tactix.contracts.rule import Rule

    if isinstance(thing, Rule) and "." not in thing.key:
        return dataclasses.replace(thing, key=f"{namespace}.{thing.key}")
    return thing


def _tool(given: Tool | Callable[[], object]) -> Tool:
    """Raises PluginError for a function without a docstring, and for what is neither."""
    import inspect

    from tactix.contracts.tool import Tool

    if isinstance(given, Tool):
        return given
    if not isinstance(given, FunctionType):
        do = "Write @pack.tool above a function that gives a click command"
        raise PluginError(f"{given!r:.80} is no tool", why="it is no function", do=do)
    told = inspect.getdoc(given)
    if not told and sys.flags.optimize < 2:  # python -OO has taken it away
        who = f"tool {given.__name__!r}"
        raise PluginError("it has no docstring", who=who, do="Say in one line what it does")
    return Tool(given.__name__, told or "", given)
