"""A quick plugin as a plugin of version 3: its functions behind TensorRT's interface."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import DataType, TensorFormat
from tactix_tensorrt.api.plugin_fields import (
    DynamicPluginTensorDesc,
    PluginFieldCollection,
    PluginTensorDesc,
)
from tactix_tensorrt.api.plugin_sizes import DimsExprs, IDimensionExpr, IExprBuilder
from tactix_tensorrt.api.plugins import (
    IPluginV3,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from tactix_tensorrt.quick.fields import fields_of
from tactix_tensorrt.quick.kernels import KernelLaunchParams
from tactix_tensorrt.quick.sizes import ShapeExpr, ShapeExprs, SymIntExpr
from tactix_tensorrt.quick.tensors import SizeTensorDesc, Tensor, TensorDesc
from tactix_tensorrt.quick.tuning import AutoTuneCombination, Combination

if TYPE_CHECKING:
    from tactix_tensorrt.quick.definitions import PluginDef, Task


class QuickPlugin(IPluginV3, IPluginV3QuickCore, IPluginV3QuickBuild, IPluginV3QuickRuntime):
    """``attributes``: values by name; ``kernels``: whether its kernels are compiled in a build."""

    plugin_version = "1"
    kernels = False

    def __init__(self, definition: PluginDef, attributes: Mapping[str, object]) -> None:
        super().__init__()
        self.definition, self.attributes = definition, dict(attributes)
        self.plugin_name, self.plugin_namespace = definition.name, definition.namespace
        self.num_outputs = definition.signature.outputs
        self._inputs: list[TensorDesc] = []
        self._outputs: list[TensorDesc] = []
        self._tactics: dict[tuple[DataType, ...], set[int]] = {}
        self._types: tuple[DataType, ...] = ()
        self._tactic = 0

    def clone(self) -> QuickPlugin:
        return copy.copy(self)

    def attach_to_context(self, context: object) -> QuickPlugin:
        return self.clone()

    def _task(self) -> Task:
        """What runs. Raises ValueError where it was not defined."""
        found = self.definition.impl
        if found is None:
            raise ValueError(f"{self.definition.plugin_id} has no function of tensorrt.plugin.impl")
        return found

    # -- what it is -------------------------------------------------------------------------------

    def _describe(self, types: Sequence[DataType], shapes: Sequence[ShapeExprs]) -> None:
        """Ask for the outputs of inputs. Raises ValueError for another number of them."""
        self._inputs = [TensorDesc(s, t) for s, t in zip(shapes, types, strict=True)]
        for desc in self._inputs:
            desc.sealed()
        made = self.definition.register(*self._inputs, **self.attributes)
        self._outputs = list(made) if isinstance(made, tuple) else [made]
        if len(self._outputs) != self.num_outputs:
            raise ValueError(f"it gave {len(self._outputs)} outputs, declared {self.num_outputs}")

    def get_output_data_types(
        self, types: Sequence[DataType], ranks: Sequence[int]
    ) -> list[DataType]:
        fake = [ShapeExprs.from_tuple([ShapeExpr()] * rank) for rank in ranks]
        self._describe(types, fake)
        return [desc.dtype or DataType.FLOAT for desc in self._outputs]

    def get_output_shapes(
        self, inputs: Sequence[DimsExprs], shape_inputs: Sequence[DimsExprs], sizes: IExprBuilder
    ) -> list[DimsExprs]:
        if shape_inputs:
            raise ValueError("shape inputs are not supported by tensorrt.plugin")
        types = [desc.dtype or DataType.FLOAT for desc in self._inputs]
        self._describe(types, [ShapeExprs.from_tuple(map(ShapeExpr, x)) for x in inputs])
        for i, desc in enumerate(self._outputs):
            if isinstance(desc, SizeTensorDesc):
                desc.index = i
                bounds = (_expr(desc.opt), _expr(desc.upper_bound))
                desc.expr().size = sizes.declare_size_tensor(i, *bounds).size
        return [DimsExprs([_expr(e) for e in _sizes(desc)]) for desc in self._outputs]

    def get_aliased_input(self, output_index: int) -> int:
        found = self._outputs[output_index].get_aliased()
        places = [i for i, desc in enumerate(self._inputs) if desc is found]
        return places[0] if places else -1

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """The attributes that a run needs."""
        kept = {k: v for k, v in self.attributes.items() if k in self._task().attributes}
        return fields_of(self.definition.signature.attributes, kept)

    # -- how it is computed -----------------------------------------------------------------------

    def get_supported_format_combinations(
        self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int
    ) -> list[PluginTensorDesc]:
        for desc, told in zip((*self._inputs, *self._outputs), in_out, strict=True):
            desc.tell(told)
        rows = self._combinations()
        self._tactics = {}
        for row in rows:
            if all(f is TensorFormat.LINEAR for f in row.formats):
                self._tactics.setdefault(row.types, set()).update(row.tactics)
        pairs = [pair for row in rows for pair in zip(row.types, row.formats, strict=True)]
        return [_desc(*pair) for pair in pairs]

    def _combinations(self) -> list[Combination]:
        """All that it was written for; the network's own dtypes where that is not said."""
        descs = (*self._inputs, *self._outputs)
        autotune = self.definition.autotune
        if autotune is None:
            types = tuple(desc.dtype or DataType.FLOAT for desc in descs)
            return [Combination(types, (TensorFormat.LINEAR,) * len(types))]
        own = [self.attributes[name] for name in autotune.attributes]
        found: list[AutoTuneCombination] = autotune.function(*self._inputs, *own, self._outputs)
        return [row for choice in found for row in choice.combinations()]

    def configure_plugin(
        self, inputs: Sequence[DynamicPluginTensorDesc], outputs: Sequence[DynamicPluginTensorDesc]
    ) -> None:
        self._types = tuple(d.desc.type for d in (*inputs, *outputs))

    def get_valid_tactics(self) -> list[int]:
        return sorted(self._tactics.get(self._types, ()))

    def set_tactic(self, tactic: int) -> None:
        self._tactic = tactic

    def enqueue(
        self,
        given: Sequence[PluginTensorDesc],
        made: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        in_strides: Sequence[tuple[int, ...]],
        out_strides: Sequence[tuple[int, ...]],
        stream: int,
    ) -> None:
        task = self._task()
        reads = [Tensor(*x, stream) for x in zip(given, inputs, in_strides, strict=True)]
        writes = [Tensor(*x, stream) for x in zip(made, outputs, out_strides, strict=True)]
        for tensor in (*reads, *writes):
            tensor.sealed()
        own = [self.attributes[name] for name in task.attributes]
        last = (stream, self._tactic) if task.tactic else (stream,)
        task.function(*reads, *own, tuple(writes), *last)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its name, PTX, how it is started, and numbers between its pointers."""

    name: str
    code: bytes
    launch: KernelLaunchParams
    numbers: Sequence[SymIntExpr]


class QuickKernelPlugin(QuickPlugin):
    """One whose kernels are compiled in a build, and that a run needs no more."""

    kernels = True

    def _task(self) -> Task:
        found = self.definition.aot_impl
        if found is None:
            raise ValueError(
                f"{self.definition.plugin_id} has no function of tensorrt.plugin.aot_impl"
            )
        return found

    def compiled(
        self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc], tactic: int
    ) -> Kernel:
        """The kernel for these. Raises TypeError for what is none."""
        task = self._task()
        own = [self.attributes[name] for name in task.attributes]
        name, code, launch, numbers = task.function(*inputs, *own, tuple(outputs), tactic)
        texts = isinstance(name, str | bytes) and isinstance(code, str | bytes)
        if not texts or not isinstance(launch, KernelLaunchParams):
            raise TypeError("aot_impl gives a name, PTX, KernelLaunchParams and SymIntExprs")
        symbol = name if isinstance(name, str) else name.decode()
        return Kernel(symbol, code.encode() if isinstance(code, str) else code, launch, [*numbers])


def _expr(size: SymIntExpr) -> IDimensionExpr:
    """Raises ValueError for a fake one, such as one that was kept from another call."""
    if size.size is None:
        raise ValueError("a size is fake: compute sizes of those that the call gives")
    return IDimensionExpr(size.size, size.is_size_tensor)


def _sizes(desc: TensorDesc) -> ShapeExprs:
    """Raises ValueError where none were given."""
    if desc.shape_expr is None:
        raise ValueError("an output has no sizes: make it by like(), aliased() or from_shape_expr")
    return desc.shape_expr


def _desc(type: DataType, format: TensorFormat) -> PluginTensorDesc:
    out = PluginTensorDesc()
    out.type, out.format = type, format
    return out
