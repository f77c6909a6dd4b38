"""Creators of plugins by name, version and namespace, and what plugins share."""

from __future__ import annotations

from dataclasses import dataclass

from tactix_tensorrt.api.enums import EngineCapability
from tactix_tensorrt.api.logger import IErrorRecorder, ILogger, Logger
from tactix_tensorrt.api.plugins import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginResource,
)
from tactix_tensorrt.api.sealed import Sealed
from tactix_tensorrt.levels import at_this_level


@dataclass
class _Shared:
    """A resource, and how often it was acquired."""

    resource: IPluginResource
    count: int = 0


@at_this_level
class IPluginRegistry(Sealed):
    """Creators by name, version and namespace."""

    parent_search_enabled = True
    error_recorder: IErrorRecorder | None = None

    def __init__(self) -> None:
        self._creators: dict[tuple[str, str, str], IPluginCreatorInterface] = {}
        self._resources: dict[str, _Shared] = {}

    def register_creator(
        self, creator: IPluginCreatorInterface, plugin_namespace: str = ""
    ) -> bool:
        """False if one of that name, version and namespace is there."""
        key = (creator.name, str(creator.plugin_version), plugin_namespace)
        taken = self._creators.setdefault(key, creator) is not creator
        if not taken:
            creator.plugin_namespace = plugin_namespace
        return not taken

    def deregister_creator(self, creator: IPluginCreatorInterface) -> bool:
        gone = [k for k, c in self._creators.items() if c is creator]
        for key in gone:
            del self._creators[key]
        return bool(gone)

    def get_creator(
        self, type: str, version: str, plugin_namespace: str = ""
    ) -> IPluginCreatorInterface | None:
        return self._creators.get((type, str(version), plugin_namespace))

    def get_plugin_creator(
        self, type: str, version: str, plugin_namespace: str = ""
    ) -> IPluginCreator | None:
        """One of plugins before version 3."""
        found = self.get_creator(type, version, plugin_namespace)
        return found if isinstance(found, IPluginCreator) else None

    @property
    def all_creators(self) -> list[IPluginCreatorInterface]:
        return list(self._creators.values())

    all_creators_recursive = all_creators

    @property
    def plugin_creator_list(self) -> list[IPluginCreator]:
        """Those of plugins before version 3."""
        return [c for c in self.all_creators if isinstance(c, IPluginCreator)]

    def load_library(self, plugin_path: str) -> None:
        """None: libraries of C++ are not loaded, which is printed as a logger does it."""
        do = "Write the plugin in Python (IPluginV3), or make a pack of it (`tactix-sdk new`)"
        Logger().log(Logger.ERROR, f"{plugin_path}: no library of TensorRT's is loaded. {do}")

    def deregister_library(self, handle: object) -> None:
        """Nothing: there is none."""

    def acquire_plugin_resource(self, key: str, resource: IPluginResource) -> IPluginResource:
        """The resource of that key: a clone of the first one that was given."""
        if key not in self._resources:
            self._resources[key] = _Shared(resource.clone())
        self._resources[key].count += 1
        return self._resources[key].resource

    def release_plugin_resource(self, key: str) -> bool:
        """Whether it was there; released as often as acquired, it is gone."""
        shared = self._resources.get(key)
        if shared is None:
            return False
        shared.count -= 1
        if not shared.count:
            del self._resources[key]
            shared.resource.release()
        return True


_REGISTRY = IPluginRegistry()


def get_plugin_registry() -> IPluginRegistry:
    """The one of this process."""
    return _REGISTRY


def get_builder_plugin_registry(engine_capability: EngineCapability) -> IPluginRegistry | None:
    """That of builds: the one of this process. None where no engines of that capability are."""
    return _REGISTRY if engine_capability is EngineCapability.STANDARD else None


def init_libnvinfer_plugins(logger: ILogger | None, namespace: str) -> bool:
    """Registers creators of TensorRT's own plugins that tactix has, unless they are there."""
    from tactix_tensorrt.api.built_in_plugins import creators

    for creator in creators():
        _REGISTRY.register_creator(creator, namespace)
    return True
