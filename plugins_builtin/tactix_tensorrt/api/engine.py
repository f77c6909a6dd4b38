"""ICudaEngine, and what looks into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, overload

from tactix.base.dims import Dim, Expr, Shape, evaluate, substitute, symbols
from tactix.base.errors import TactixError
from tactix_inspect.layer_info import layer_facts
from tactix_tensorrt import levels
from tactix_tensorrt.api import plan_facts
from tactix_tensorrt.api.context import IExecutionContext
from tactix_tensorrt.api.enums import (
    DataType,
    EngineCapability,
    EngineStat,
    ExecutionContextAllocationStrategy,
    HardwareCompatibilityLevel,
    LayerInformationFormat,
    ProfilingVerbosity,
    SerializationFlag,
    TensorFormat,
    TensorIOMode,
    TensorLocation,
)
from tactix_tensorrt.api.formats import LAYOUTS, Layout
from tactix_tensorrt.api.logger import IErrorRecorder, ILogger, Reporting, returns
from tactix_tensorrt.api.profile import ShapeRange
from tactix_tensorrt.api.sealed import Sealed
from tactix_tensorrt.api.values import FROM_NATIVE, Dims, IHostMemory, as_dims
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.session import SessionView
    from tactix.plan.schema import Profile, TensorIO
    from tactix.run.engine import Engine

OPEN = (1 << 31) - 1
"""Largest size where a profile has none."""


class IRuntimeConfig:
    """How a context is made."""

    def __init__(self) -> None:
        self._strategy = ExecutionContextAllocationStrategy.STATIC

    def set_execution_context_allocation_strategy(
        self,
        strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC,
    ) -> None:
        self._strategy = strategy

    def get_execution_context_allocation_strategy(self) -> ExecutionContextAllocationStrategy:
        return self._strategy


class ISerializationConfig:
    """What of an engine to serialize. ``flags``: a mask of SerializationFlag."""

    def __init__(self) -> None:
        self.flags = 0

    def set_flag(self, flag: SerializationFlag) -> bool:
        self.flags |= flag.mask
        return True

    def clear_flag(self, flag: SerializationFlag) -> bool:
        self.flags &= ~flag.mask
        return True

    def get_flag(self, flag: SerializationFlag) -> bool:
        return bool(self.flags & flag.mask)


@at_this_level
class ICudaEngine(Reporting):
    """Made by runtimes. Iterating gives names of its tensors.

    ``native``: tactix's engine. ``session``: whose key signs what is serialized, if the plan that
    it came from is trusted and its weights were ``renewed``. ``kept``: what has to be there for as
    long as the engine is.
    """

    renewed = False
    kept: object = None

    engine_capability = EngineCapability.STANDARD
    num_aux_streams = 0

    def __init__(self, native: Engine, logger: ILogger, session: SessionView) -> None:
        super().__init__(logger)
        self.native, self.session = native, session
        self.facts = plan_facts.of(native.plan)
        ios = (io for io in (*native.inputs, *native.outputs) if io.name not in self.facts.hidden)
        self._ios: dict[str, TensorIO] = {io.name: io for io in ios}
        self._profiles: tuple[Profile, ...] = native.plan.profiles
        self._budget: int | None = None

    # -- facts ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.native.name

    @property
    def num_io_tensors(self) -> int:
        return len(self._ios)

    @property
    def profiling_verbosity(self) -> ProfilingVerbosity:
        return self.facts.profiling_verbosity

    @property
    def hardware_compatibility_level(self) -> HardwareCompatibilityLevel:
        return self.facts.hardware_compatibility_level

    @property
    def tactic_sources(self) -> int:
        return self.facts.tactic_sources

    @property
    def num_layers(self) -> int:
        return len(self.native.plan.steps)

    @property
    def num_optimization_profiles(self) -> int:
        return max(1, len(self._profiles))

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return False

    @property
    def refittable(self) -> bool:
        return self._recipes is not None

    @cached_property
    def _recipes(self) -> object:
        """What a plan that can be refitted holds; None of others."""
        from tactix_refit import recipe

        try:
            return recipe.read(self.native.plan)
        except TactixError:
            return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._ios)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: str) -> int: ...
    def __getitem__(self, index: int | str) -> str | int:
        """A tensor's name by index; before TensorRT 10 also its index by name, -1 for none."""
        if not isinstance(index, str):
            return self._name_at(index)
        if levels.current() != "8.6":
            raise TypeError(f"an engine is indexed by numbers, not {index!r}")
        return self._index(index)

    def _index(self, name: str) -> int:
        """-1 for none of that name."""
        return list(self._ios).index(name) if name in self._ios else -1

    def __bool__(self) -> bool:
        return True

    def get_tensor_name(self, index: int) -> str | None:
        """Inputs come first. None for an index that is none, which is logged."""
        if index in range(len(self._ios)):
            return list(self._ios)[index]
        self.fail(f"no tensor has index {index}: There are {len(self._ios)}")
        return None

    def _name_at(self, index: int) -> str:
        """Raises IndexError, which also ends a loop over indices."""
        return list(self._ios)[index]

    def has(self, name: str) -> bool:
        """Whether a tensor has that name; if none has, that is logged."""
        if name not in self._ios:
            self.fail(f"no tensor is named {name!r}: There are: {', '.join(self._ios)}")
        return name in self._ios

    def get_tensor_shape(self, name: str) -> Dims:
        """-1 where inputs decide, unless all profiles hold one size alone; empty for a name that is
        none.
        """
        if not self.has(name):
            return Dims()
        return as_dims(tuple(substitute(d, self._only_sizes) for d in self._ios[name].shape))

    def native_shape(self, name: str) -> Shape:
        """As tactix has it, with symbols."""
        return self._ios[name].shape

    @cached_property
    def _only_sizes(self) -> dict[str, Dim]:
        """Of symbols for which there is one, whatever the profile."""
        found: dict[str, set[int | None]] = {}
        for profile in self._profiles:
            for symbol, rows in profile.dims.items():
                found.setdefault(symbol, set()).update(rows)
        return {s: n for s, (n, *others) in found.items() if n is not None and not others}

    def get_tensor_dtype(self, name: str) -> DataType:
        """FLOAT for a name that is none."""
        return FROM_NATIVE[self._ios[name].dtype] if self.has(name) else DataType.FLOAT

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        if name not in self._ios:
            return TensorIOMode.NONE
        index = list(self._ios).index(name)
        return TensorIOMode.INPUT if index < len(self.native.inputs) else TensorIOMode.OUTPUT

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if self.is_shape_inference_io(name) else TensorLocation.DEVICE

    @property
    def layouts(self) -> dict[str, Layout]:
        """Of tensors that are not linear."""
        return {name: LAYOUTS[f] for name, f in self.facts.formats.items()}

    def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat:
        return self.facts.formats.get(name, TensorFormat.LINEAR)

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        found = self.facts.formats.get(name)
        kind = "Row major linear format" if found is None else f"{found.name} format"
        return kind if found is None else f"{kind}, in groups of {LAYOUTS[found].lanes} channels"

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        """The axis whose elements lie in groups, -1 for none."""
        found = self.layouts.get(name)
        grouped = found is not None and found.lanes > 1
        return found.axis(len(self._ios[name].shape)) if found and grouped else -1

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:
        """Of a group, -1 where there are none."""
        found = self.layouts.get(name)
        return found.lanes if found and found.lanes > 1 else -1

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """Of an element, -1 where none lie in groups."""
        if self.get_tensor_components_per_element(name) < 0:
            return -1
        return int(self.get_tensor_dtype(name).itemsize)

    def get_aliased_input_tensor(self, name: str) -> str:
        """The input whose address an output may have, as it is made in place; else nothing."""
        found = (read for read, made in self.native.plan.in_place if made == name)
        return next(found, "")

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether it lies on the host, and profiles have its values, or ``infer_shapes`` tells
        them: not on a GPU, whose engines have all tensors there.
        """
        told = name in self.facts.shapes or any(name in profile for profile in self.facts.values)
        return told and self.native.device.host_memory

    def is_debug_tensor(self, name: str) -> bool:
        return name in self.facts.debug

    def allocator(self) -> Allocator:
        """Of memory that contexts need beside their own."""
        from tactix.run.link import allocator_of

        return allocator_of(self.session, self.native.device)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """Lowest, tuned for, highest; empty for a name or profile that is none."""
        if not self.has(name):
            return []
        if profile_index not in range(self.num_optimization_profiles):
            count = self.num_optimization_profiles
            self.fail(f"no profile has index {profile_index}: There are {count}")
            return []
        shape = self._ios[name].shape
        if not self._profiles:
            return [self.get_tensor_shape(name)] * 3
        profile = self._profiles[profile_index]
        return ShapeRange(
            *(Dims([self._at(d, profile, k) for d in shape]) for k in range(3))
        ).listed()

    @staticmethod
    def _at(dim: int | Expr, profile: Profile, row: int) -> int:
        """A size at the lowest, tuned for or highest sizes of a profile."""
        if not isinstance(dim, Expr):
            return dim
        env = {}
        for s in symbols(dim):
            size = profile.dims[s][row] if s in profile.dims else None
            if size is None:
                return OPEN
            env[s] = size
        return evaluate(dim, env)

    def get_tensor_profile_values(
        self, name: str | int, profile_index: int | str
    ) -> list[list[int]]:
        """Of a shape tensor, as the profile was told; empty for others. TensorRT's documents have
        the name first, its binding takes the index first: both will do.
        """
        told = self.facts.values
        index, tensor = (name, profile_index) if isinstance(name, int) else (profile_index, name)
        at = int(index)
        rows = told[at].get(str(tensor), ()) if at in range(len(told)) else ()
        return [list(row) for row in rows]

    # -- memory -----------------------------------------------------------------------------------

    @property
    def device_memory_size_v2(self) -> int:
        """Bytes of a context at the highest shapes, 0 where that hangs on data."""
        try:
            return self.native.device_memory_size()
        except TactixError:
            return 0

    device_memory_size = device_memory_size_v2

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return self.device_memory_size_v2

    get_device_memory_size_for_profile = get_device_memory_size_for_profile_v2

    @property
    def streamable_weights_size(self) -> int:
        return int(getattr(self.native, "streamable_weights_size", 0))

    @property
    def weight_streaming_budget_v2(self) -> int:
        """What was set; at first all that can be streamed."""
        return self.streamable_weights_size if self._budget is None else self._budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, size: int) -> None:
        """Bytes of weights in memory; runs take at least what the step with the most weights
        needs. Nothing for less than 0, which is logged.
        """
        if size < 0:
            self.fail(f"a budget of {size} bytes of weights: Give 0 or more")
            return
        if not hasattr(self.native, "weight_streaming_budget_v2"):
            self.fail("a budget of weights needs BuilderFlag.WEIGHT_STREAMING")
            return
        try:
            self.native.weight_streaming_budget_v2 = max(size, self.minimum_weight_streaming_budget)
            self._budget = size
        except TactixError as e:
            self.fail(e)

    @property
    def weight_streaming_budget(self) -> int:
        """As ``weight_streaming_budget_v2``; -1 if nothing is streamed."""
        budget = self.weight_streaming_budget_v2
        return -1 if budget >= self.streamable_weights_size else budget

    @weight_streaming_budget.setter
    def weight_streaming_budget(self, size: int) -> None:
        """-1 streams nothing, 0 is for tactix to choose; nothing for less, which is logged."""
        automatic = size in (-1, 0)
        self.weight_streaming_budget_v2 = (
            self.get_weight_streaming_automatic_budget() if automatic else size
        )

    @property
    def minimum_weight_streaming_budget(self) -> int:
        return int(getattr(self.native, "minimum_weight_streaming_budget", 0))

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        return int(getattr(self.native, "weight_streaming_scratch_memory_size", 0))

    def get_weight_streaming_automatic_budget(self) -> int:
        return self.streamable_weights_size

    def get_engine_stat(self, stat: EngineStat = EngineStat.TOTAL_WEIGHTS_SIZE) -> int:
        """Bytes of the weights that the plan has, or that were left out of it: -1 where none
        were.
        """
        plan = self.native.plan
        if stat is EngineStat.STRIPPED_WEIGHTS_SIZE and not plan.stripped:
            return -1
        stripped = stat is EngineStat.STRIPPED_WEIGHTS_SIZE
        sizes = {b.blob: b.nbytes for b in plan.buffers if b.blob}
        return sum(
            int(str(n)) for name, n in sizes.items() if not stripped or name in plan.stripped
        )

    # -- contexts ---------------------------------------------------------------------------------

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    @returns(None)
    def create_execution_context(
        self,
        strategy: ExecutionContextAllocationStrategy
        | IRuntimeConfig = ExecutionContextAllocationStrategy.STATIC,
        *,
        runtime_config: IRuntimeConfig | None = None,
    ) -> IExecutionContext | None:
        """A context; None if it cannot be."""
        asked = runtime_config or strategy
        if isinstance(asked, IRuntimeConfig):
            asked = asked.get_execution_context_allocation_strategy()
        if asked is ExecutionContextAllocationStrategy.USER_MANAGED:
            native = self.native.create_execution_context_without_device_memory()
        else:
            native = self.native.create_execution_context()
        return IExecutionContext(self, native, self._logger, asked)

    def create_execution_context_without_device_memory(self) -> IExecutionContext | None:
        return self.create_execution_context(ExecutionContextAllocationStrategy.USER_MANAGED)

    # -- serializing ------------------------------------------------------------------------------

    def create_serialization_config(self) -> ISerializationConfig:
        return ISerializationConfig()

    @returns(None)
    def serialize(self) -> IHostMemory | None:
        """The plan's bytes."""
        from tactix.plan import container
        from tactix.run.admission import signer_of

        plan = self.native.plan
        trusted = plan.seal is not None and bool(self.session.trusted_by(plan.seal))
        sign = signer_of(self.session) if self.renewed and trusted else None
        return IHostMemory(container.dump(plan, sign))

    def serialize_with_config(self, config: ISerializationConfig) -> IHostMemory | None:
        """The plan's bytes; None where weights should be left out: a build decides that."""
        if config.get_flag(SerializationFlag.EXCLUDE_WEIGHTS):
            self.fail("EXCLUDE_WEIGHTS: Build with BuilderFlag.STRIP_PLAN for a plan without them")
            return None
        return self.serialize()

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self)

    # -- before TensorRT 10 -----------------------------------------------------------------------

    @property
    def num_bindings(self) -> int:
        return len(self._ios)

    def __len__(self) -> int:
        return len(self._ios)

    @property
    def max_batch_size(self) -> int:
        return 1

    def get_binding_name(self, index: int) -> str:
        return self._name_at(index)

    def get_binding_index(self, name: str) -> int:
        return self._index(name)

    def _named(self, binding: int | str) -> str:
        return binding if isinstance(binding, str) else self._name_at(binding)

    def get_binding_shape(self, binding: int | str) -> Dims:
        return self.get_tensor_shape(self._named(binding))

    def get_binding_dtype(self, binding: int | str) -> DataType:
        return self.get_tensor_dtype(self._named(binding))

    def binding_is_input(self, binding: int | str) -> bool:
        return self.get_tensor_mode(self._named(binding)) is TensorIOMode.INPUT

    def get_profile_shape(self, profile_index: int, binding: int | str) -> list[Dims]:
        return self.get_tensor_profile_shape(self._named(binding), profile_index)


