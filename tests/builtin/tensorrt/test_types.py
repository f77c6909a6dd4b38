"""What the bindings' types refuse is a TypeError at the call, wherever a program gives it."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from trt_logger import Kept
from trt_runs import built

from tactix_tensorrt import api as trt
from tactix_tensorrt.api.layer import OWN

WRONG: tuple[object, ...] = (
    "text", 1, -1, 2.5, None, object(), np.zeros((2, 3), np.float32), [None], (2.5, 3), {},
    trt.float32,
)  # fmt: skip
"""Each of them is wrong for most that is asked for."""

_OURS = (
    "add adopt align allocator ask_int8 attributes bound bounds changed check constructs debug "
    "facts fail for_shapes given_shape has input_value kept label layers native native_shape "
    "next_name of outdated refittable renewed reshape_input retype roles slice_at tells_unfused "
    "value_of wanted_dtype warn weights_names"
)
OURS = OWN | set(_OURS.split())
"""What the adapter has beside TensorRT's."""

ANSWERED = (TypeError, IndexError)
"""What a wrong argument may raise: an index that is none is an IndexError of parsers."""

Call = Callable[[object], object]


class Samples:
    """Arguments that are what hints say, by the hints' text; ``x`` of f32(2, 3)."""

    def __init__(self, builder: trt.Builder) -> None:
        network = self.network = builder.create_network(0)
        x = self.x = network.add_input("x", trt.float32, (2, 3))
        config = builder.create_builder_config()
        self._known: dict[str, object] = {
            "str": "x",
            "int": 1,
            "Unsigned": 1,
            "float": 1.0,
            "bool": True,
            "bytes": b"",
            "F": trt.BuilderFlag.TF32,
            "Enum": trt.ActivationType.RELU,
            "ITensor": x,
            "Sequence[ITensor]": [x],
            "Sequence[int]": (2, 3),
            "Sequence[Unsigned]": (0, 0),
            "Sequence[float]": (0.0, 1.0),
            "Numbers": np.ones(1, np.float32),
            "Weights | Array": np.ones(1, np.float32),
            "ILayer": network.add_identity(x),
            "INetworkDefinition": network,
            "IBuilderConfig": config,
            "IOptimizationProfile": builder.create_optimization_profile(),
            "ITimingCache": config.create_timing_cache(b""),
        }

    def of(self, hint: str) -> object:
        text = hint.removesuffix(" | None")
        found = getattr(trt, text.split(" | ")[0], None)
        if isinstance(found, type) and issubclass(found, enum.Enum):
            return next(iter(found))
        return self._known.get(text)

    def given(self, method: Callable[..., object]) -> list[object]:
        """For each parameter of a method."""
        parameters = [*inspect.signature(method).parameters.values()]
        return [self.of(str(p.annotation)) for p in parameters if p.name != "self"]


