"""A program's plugin as a build and a run see it, whichever of TensorRT's interfaces it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

from tactix_tensorrt.api.enums import DataType, PluginCapabilityType, TensorFormat
from tactix_tensorrt.api.plugin_fields import (
    DynamicPluginTensorDesc,
    PluginField,
    PluginTensorDesc,
    described,
)
from tactix_tensorrt.api.plugin_sizes import DimsExprs, IExprBuilder
from tactix_tensorrt.api.plugins import (
    IPluginResourceContext,
    IPluginV2DynamicExt,
    IPluginV3,
    IPluginV3QuickBuild,
)
from tactix_tensorrt.plugin_steps.calling import (
    PluginFailure,
    called,
    count,
    dtypes,
    number,
    several,
)
from tactix_tensorrt.plugin_steps.identity import Identity, Saved

Descs = Sequence[PluginTensorDesc]
Ranges = Sequence[DynamicPluginTensorDesc]


@dataclass(frozen=True)
class Addresses:
    """Where a run reads and writes. ``stream``: a handle, 0 on a processor."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    workspace: int
    stream: int


class PluginView(ABC):
    """Methods raise PluginFailure, which names the plugin and its method. ``SIZES``: the one that
    gives the sizes of outputs.
    """

    SIZES = "get_output_shapes"

    def __init__(self, plugin: object) -> None:
        self.plugin = plugin
        self.who = str(self.identity)

    # -- what it is -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def identity(self) -> Identity: ...

    @property
    @abstractmethod
    def num_outputs(self) -> int: ...

    @property
    def kernels(self) -> bool:
        """Whether a build compiles its kernels, and a run does not need it."""
        return False

    def clone(self) -> Self:
        """Another one of the same state."""
        copy = called(self.who, self.plugin, "clone")
        if copy is None:
            raise PluginFailure("its clone gave None", who=self.who)
        return type(self)(copy)

    # -- of a build -------------------------------------------------------------------------------

    @abstractmethod
    def output_types(self, types: Sequence[DataType], ranks: Sequence[int]) -> list[DataType]: ...

    @abstractmethod
    def output_sizes(
        self, inputs: Sequence[DimsExprs], shapes: Sequence[DimsExprs], sizes: IExprBuilder
    ) -> list[DimsExprs]: ...

    @abstractmethod
    def takes(self, ranges: Ranges, inputs: int) -> bool:
        """Whether it takes tensors of these dtypes and formats: inputs first."""

    @abstractmethod
    def configure(self, inputs: Ranges, outputs: Ranges) -> None: ...

    def tactics(self) -> list[int]:
        return []

    @property
    def timing_id(self) -> str:
        """What its timings are kept under; empty where they are not."""
        return ""

    @abstractmethod
    def workspace(self, inputs: Ranges, outputs: Ranges) -> int: ...

    def aliased_input(self, output: int) -> int:
        """Whose memory an output has; -1 for its own."""
        return -1

    @abstractmethod
    def saved(self) -> Saved: ...

    # -- of a run ---------------------------------------------------------------------------------

    def attached(self) -> Self:
        """The one of a context."""
        return self.clone()

    @abstractmethod
    def choose(self, tactic: int) -> None:
        """Run by this tactic from now on, 0 for the one that there is."""

    @abstractmethod
    def reshape(self, inputs: Descs, outputs: Descs) -> None: ...

    def enqueue(self, inputs: Descs, outputs: Descs, at: Addresses) -> None:
        places = (list(at.inputs), list(at.outputs), at.workspace, at.stream)
        called(self.who, self.plugin, "enqueue", list(inputs), list(outputs), *places)

    def end(self) -> None:
        """It is not needed any more."""
        called(self.who, self.plugin, "destroy")


def _static(ranges: Ranges) -> list[PluginTensorDesc]:
    """At their largest."""
    out = []
    for r in ranges:
        made = described(r.max, r.desc.type)
        made.format = r.desc.format
        out.append(made)
    return out


