"""The hooks that a plugin may implement, one class per entry-point group.

Every hook takes no argument and returns a list of frozen objects that have a ``key``. It is called
at most once per session, when something first needs what it gives; so heavy imports belong into the
hook. The order of the list means nothing. Wrappers are refused: no plugin changes what another
gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pluggy

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
    from tactix.contracts.rule import Rule
    from tactix.contracts.tactic import Tactic
    from tactix.contracts.tool import Tool
    from tactix.contracts.trust import TrustStore

API = (1, 2)
"""Major and minor version of this file. A plugin's ``TACTIX_API`` names the lowest minor that it
needs.
"""

BUILD_GROUP = f"tactix.build.v{API[0]}"
RUNTIME_GROUP = f"tactix.runtime.v{API[0]}"

hookspec = pluggy.HookspecMarker("tactix")
hookimpl = pluggy.HookimplMarker("tactix")


class RuntimeHooks(Protocol):
    """The entry-point group ``tactix.runtime.v1``: what running a plan may need."""

    @hookspec
    def tactix_layers(self) -> list[Layer]:
        """Layers, keys ``namespace.Name@version``: what operations mean. A pack gives them in both
        groups if its plans may run on the reference."""

    @hookspec
    def tactix_launchers(self) -> list[Launcher]:
        """Launchers, keys ``namespace.name@version``: each runs one kind of kernel artifact."""

    @hookspec
    def tactix_devices(self) -> list[Device]:
        """Devices, keys ``namespace.name@version``, also such as are not present: ``available``
        tells.
        """

    @hookspec
    def tactix_allocators(self) -> list[Allocator]:
        """Allocators; the key is a name, bare or ``namespace.name``."""

    @hookspec
    def tactix_flavours(self) -> list[Flavour[Any]]:
        """Runtime flavours; the key is a name, bare or ``namespace.name``."""

    @hookspec
    def tactix_trust_stores(self) -> list[TrustStore]:
        """Trust stores; the key is a name, bare or ``namespace.name``. That of a pack is not asked
        until the user enables it."""

    @hookspec
    def tactix_presenters(self) -> list[Presenter]:
        """Presenters, keys ``namespace.name``: pictures of engines and networks for notebooks. That
        of a pack is not asked until the user enables it; tactix's own are asked first. Since 1.2.
        """


class BuildHooks(Protocol):
    """The entry-point group ``tactix.build.v1``: what making a plan may need. Sessions of it have
    the other, too.
    """

    @hookspec
    def tactix_layers(self) -> list[Layer]:
        """Layers, keys ``namespace.Name@version``: what operations mean. The same objects in both
        groups count once.
        """

    @hookspec
    def tactix_importers(self) -> list[Importer]:
        """Importers, keys ``namespace.name@version``: one per model format. One of a format that
        tactix knows is disabled until the user enables the pack; tactix's own are asked first."""

    @hookspec
    def tactix_converters(self) -> list[Converter]:
        """Converters, keys ``format:domain::Op@since``: one per operator of a model format."""

    @hookspec
    def tactix_rules(self) -> list[Rule]:
        """Rewrite rules, keys ``namespace.name``. One whose pattern names a layer of another
        namespace or any layer at all is disabled until the user enables the pack."""

    @hookspec
    def tactix_tactics(self) -> list[Tactic]:
        """Tactics, keys ``namespace.name@version``. One that implements a layer of another
        namespace, ``pointwise`` or ``*`` is disabled until the user enables the pack."""

    @hookspec
    def tactix_compilers(self) -> list[Compiler]:
        """Compilers, keys ``namespace.name@version``: each takes the sources of one language. One
        of a language that tactix compiles is disabled until the user enables the pack; tactix's own
        come first.
        """

    @hookspec
    def tactix_calibrators(self) -> list[Calibrator]:
        """Calibrators; the key is a name, bare or ``namespace.name``."""

    @hookspec
    def tactix_build_stages(self) -> list[BuildStage[Any, Any, Any, Any]]:
        """Build stages, keys ``namespace.name``: what flags and options add to a build. That of a
        pack is not asked until the user enables it; tactix's own are asked first. Since 1.1."""

    @hookspec
    def tactix_tools(self) -> list[Tool]:
        """Subcommands of the command line; the key is the bare name."""


class AllHooks(BuildHooks, RuntimeHooks, Protocol):
    """What a session of the group ``tactix.build.v1`` collects."""


def hooks_of(spec: type) -> frozenset[str]:
    """Names of the hooks in one of the classes above."""
    return frozenset(n for n in dir(spec) if n.startswith("tactix_"))


HOOKS = {"build": hooks_of(BuildHooks), "runtime": hooks_of(RuntimeHooks)}