def calls(cls: type, samples: Samples) -> Iterator[tuple[str, Call]]:
    """Each attribute, and each argument of each method, as each of what is wrong."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if name[0] == "_" or name in OURS:
            continue
        if inspect.isfunction(member):
            yield from method_calls(name, samples.given(member))
        elif not isinstance(member, staticmethod) and getattr(member, "fset", name):
            for wrong in WRONG:
                yield f"{name} = {wrong!r:.20}", partial(set_to, name, wrong)


def set_to(name: str, value: object, owner: object) -> None:
    setattr(owner, name, value)


def method_calls(name: str, given: list[object]) -> Iterator[tuple[str, Call]]:
    for i in range(len(given)):
        for wrong in WRONG:
            args = [*given[:i], wrong, *given[i + 1 :]]
            yield f"{name}(argument {i} = {wrong!r:.20})", partial(call, name, args)


def call(name: str, args: list[object], owner: object) -> object:
    return getattr(owner, name)(*args)


def told(doing: str, what: Callable[[], object], allowed: tuple[type[Exception], ...]) -> list[str]:
    """What it raises that it may not."""
    try:
        what()
    except allowed:
        return []
    except Exception as e:
        return [f"{doing}: {type(e).__name__}: {e}"]
    return []


def leaks(owner: object, samples: Samples) -> list[str]:
    found = []
    for text, do in calls(type(owner), samples):
        found += told(f"{type(owner).__name__}.{text}", partial(do, owner), ANSWERED)
    return found


@pytest.fixture
def samples(builder: trt.Builder) -> Samples:
    return Samples(builder)


@pytest.fixture
def small(samples: Samples, config: trt.IBuilderConfig, logger: Kept) -> trt.ICudaEngine:
    config.set_flag(trt.BuilderFlag.REFIT)
    exp = samples.network.add_unary(samples.x, trt.UnaryOperation.EXP)
    samples.network.mark_output(exp.get_output(0))
    return built(samples.network, config, logger)


def test_what_builds_takes_what_its_hints_say_alone(
    builder: trt.Builder, samples: Samples, logger: Kept
) -> None:
    config = builder.create_builder_config()
    owners = [
        trt.Builder(logger), builder.create_builder_config(), config.create_timing_cache(b""),
        builder.create_optimization_profile(), trt.OnnxParser(builder.create_network(0), logger),
        trt.get_plugin_registry(), trt.Logger(),
    ]  # fmt: skip
    assert [line for owner in owners for line in leaks(owner, samples)] == []


def test_what_runs_takes_what_its_hints_say_alone(
    small: trt.ICudaEngine, samples: Samples, logger: Kept
) -> None:
    owners = [
        trt.Runtime(logger), small, small.create_execution_context(), trt.Refitter(small, logger),
        trt.OnnxParserRefitter(trt.Refitter(small, logger), logger),
        small.create_engine_inspector(), small.create_runtime_config(),
        small.create_serialization_config(),
    ]  # fmt: skip
    assert [line for owner in owners for line in leaks(owner, samples)] == []


def added(name: str, builder: trt.Builder) -> tuple[Samples, object]:
    """A network whose outputs are those of a layer, or what else that method adds."""
    samples = Samples(builder)
    samples.network.mark_output(samples.network.add_identity(samples.x).get_output(0))
    method = getattr(samples.network, name)
    made = method(*samples.given(method))
    if isinstance(made, trt.ILayer):
        for i in range(made.num_outputs):
            samples.network.mark_output(made.get_output(i))
    return samples, made


ADDING = sorted(
    name
    for name in dir(trt.INetworkDefinition)
    if name.startswith("add_") and "plugin" not in name and name != "add_dist_collective"
)


@pytest.mark.parametrize("name", ADDING)
def test_layers_take_what_their_hints_say_alone(
    name: str, builder: trt.Builder, config: trt.IBuilderConfig
) -> None:
    """Neither the call nor what lowers the network afterwards raises anything else."""
    found = []
    samples, made = added(name, builder)
    for text, do in calls(type(made), samples):
        try:
            do(made)
        except TypeError:
            continue
        except AttributeError as e:  # only some layers have a kind
            found += [] if "the type of" in str(e) else [f"{text}: {e}"]
        doing = f"{name}: {text}, and then"
        found += told(doing, partial(builder.is_network_supported, samples.network, config), ())
        samples, made = added(name, builder)
    assert found == []


@pytest.mark.parametrize("name", ADDING)
def test_networks_take_what_their_hints_say_alone(
    name: str, builder: trt.Builder, config: trt.IBuilderConfig
) -> None:
    found = []
    method = inspect.getattr_static(trt.INetworkDefinition, name)
    for text, do in method_calls(name, Samples(builder).given(method)):
        samples = Samples(builder)
        network = samples.network
        network.mark_output(network.add_identity(samples.x).get_output(0))
        found += told(text, partial(do, network), (TypeError,))
        found += told(text, partial(builder.is_network_supported, network, config), ())
    assert found == []


@pytest.mark.parametrize("wrong", [w for w in WRONG if w is not trt.float32])
def test_functions_take_what_their_hints_say_alone(wrong: object) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        trt.nptype(wrong)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        trt.init_libnvinfer_plugins(trt.Logger(), 1 if isinstance(wrong, str) else wrong)


def test_constructors_take_what_their_hints_say_alone(samples: Samples, logger: Kept) -> None:
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        trt.Logger("WARN")
    for cls in (trt.Builder, trt.Runtime):
        with pytest.raises(TypeError, match="logger: None is no ILogger"):
            cls(None)
    with pytest.raises(TypeError, match="engine: 'x' is no ICudaEngine"):
        trt.Refitter("x", logger)
    with pytest.raises(TypeError, match=r"network: .* is no INetworkDefinition"):
        trt.OnnxParser(logger, samples.network)
    with pytest.raises(TypeError, match="float"):
        trt.Dims((2.5, 3))


class Handle:
    """A stream of another package."""

    def __int__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "shape", [[2, 3], (2, 3), trt.Dims((2, 3)), np.array([2, 3]), (np.int64(2), np.int32(3))]
)
def test_sizes_may_be_lists_tuples_and_arrays(shape: object, builder: trt.Builder) -> None:
    x = builder.create_network(0).add_input("x", trt.float32, shape)
    assert tuple(x.shape) == (2, 3)


def test_numbers_may_be_those_of_numpy_and_handles(
    small: trt.ICudaEngine, samples: Samples, config: trt.IBuilderConfig
) -> None:
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, np.int64(1 << 20))
    config.builder_optimization_level = np.int32(1)
    layer = samples.network.add_activation(samples.x, trt.ActivationType.LEAKY_RELU)
    layer.alpha, layer.beta = np.float32(0.5), 1
    reduced = samples.network.add_reduce(samples.x, trt.ReduceOperation.SUM, np.int64(2), np.True_)
    assert tuple(reduced.get_output(0).shape) == (2, 1)
    context = small.create_execution_context()
    x, y = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    context.set_tensor_address("x", np.uint64(x.ctypes.data))
    context.set_tensor_address(small.get_tensor_name(1), y.ctypes.data)
    assert context.execute_async_v3(Handle())
    assert context.execute_async_v3(stream_handle=0)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)


def test_none_ends_what_may_be_set(small: trt.ICudaEngine, config: trt.IBuilderConfig) -> None:
    context = small.create_execution_context()
    assert context.set_output_allocator(small.get_tensor_name(1), None)
    assert context.set_debug_listener(None)
    context.profiler = None
    config.int8_calibrator = config.progress_monitor = None


def test_sizes_and_addresses_below_0_are_of_another_type(
    small: trt.ICudaEngine, config: trt.IBuilderConfig
) -> None:
    context = small.create_execution_context()
    with pytest.raises(TypeError, match="memory: -64 is no Unsigned"):
        context.set_tensor_address("x", -64)
    with pytest.raises(TypeError, match="stream_handle: -1 is no Unsigned"):
        context.execute_async_v3(-1)
    with pytest.raises(TypeError, match="pool_size: -5 is no Unsigned"):
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, -5)
