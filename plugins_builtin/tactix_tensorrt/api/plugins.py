"""What programs subclass to write plugins. Methods that are not here a program must define."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.callbacks import Implemented, IVersionedInterface
from tactix_tensorrt.api.plugin_fields import (
    DynamicPluginTensorDesc,
    PluginFieldCollection,
    PluginTensorDesc,
)

if TYPE_CHECKING:
    from tactix_tensorrt.api.enums import PluginCapabilityType

Ranges = Sequence[DynamicPluginTensorDesc]


class IPluginV2(Implemented):
    """A plugin before version 3."""

    plugin_type = ""
    plugin_version = ""
    plugin_namespace = ""
    num_outputs = 1

    def destroy(self) -> None: ...


class IPluginV2Ext(IPluginV2): ...


class IPluginV2DynamicExt(IPluginV2Ext):
    """A plugin of dynamic shapes, before version 3."""

    def initialize(self) -> None: ...

    def terminate(self) -> None: ...

    def get_workspace_size(
        self, inputs: Sequence[PluginTensorDesc], outputs: Sequence[PluginTensorDesc]
    ) -> int:
        return 0


class IPluginCapability(IVersionedInterface): ...


class IPluginV3(IVersionedInterface):
    """A plugin; its capabilities may be itself."""

    _kind = "PLUGIN"

    def get_capability_interface(self, type: PluginCapabilityType) -> object:
        return self

    def destroy(self) -> None: ...


class IPluginV3OneCore(IPluginCapability):
    _kind = "PLUGIN_V3ONE_CORE"
    plugin_name = ""
    plugin_version = ""
    plugin_namespace = ""


class IPluginV3OneBuild(IPluginCapability):
    """What a build asks of a plugin."""

    _kind = "PLUGIN_V3ONE_BUILD"

    num_outputs = 1
    timing_cache_id = ""
    format_combination_limit = 100
    metadata_string = ""

    def get_valid_tactics(self) -> Sequence[int]:
        return []

    def get_workspace_size(self, inputs: Ranges, outputs: Ranges) -> int:
        return 0


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """What may have outputs in the memory of inputs."""

    _major = 2

    def get_aliased_input(self, output_index: int) -> int:
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    _kind = "PLUGIN_V3ONE_RUNTIME"


class IPluginV3QuickCore(IPluginCapability):
    plugin_name = ""
    plugin_version = ""
    plugin_namespace = ""


class IPluginV3QuickBuild(IPluginCapability):
    """As IPluginV3OneBuildV2, but that it lists what it takes, and is told ranks."""

    num_outputs = 1
    timing_cache_id = ""
    format_combination_limit = 100
    metadata_string = ""

    def get_valid_tactics(self) -> Sequence[int]:
        return []

    def get_aliased_input(self, output_index: int) -> int:
        return -1


class IPluginV3QuickRuntime(IPluginCapability): ...


class IPluginResource(IVersionedInterface):
    """What plugins share: the registry keeps a clone."""

    def clone(self) -> IPluginResource:
        return self

    def release(self) -> None: ...


class IPluginResourceContext(Implemented): ...


class IPluginCreatorInterface(IVersionedInterface):
    name = ""
    plugin_version = ""
    plugin_namespace = ""


class IPluginCreator(IPluginCreatorInterface):
    """Makes plugins before version 3: of fields, and of what they serialized."""

    field_names = PluginFieldCollection()

    def create_plugin(self, name: str, field_collection: PluginFieldCollection) -> IPluginV2 | None:
        """A plugin of these fields; subclasses make it."""
        return None


class IPluginCreatorV3One(IPluginCreatorInterface):
    _kind = "PLUGIN CREATOR_V3ONE"
    field_names = PluginFieldCollection()


class IPluginCreatorV3Quick(IPluginCreatorInterface):
    field_names = PluginFieldCollection()


class KernelLaunchParams:
    """How a kernel is started."""

    grid_x = grid_y = grid_z = 1
    block_x = block_y = block_z = 1
    shared_mem = 0