class ViewV2(PluginView):
    """IPluginV2DynamicExt."""

    SIZES = "get_output_dimensions"

    def _call(self, method: str, *args: object) -> object:
        return called(self.who, self.plugin, method, *args)

    @property
    def _own(self) -> IPluginV2DynamicExt:
        return cast(IPluginV2DynamicExt, self.plugin)

    @property
    def identity(self) -> Identity:
        own = self._own
        return Identity(own.plugin_type, str(own.plugin_version), own.plugin_namespace)

    @property
    def num_outputs(self) -> int:
        return self._own.num_outputs

    def output_types(self, types: Sequence[DataType], ranks: Sequence[int]) -> list[DataType]:
        found = [self._call("get_output_datatype", i, list(types)) for i in range(self.num_outputs)]
        return dtypes(self.who, "get_output_datatype", found)

    def output_sizes(
        self, inputs: Sequence[DimsExprs], shapes: Sequence[DimsExprs], sizes: IExprBuilder
    ) -> list[DimsExprs]:
        every = range(self.num_outputs)
        found = [self._call("get_output_dimensions", i, list(inputs), sizes) for i in every]
        return cast("list[DimsExprs]", found)

    def takes(self, ranges: Ranges, inputs: int) -> bool:
        descs = [r.desc for r in ranges]
        every = range(len(descs))
        return all(self._call("supports_format_combination", i, descs, inputs) for i in every)

    def configure(self, inputs: Ranges, outputs: Ranges) -> None:
        self._call("configure_plugin", list(inputs), list(outputs))

    def workspace(self, inputs: Ranges, outputs: Ranges) -> int:
        found = self._call("get_workspace_size", _static(inputs), _static(outputs))
        return count(self.who, "get_workspace_size", found)

    def saved(self) -> Saved:
        data = self._call("serialize")
        content = data.encode() if isinstance(data, str) else bytes(cast(bytes, data))
        return Saved(self.identity, (("", 0, content),))

    def attached(self) -> ViewV2:
        out = self.clone()
        out._call("initialize")
        return out

    def choose(self, tactic: int) -> None:
        """There is one."""

    def reshape(self, inputs: Descs, outputs: Descs) -> None:
        self._call("configure_plugin", _fixed(inputs), _fixed(outputs))

    def end(self) -> None:
        self._call("terminate")
        self._call("destroy")


def _fixed(descs: Descs) -> list[DynamicPluginTensorDesc]:
    """Ranges of one shape."""
    out = []
    for desc in descs:
        made = DynamicPluginTensorDesc()
        made.desc, made.min, made.opt, made.max = desc, desc.dims, desc.dims, desc.dims
        out.append(made)
    return out


class ViewV3(PluginView):
    """IPluginV3, whose capabilities are asked for as they are needed."""

    def __init__(self, plugin: object) -> None:
        self._parts: dict[PluginCapabilityType, object] = {}
        self.who = type(plugin).__name__
        super().__init__(plugin)

    def _part(self, kind: PluginCapabilityType) -> object:
        if kind not in self._parts:
            found = called(self.who, self.plugin, "get_capability_interface", kind)
            if found is None:
                raise PluginFailure(f"it has no capability {kind}", who=self.who)
            self._parts[kind] = found
        return self._parts[kind]

    def _build(self, method: str, *args: object) -> object:
        return called(self.who, self._part(PluginCapabilityType.BUILD), method, *args)

    def _run(self, method: str, *args: object) -> object:
        return called(self.who, self._part(PluginCapabilityType.RUNTIME), method, *args)

    @property
    def identity(self) -> Identity:
        core = self._part(PluginCapabilityType.CORE)
        names = ("plugin_name", "plugin_version", "plugin_namespace")
        return Identity(*(str(getattr(core, name, "")) for name in names))

    @property
    def num_outputs(self) -> int:
        found = getattr(self._part(PluginCapabilityType.BUILD), "num_outputs", 1)
        return number(self.who, "num_outputs", found)

    def output_types(self, types: Sequence[DataType], ranks: Sequence[int]) -> list[DataType]:
        found = self._build("get_output_data_types", list(types))
        listed = several(self.who, "get_output_data_types", found, self.num_outputs)
        return dtypes(self.who, "get_output_data_types", listed)

    def output_sizes(
        self, inputs: Sequence[DimsExprs], shapes: Sequence[DimsExprs], sizes: IExprBuilder
    ) -> list[DimsExprs]:
        found = self._build("get_output_shapes", list(inputs), list(shapes), sizes)
        listed = several(self.who, "get_output_shapes", found, self.num_outputs)
        return cast("list[DimsExprs]", listed)

    def takes(self, ranges: Ranges, inputs: int) -> bool:
        given, every = list(ranges), range(len(ranges))
        return all(self._build("supports_format_combination", i, given, inputs) for i in every)

    def configure(self, inputs: Ranges, outputs: Ranges) -> None:
        self._build("configure_plugin", list(inputs), list(outputs))

    def tactics(self) -> list[int]:
        found = several(self.who, "get_valid_tactics", self._build("get_valid_tactics"))
        return [count(self.who, "get_valid_tactics", t) for t in found]

    @property
    def timing_id(self) -> str:
        return str(getattr(self._part(PluginCapabilityType.BUILD), "timing_cache_id", "") or "")

    def workspace(self, inputs: Ranges, outputs: Ranges) -> int:
        found = self._build("get_workspace_size", list(inputs), list(outputs))
        return count(self.who, "get_workspace_size", found)

    def aliased_input(self, output: int) -> int:
        build = self._part(PluginCapabilityType.BUILD)
        if not hasattr(build, "get_aliased_input"):
            return -1
        found = self._build("get_aliased_input", output)
        return number(self.who, "get_aliased_input", found)

    def saved(self) -> Saved:
        found = self._run("get_fields_to_serialize")
        listed = several(self.who, "get_fields_to_serialize", found)
        return Saved.of_fields(self.identity, cast("list[PluginField]", listed))

    def attached(self) -> Self:
        found = self._run("attach_to_context", IPluginResourceContext())
        if found is None:
            raise PluginFailure("its attach_to_context gave None", who=self.who)
        return type(self)(found)

    def choose(self, tactic: int) -> None:
        self._run("set_tactic", tactic)

    def reshape(self, inputs: Descs, outputs: Descs) -> None:
        self._run("on_shape_change", list(inputs), list(outputs))

    def enqueue(self, inputs: Descs, outputs: Descs, at: Addresses) -> None:
        places = (list(at.inputs), list(at.outputs), at.workspace, at.stream)
        self._run("enqueue", list(inputs), list(outputs), *places)


