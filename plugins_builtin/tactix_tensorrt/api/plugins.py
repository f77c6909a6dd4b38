"""What programs write plugins with: classes to subclass, and the registry of their creators.

Networks take no plugin yet: ``add_plugin*`` say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tactix_tensorrt.api.callbacks import Implemented, IVersionedInterface
from tactix_tensorrt.api.enums import DataType, PluginFieldType, TensorFormat
from tactix_tensorrt.api.logger import ILogger
from tactix_tensorrt.api.values import Dims
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix_tensorrt.api.values import Array


class PluginField:
    """A named value of a plugin."""

    def __init__(
        self,
        name: str = "",
        data: Array | bytes | None = None,
        type: PluginFieldType = PluginFieldType.UNKNOWN,
    ) -> None:
        self.name, self.data, self.type = name, data, type
        self.size = 0 if data is None else len(data)


class PluginFieldCollection(list[PluginField]):
    """Fields in order."""

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        super().__init__(fields)


class PluginTensorDesc:
    """What a plugin's input or output is."""

    dims = Dims()
    type = DataType.FLOAT
    format = TensorFormat.LINEAR
    scale = 1.0


class DynamicPluginTensorDesc:
    """That, with its range of sizes."""

    def __init__(self) -> None:
        self.desc, self.min, self.max, self.opt = PluginTensorDesc(), Dims(), Dims(), Dims()


class IDimensionExpr:
    """A size that shapes tell."""


class DimsExprs(list[IDimensionExpr]):
    """Sizes that shapes tell."""


class IExprBuilder:
    """Makes sizes of sizes."""

    def declare_size_tensor(
        self, output_index: int, opt: IDimensionExpr, upper: IDimensionExpr
    ) -> IDimensionExpr:
        raise NotImplementedError("plugins are not run yet")


class IPluginV2(Implemented):
    """A plugin before version 3."""

    plugin_type = ""
    plugin_version = ""
    plugin_namespace = ""
    num_outputs = 1


class IPluginV2Ext(IPluginV2): ...


class IPluginV2DynamicExt(IPluginV2Ext): ...


class IPluginCapability(IVersionedInterface): ...


class IPluginV3(IVersionedInterface): ...


class IPluginV3OneCore(IPluginCapability):
    plugin_name = ""
    plugin_version = ""
    plugin_namespace = ""


class IPluginV3OneBuild(IPluginCapability):
    num_outputs = 1
    timing_cache_id = ""


class IPluginV3OneBuildV2(IPluginV3OneBuild): ...


class IPluginV3OneRuntime(IPluginCapability): ...


class IPluginV3QuickCore(IPluginCapability): ...


class IPluginV3QuickBuild(IPluginCapability): ...


class IPluginV3QuickRuntime(IPluginCapability): ...


class IPluginResource(IVersionedInterface): ...


class IPluginResourceContext(Implemented): ...


class IPluginCreatorInterface(IVersionedInterface):
    name = ""
    plugin_version = ""
    plugin_namespace = ""


class IPluginCreator(IPluginCreatorInterface):
    field_names = PluginFieldCollection()

    def create_plugin(self, name: str, field_collection: PluginFieldCollection) -> IPluginV2 | None:
        """A plugin of these fields; subclasses make it."""
        return None


class IPluginCreatorV3One(IPluginCreatorInterface):
    field_names = PluginFieldCollection()


class IPluginCreatorV3Quick(IPluginCreatorInterface): ...


class KernelLaunchParams:
    """How a kernel is started."""

    grid_x = grid_y = grid_z = 1
    block_x = block_y = block_z = 1
    shared_mem = 0


@at_this_level
class IPluginRegistry:
    """Creators by name, version and namespace."""

    def __init__(self) -> None:
        self._creators: dict[tuple[str, str, str], IPluginCreatorInterface] = {}
        self._resources: dict[str, IPluginResource] = {}
        self.parent_search_enabled = True
        self.error_recorder: object = None

    def register_creator(
        self, creator: IPluginCreatorInterface, plugin_namespace: str = ""
    ) -> bool:
        """False if one of that name, version and namespace is there."""
        key = (creator.name, str(creator.plugin_version), plugin_namespace)
        return self._creators.setdefault(key, creator) is creator

    def deregister_creator(self, creator: IPluginCreatorInterface) -> bool:
        gone = [k for k, c in self._creators.items() if c is creator]
        for key in gone:
            del self._creators[key]
        return bool(gone)

    def get_creator(
        self, type: str, version: str, plugin_namespace: str = ""
    ) -> IPluginCreatorInterface | None:
        return self._creators.get((type, version, plugin_namespace))

    get_plugin_creator = get_creator

    @property
    def all_creators(self) -> list[IPluginCreatorInterface]:
        return list(self._creators.values())

    @property
    def plugin_creator_list(self) -> list[IPluginCreatorInterface]:
        return self.all_creators

    def acquire_plugin_resource(self, key: str, resource: IPluginResource) -> IPluginResource:
        """The resource of that key: the first one that was given."""
        return self._resources.setdefault(key, resource)

    def release_plugin_resource(self, key: str) -> bool:
        return self._resources.pop(key, None) is not None


_REGISTRY = IPluginRegistry()


def get_plugin_registry() -> IPluginRegistry:
    """The one of this process."""
    return _REGISTRY


def init_libnvinfer_plugins(logger: ILogger | None, namespace: str) -> bool:
    """Nothing has to be initialised: what tactix has, it finds."""
    return True