class EngineInspector(Sealed):
    """What an engine is made of, as text or as JSON with TensorRT's keys."""

    execution_context: IExecutionContext | None = None
    error_recorder: IErrorRecorder | None = None

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine

    def _told(self, index: int) -> dict[str, object] | str:
        """What the engine's verbosity tells of a layer."""
        layer = layer_facts(self._engine.native.plan, index)
        verbosity = self._engine.profiling_verbosity
        if verbosity is ProfilingVerbosity.DETAILED:
            return layer
        return str(layer["Name"]) if verbosity is ProfilingVerbosity.LAYER_NAMES_ONLY else ""

    def get_layer_information(self, layer_index: int, format: LayerInformationFormat) -> str:
        """By the verbosity that the engine was built with: all, its name, or nothing; empty for
        an index that is none.
        """
        if layer_index not in range(self._engine.num_layers):
            count = self._engine.num_layers
            self._engine.fail(f"no layer has index {layer_index}: There are {count}")
            return ""
        told = self._told(layer_index)
        if format is LayerInformationFormat.JSON:
            return json.dumps(told)
        line = told if isinstance(told, str) else f"{told['Name']}: {told['TacticName']}"
        return f"{line}\n" if line else ""

    def get_engine_information(self, format: LayerInformationFormat) -> str:
        count = self._engine.num_layers
        if format is not LayerInformationFormat.JSON:
            return "".join(self.get_layer_information(i, format) for i in range(count))
        io = "Bindings" if levels.current() != "11.1" else "I/O Tensors"
        layers = [told for i in range(count) if (told := self._told(i))]
        return json.dumps({"Layers": layers, io: [*self._engine]})