class ViewQuick(ViewV3):
    """IPluginV3 of the quick capabilities: it lists combinations, and is told strides."""

    @property
    def kernels(self) -> bool:
        return bool(getattr(self.plugin, "kernels", False))

    def output_types(self, types: Sequence[DataType], ranks: Sequence[int]) -> list[DataType]:
        found = self._build("get_output_data_types", list(types), list(ranks))
        listed = several(self.who, "get_output_data_types", found, self.num_outputs)
        return dtypes(self.who, "get_output_data_types", listed)

    def takes(self, ranges: Ranges, inputs: int) -> bool:
        found = self._build("get_supported_format_combinations", list(ranges), inputs)
        descs = cast(
            "list[PluginTensorDesc]", several(self.who, "get_supported_format_combinations", found)
        )
        count = len(ranges)
        rows = (descs[i : i + count] for i in range(0, len(descs), count))
        return any(all(map(_same, row, ranges)) for row in rows)

    def workspace(self, inputs: Ranges, outputs: Ranges) -> int:
        return 0

    def reshape(self, inputs: Descs, outputs: Descs) -> None:
        """It is told shapes in each run."""

    def enqueue(self, inputs: Descs, outputs: Descs, at: Addresses) -> None:
        strides = [[_strides(d) for d in descs] for descs in (inputs, outputs)]
        places = (list(at.inputs), list(at.outputs), *strides, at.stream)
        self._run("enqueue", list(inputs), list(outputs), *places)


def _same(offered: PluginTensorDesc, wanted: DynamicPluginTensorDesc) -> bool:
    return offered.type is wanted.desc.type and offered.format is TensorFormat.LINEAR


def _strides(desc: PluginTensorDesc) -> tuple[int, ...]:
    """Elements from one to the next along each axis."""
    out: list[int] = []
    step = 1
    for n in reversed(desc.dims):
        out.insert(0, step)
        step *= n
    return tuple(out)


def view_of(plugin: object) -> PluginView:
    """Raises PluginFailure for what is no plugin."""
    if isinstance(plugin, IPluginV2DynamicExt):
        return ViewV2(plugin)
    if not isinstance(plugin, IPluginV3):
        do = "Give an object of a class of IPluginV3 or IPluginV2DynamicExt"
        raise PluginFailure(f"{type(plugin).__name__} is no plugin", do=do)
    view = ViewV3(plugin)
    build = view._part(PluginCapabilityType.BUILD)
    return ViewQuick(plugin) if isinstance(build, IPluginV3QuickBuild) else view
