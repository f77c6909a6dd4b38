"""Plugins as they are written for TensorRT in Python: of version 3."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trt_logger import Kept
from trt_plugins import AddInPlace, CircularPad, Creator, NonZero, PluginV3, at, pads, registered
from trt_runs import built, run

from tactix_tensorrt import api as trt

Array = np.ndarray
Net = trt.INetworkDefinition
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def added(net: Net, plugin: object, x: Array = X, shape: tuple = ()) -> trt.ILayer:
    dtype = {"float32": trt.float32, "float16": trt.float16}[x.dtype.name]
    layer = net.add_plugin_v3([net.add_input("x", dtype, shape or x.shape)], [], plugin)
    for i in range(layer.num_outputs):
        layer.get_output(i).name = f"y{i}"
        net.mark_output(layer.get_output(i))
    return layer


def test_a_plugin_runs_in_a_build_and_by_its_creator(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    creator = Creator(CircularPad)
    with registered(creator):
        plugin = creator.create_plugin("pad", pads(1, 2, 0, 1), trt.TensorRTPhase.BUILD)
        layer = added(network, plugin)
        assert layer.type is trt.LayerType.PLUGIN_V3
        assert layer.plugin is plugin
        assert layer.get_output(0).shape == (2, 4, 7)
        engine = built(network, config, logger)
        assert creator.made[1:] == [trt.TensorRTPhase.RUNTIME] * (len(creator.made) - 1)
        got = run(engine, {"x": X})["y0"]
    assert np.array_equal(got, np.pad(X, [(0, 0), (0, 1), (1, 2)], "wrap"))


def test_one_tactic_is_taken_without_a_word(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    config.builder_optimization_level = 3
    added(network, CircularPad(pads(1, 2, 0, 1)))
    assert network.builder.build_serialized_network(network, config), logger.errors
    assert logger.warnings == []


def test_open_sizes_are_told_as_ranges_in_a_build_and_as_sizes_in_a_run(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    told: list[object] = []

    class Telling(CircularPad):
        def configure_plugin(self, inputs: list, outputs: list) -> None:
            for d in (*inputs, *outputs):
                told.append([list(d.desc.dims), list(d.min), list(d.opt), list(d.max)])

        def on_shape_change(self, inputs: list, outputs: list) -> None:
            told.append([list(inputs[0].dims), list(outputs[0].dims)])

    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (5, 4))
    config.add_optimization_profile(profile)
    with registered(Creator(Telling)):
        added(network, Telling(pads(0, 0, 1, 1)), shape=(-1, 4))
        engine = built(network, config, logger)
        assert told == [
            [[-1, 4], [1, 4], [2, 4], [5, 4]],
            [[-1, 4], [3, 4], [4, 4], [7, 4]],
        ]
        told.clear()
        for rows in (3, 5):
            x = X.reshape(6, 4)[:rows].copy()
            got = run(engine, {"x": x})["y0"]
            assert np.array_equal(got, np.pad(x, [(1, 1), (0, 0)], "wrap"))
        assert told == [[[3, 4], [5, 4]], [[5, 4], [7, 4]]]


def test_the_faster_tactic_is_chosen_and_set(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    ran: list[tuple[trt.TensorRTPhase, int]] = []

    class Two(PluginV3):
        def __init__(self, fields: object = (), phase: object = None) -> None:
            super().__init__("Two")
            self.phase, self.tactic = phase, 0

        def get_valid_tactics(self) -> list[int]:
            return [3, 7]

        def get_workspace_size(self, inputs: list, outputs: list) -> int:
            return 4 * int(np.prod(inputs[0].max))

        def enqueue(self, given, made, inputs, outputs, workspace, stream) -> None:
            ran.append((self.phase, self.tactic))
            x, y = (at(p, given[0].dims, given[0].type) for p in (inputs[0], outputs[0]))
            scratch = at(workspace, given[0].dims, given[0].type)
            for _ in range(1 if self.tactic == 7 else 400):
                scratch[...] = x
            y[...] = scratch * 2

    config.builder_optimization_level = 3
    with registered(Creator(Two)):
        added(network, Two((), trt.TensorRTPhase.BUILD))
        engine = built(network, config, logger)
        assert {(trt.TensorRTPhase.BUILD, t) for t in (3, 7)} == set(ran)
        ran.clear()
        assert np.array_equal(run(engine, {"x": X})["y0"], 2 * X)
    assert ran == [(trt.TensorRTPhase.RUNTIME, 7)]


def test_a_size_tensor_tells_how_large_an_output_is(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    with registered(Creator(NonZero)):
        layer = added(network, NonZero(), x)
        assert layer.get_output(0).shape == (-1, 2)
        engine = built(network, config, logger)
        assert engine.get_tensor_shape("y0") == (-1, 2)
        got = run(engine, {"x": x})
    assert np.array_equal(got["y0"], np.argwhere(x))
    assert got["y1"] == 3


def test_an_output_in_the_memory_of_an_input_leaves_the_input_as_it_was(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    with registered(Creator(AddInPlace)):
        first = network.add_plugin_v3(
            [network.add_input("x", trt.float32, X.shape)], [], AddInPlace()
        )
        second = network.add_plugin_v3([first.get_output(0)], [], AddInPlace())
        for layer in (first, second):
            network.mark_output(layer.get_output(0))
        engine = built(network, config, logger)
        x = X.copy()
        got = list(run(engine, {"x": x}).values())
    assert np.array_equal(got[0], X + 1)
    assert np.array_equal(got[1], X + 2)
    assert (x == X).all()


def test_one_address_for_an_input_and_an_output_is_changed_in_place(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    with registered(Creator(AddInPlace)):
        added(network, AddInPlace())
        context, x = built(network, config, logger).create_execution_context(), X.copy()
        for name in ("x", "y0"):
            assert context.set_tensor_address(name, x.ctypes.data)
        assert context.execute_async_v3(0)
    assert np.array_equal(x, X + 1)


def test_a_plugin_of_16_bit_floats_gets_them(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    class Half(CircularPad):
        def supports_format_combination(self, pos: int, in_out: list, num_inputs: int) -> bool:
            return in_out[pos].desc.type == trt.DataType.HALF

    with registered(Creator(Half)):
        added(network, Half(pads(1, 1)))
        got = run(built(network, config, logger), {"x": X})["y0"]
    assert got.dtype == np.float32
    assert np.array_equal(got, np.pad(X, [(0, 0), (0, 0), (1, 1)], "wrap"))


def test_shape_inputs_give_sizes_alone(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    class Rows(PluginV3):
        def __init__(self, fields: object = (), phase: object = None) -> None:
            super().__init__("Rows")

        def get_output_shapes(self, inputs: list, shape_inputs: list, builder: object) -> list:
            return [trt.DimsExprs([shape_inputs[0][0], inputs[0][1]])]

        def enqueue(self, given, made, inputs, outputs, workspace, stream) -> None:
            assert len(inputs) == len(given) == 1
            x = at(inputs[0], given[0].dims, given[0].type)
            y = at(outputs[0], made[0].dims, made[0].type)
            y[...] = x[: len(y)]

    with registered(Creator(Rows)):
        x = network.add_input("x", trt.float32, (4, 3))
        rows = network.add_constant((1,), np.array([2], np.int32)).get_output(0)
        out = network.add_plugin_v3([x], [rows], Rows()).get_output(0)
        assert out.shape == (2, 3)
        network.mark_output(out)
        given = X.reshape(8, 3)[:4].copy()
        (got,) = run(built(network, config, logger), {"x": given}).values()
    assert np.array_equal(got, given[:2])


METHODS = [
    "get_output_data_types", "get_output_shapes", "supports_format_combination", "clone",
    "configure_plugin", "get_fields_to_serialize", "get_valid_tactics", "get_workspace_size",
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_raises_in_a_build_is_one_line(
    network: Net, config: trt.IBuilderConfig, logger: Kept, method: str
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no such luck\nand more")

    plugin = CircularPad(pads(1, 1))
    setattr(plugin, method, fails)
    layer = added(network, plugin)
    assert layer is not None
    assert network.builder.build_serialized_network(network, config) is None
    (line,) = logger.errors
    assert "CircularPad" in line
    assert method in line
    assert "no such luck" in line
    assert "\n" not in line


MISTAKES = {
    "get_output_data_types": (["float"], "'float', no dtype"),
    "get_valid_tactics": ([-1], "gave -1"),
    "get_workspace_size": (-5, "gave -5"),
}


@pytest.mark.parametrize("method", MISTAKES)
def test_what_a_method_gives_and_may_not_is_one_line(
    network: Net, config: trt.IBuilderConfig, logger: Kept, method: str
) -> None:
    given, told = MISTAKES[method]
    plugin = CircularPad(pads(1, 1))
    setattr(plugin, method, lambda *_: given)
    added(network, plugin)
    assert network.builder.build_serialized_network(network, config) is None
    (line,) = logger.errors
    assert f"CircularPad version 1: its {method} gave" in line
    assert told in line


class Cut(CircularPad):
    """Gives fewer rows than there are."""

    def get_output_shapes(
        self, inputs: list, shape_inputs: list, builder: trt.IExprBuilder
    ) -> list[trt.DimsExprs]:
        out = trt.DimsExprs(inputs[0])
        rows = builder.constant(100)
        out[0] = builder.operation(trt.DimensionOperation.SUB, inputs[0][0], rows)
        return [out]


@pytest.mark.parametrize(("rows", "shape"), [(2, "(-98, 3, 4)"), (-1, "(-97, 3, 4)")])
def test_a_shape_below_0_is_one_line(
    network: Net, config: trt.IBuilderConfig, logger: Kept, rows: int, shape: str
) -> None:
    profile = network.builder.create_optimization_profile()
    profile.set_shape("x", (2, 3, 4), (3, 3, 4), (200, 3, 4))
    config.add_optimization_profile(profile)
    added(network, Cut(pads(1, 1)), shape=(rows, 3, 4))
    assert network.builder.build_serialized_network(network, config) is None
    (line,) = logger.errors
    assert f"Cut version 1: its get_output_shapes gave the shape {shape}" in line


@pytest.mark.parametrize(
    "method", ["enqueue", "on_shape_change", "set_tactic", "attach_to_context"]
)
def test_what_a_method_raises_in_a_run_is_one_line(
    network: Net, config: trt.IBuilderConfig, logger: Kept, method: str
) -> None:
    class Failing(CircularPad):
        pass

    def fails(self: object, *_: object) -> None:
        raise RuntimeError("no such luck")

    setattr(Failing, method, fails)
    with registered(Creator(Failing)):
        added(network, Failing(pads(1, 1)))
        engine = built(network, config, logger)
        context = engine.create_execution_context()
        if context is not None:
            y = np.empty((2, 3, 6), np.float32)
            context.set_tensor_address("x", X.ctypes.data)
            context.set_tensor_address("y0", y.ctypes.data)
            assert context.execute_async_v3(0) is False
    (line,) = logger.errors
    assert "Failing" in line
    assert method in line
    assert "no such luck" in line


def test_a_plugin_of_before_dynamic_shapes_gives_none(network: Net, logger: Kept) -> None:
    x = network.add_input("x", trt.float32, (2, 3))
    assert network.add_plugin_v2([x], trt.IPluginV2()) is None
    assert "IPluginV2DynamicExt" in logger.errors[0]


def test_a_plugin_that_takes_nothing_is_refused(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    class Picky(CircularPad):
        def supports_format_combination(self, pos: int, in_out: list, num_inputs: int) -> bool:
            return False

    added(network, Picky(pads(1, 1)))
    assert network.builder.build_serialized_network(network, config) is None
    assert "supports_format_combination" in logger.errors[0]


def test_a_plan_needs_the_creator_and_says_which(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    added(network, CircularPad(pads(1, 1)))
    plan = network.builder.build_serialized_network(network, config)
    assert plan is not None, logger.errors
    with registered(Creator(AddInPlace)):
        assert trt.Runtime(logger).deserialize_cuda_engine(plan) is None
    (line,) = logger.errors
    assert "CircularPad version 1" in line
    assert "registered: AddInPlace 1" in line


ANOTHER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from trt_plugins import CircularPad, Creator
from trt_runs import run
from tactix_tensorrt import api as trt

plan = open(sys.argv[2], "rb").read()
runtime = trt.Runtime(trt.Logger(trt.Logger.INTERNAL_ERROR))
print(runtime.deserialize_cuda_engine(plan))
trt.get_plugin_registry().register_creator(Creator(CircularPad), "")
x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
got = run(runtime.deserialize_cuda_engine(plan), {"x": x})["y0"]
print(np.array_equal(got, np.pad(x, [(0, 0), (0, 0), (1, 1)], "wrap")))
"""


def test_another_process_runs_the_plan_once_it_has_registered_the_creator(
    network: Net, config: trt.IBuilderConfig, logger: Kept, tmp_path: Path
) -> None:
    added(network, CircularPad(pads(1, 1)))
    plan = tmp_path / "pad.plan"
    plan.write_bytes(network.builder.build_serialized_network(network, config))
    given = [str(Path(__file__).parent), str(plan)]
    command = [sys.executable, "-c", ANOTHER_PROCESS, *given]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.stdout.split() == ["None", "True"], made.stderr


def test_tactix_itself_runs_the_plan_where_the_creator_is_and_says_else_what_is_missing(
    network: Net, config: trt.IBuilderConfig, logger: Kept
) -> None:
    import tactix

    added(network, CircularPad(pads(1, 1)))
    plan = network.builder.build_serialized_network(network, config)
    with pytest.raises(tactix.TactixError, match=r"CircularPad version 1.*register_creator"):
        tactix.Runtime().deserialize(plan)(X)
    with registered(Creator(CircularPad)):
        got = tactix.Runtime().deserialize(plan)(X)
    assert np.array_equal(got, np.pad(X, [(0, 0), (0, 0), (1, 1)], "wrap"))
