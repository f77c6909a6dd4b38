"""Plans as C libraries: what Python computes to the bit, and what is wrong as codes and text."""

from __future__ import annotations

import ctypes
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import c_libraries
import numpy as np
import pytest
import test_kernel_sets
import test_states
from c_libraries import CContext, CLibrary, CLibraryError

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.config import BuilderFlag, OptimizationProfile
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix_cpu.compiler import find_compiler
from tactix_ship.c_library.export import export

pytestmark = pytest.mark.compiler

ROWS, WIDTH, DEEP = 8, 5, 12


def _network(builder: tactix.Builder) -> NetworkDefinition:
    """A product, a pointwise step and a sum, at any number of rows; two outputs."""
    net = builder.create_network("small")
    rng = np.random.default_rng(0)
    w = net.add_constant(rng.standard_normal((WIDTH, DEEP), np.float32), "w")
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("rows", WIDTH)), w])
    (z,) = net.add_layer("tactix.Tanh", [y])
    net.mark_output(z, "z")
    (total,) = net.add_layer("tactix.ReduceSum", [z], axes=(1,), keepdims=False)
    net.mark_output(total, "total")
    return net


def _built(network: Any, **options: Any) -> Engine:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        builder_optimization_level=0, timing_cache=False, threads=2, **options
    )
    return builder.build(network(builder), config)


@pytest.fixture(scope="module")
def engine() -> Engine:
    profile = OptimizationProfile().set_shape("x", (1, WIDTH), (2, WIDTH), (ROWS, WIDTH))
    return _built(_network, profiles=[profile])


@pytest.fixture(scope="module")
def folder(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("embedded")
    c_libraries.written(engine.plan, out)
    return out


@pytest.fixture(scope="module")
def library(folder: Path) -> CLibrary:
    return CLibrary(folder / "lib" / "libnet.so", "net")


@pytest.fixture
def context(library: CLibrary) -> CContext:
    return library.create(threads=1)


def _x(rows: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, WIDTH), np.float32)


def _wanted(engine: Engine, feeds: dict[str, Any]) -> dict[str, Any]:
    return engine.create_execution_context().run(feeds)


def _same(context: CContext, engine: Engine, feeds: dict[str, Any]) -> None:
    wanted = _wanted(engine, feeds)
    found = context.infer(engine.plan, feeds)
    assert [y.tobytes() for y in found] == [wanted[io.name].tobytes() for io in engine.outputs]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_computes_what_the_plan_computes(
    library: CLibrary, engine: Engine, threads: int
) -> None:
    context = library.create(threads=threads)
    for rows in (2, 1, ROWS, 2, 7):
        _same(context, engine, {"x": _x(rows)})


def test_the_sources_compile_without_warnings(folder: Path) -> None:
    for command in c_libraries.warnings_of(folder, find_compiler()):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_lines_of_generated_text_can_be_read(folder: Path) -> None:
    own = [folder / "include" / "net.h", *(folder / "src").glob("*.[ch]")]
    long = [line for path in own for line in path.read_text().splitlines() if len(line) > 140]
    assert own
    assert long == []


def test_contexts_run_at_the_same_time(library: CLibrary, engine: Engine) -> None:
    wanted = {rows: _wanted(engine, {"x": _x(rows)})["z"].tobytes() for rows in range(1, ROWS + 1)}
    wrong: list[int] = []

    def run(rows: int) -> None:
        context = library.create(threads=2)
        for _ in range(50):
            if context.infer(engine.plan, {"x": _x(rows)})[0].tobytes() != wanted[rows]:
                wrong.append(rows)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in wanted]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_copies_go_through_memory_of_the_context(context: CContext, engine: Engine) -> None:
    x = _x(3)
    context.shape(0, x.shape)
    context.call("copy_input", 0, x.ctypes.data_as(ctypes.c_void_p), x.nbytes)
    context.run()
    y = np.zeros((3, DEEP), np.float32)
    context.call("copy_output", 0, y.ctypes.data_as(ctypes.c_void_p), y.nbytes)
    assert y.tobytes() == _wanted(engine, {"x": x})["z"].tobytes()


# -- what is wrong -------------------------------------------------------------------------------


def _refused(status: str, part: str, call: Any, *args: Any) -> None:
    with pytest.raises(CLibraryError) as e:
        call(*args)
    assert e.value.status == status
    assert part in e.value.text, e.value.text


def test_null_and_places_that_are_not_there_are_told(library: CLibrary, context: CContext) -> None:
    nothing = None
    invalid = "INVALID_ARGUMENT"
    create = library.function("create")
    assert library.function("status_name")(create(None, None)) == b"NET_INVALID_ARGUMENT"
    assert library.function("status_name")(99) == b"no status of net"
    for function in ("run", "set_input_shape", "bind_input", "bind_output", "output_shape"):
        with pytest.raises(CLibraryError, match="the context is NULL"):
            library.check(library.function(function)(None, 0, 0, 0), None)
    library.function("destroy")(None)
    assert library.function("input")(1) == 0
    _refused(invalid, "no input 1", context.shape, 1, (2, WIDTH))
    _refused(invalid, "no output 2", context.output_shape, 2, 1)
    _refused(invalid, "are NULL", context.call, "set_input_shape", 0, nothing, 2)
    _refused(invalid, "is NULL", context.call, "bind_input", 0, nothing, 40)
    _refused(invalid, "is NULL", context.call, "bind_output", 0, nothing, 40)
    _refused(invalid, "no place", context.call, "input_size", 0, nothing)
    _refused(invalid, "256 threads", context.call, "set_threads", 256)
    with pytest.raises(CLibraryError, match="-1 threads"):
        library.create(threads=-1)


def test_shapes_that_the_plan_does_not_take_are_told(context: CContext) -> None:
    invalid = "INVALID_SHAPE"
    _refused("NOT_READY", "no shape yet", context.run)
    _refused("NOT_READY", "no shape yet", context.output_shape, 0, 2)
    _refused(invalid, "'x' is (rows, 5), got (2, 6)", context.shape, 0, (2, 6))
    _refused(invalid, "got (2)", context.shape, 0, (2,))
    _refused(invalid, "got (-1, 5)", context.shape, 0, (-1, WIDTH))
    _refused(invalid, "got (1, 2, 3", context.shape, 0, tuple(range(1, 100)))
    _refused(invalid, "got", context.shape, 0, (2**62, WIDTH))
    context.shape(0, (ROWS + 1, WIDTH))
    _refused(invalid, "'rows' is 9: the library takes 1 to 8", context.output_shape, 0, 2)
    context.shape(0, (0, WIDTH))
    _refused(invalid, "'rows' is 0: the library takes 1 to 8", context.run)


def test_memory_that_does_not_fit_is_told(context: CContext, engine: Engine) -> None:
    invalid = "INVALID_ARGUMENT"
    x, room = _x(2), np.zeros(4096, np.uint8)
    context.shape(0, x.shape)
    _refused("NOT_READY", "input 'x' has no memory", context.run)
    context.bind("input", 0, x, x.nbytes - 1)
    _refused(invalid, "has 39 bytes of memory, its shape takes 40", context.run)
    context.bind("input", 0, x)
    context.bind("output", 0, room, 2 * DEEP * 4 - 1)
    _refused(invalid, "its shape takes 96", context.run)
    _refused(invalid, "Align it to 4", context.bind, "output", 0, room[1:])
    context.bind("output", 0, room)
    context.bind("output", 1, room[64:])
    _refused(invalid, "lies in the memory of output 'z'", context.run)
    whole = np.zeros(4096, np.float32)
    context.bind("input", 0, whole[4:], x.nbytes)
    context.bind("output", 0, whole, 96)
    _refused(invalid, "lies in the memory of input 'x'", context.run)
    _refused(invalid, "takes 40 bytes, got 3", context.call, "copy_input", 0, None, 3)
    _same(context, engine, {"x": x})
    _refused("NOT_READY", "no run at these shapes", context.call, "copy_output", 0, None, 96)


def test_a_context_is_of_use_after_every_error(context: CContext, engine: Engine) -> None:
    for rows in (1, ROWS):
        context.shape(0, (ROWS + 1, WIDTH))
        with pytest.raises(CLibraryError):
            context.run()
        _same(context, engine, {"x": _x(rows)})


def _status(context: CContext, *call: Any) -> str:
    try:
        context.call(*call)
    except CLibraryError as e:
        return e.status if e.text else "no text"
    return "OK"


@pytest.mark.parametrize("seed", range(4))
def test_any_calls_in_any_order_leave_a_context_of_use(
    context: CContext, engine: Engine, seed: int
) -> None:
    """NULL, places and sizes of all kinds; memory is what it is said to be."""
    rng = random.Random(seed)
    pool = np.zeros(4096, np.uint8)
    sizes = [0, 1, 3, 40, 96, 2 * WIDTH * 4, ROWS * DEEP * 4, 2048]

    def place() -> Any:
        at = pool.ctypes.data + rng.choice([0, 0, 64, 1024, 1025])
        return rng.choice([None, ctypes.c_void_p(at), ctypes.c_void_p(at)])

    def dims() -> Any:
        some = [-1, 0, 1, 2, WIDTH, ROWS, ROWS + 1, 2**40, 2**62]
        return (ctypes.c_int64 * 4)(rng.choice(some), rng.choice([WIDTH, WIDTH, *some]), 1, 1)

    def index() -> int:
        return rng.choice([0, 0, 0, 1, 2, 2**63])

    calls: list[Callable[[], tuple[Any, ...]]] = [
        lambda: (
            "set_input_shape",
            index(),
            rng.choice([None, dims(), dims()]),
            rng.choice([0, 2, 2, 3]),
        ),
        lambda: ("bind_input", index(), place(), rng.choice(sizes)),
        lambda: ("bind_output", index(), place(), rng.choice(sizes)),
        lambda: ("copy_input", index(), place(), rng.choice(sizes)),
        lambda: ("copy_output", index(), place(), rng.choice(sizes)),
        lambda: ("output_shape", index(), rng.choice([None, dims()]), rng.choice([0, 1, 2])),
        lambda: ("output_size", index(), rng.choice([None, dims()])),
        lambda: ("set_threads", rng.choice([0, 1, 2, 256])),
        lambda: ("run",),
    ]
    statuses = {_status(context, *rng.choice(calls)()) for _ in range(2000)}
    assert statuses == {"OK", "INVALID_ARGUMENT", "INVALID_SHAPE", "NOT_READY"}
    context.call("set_threads", 1)
    _same(context, engine, {"x": _x(3)})


# -- weights in a file ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beside(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a library and the file of its weights."""
    out = tmp_path_factory.mktemp("beside")
    c_libraries.written(engine.plan, out, "apart", embedded=False)
    return out / "lib"


def test_weights_are_mapped_from_the_file_beside(beside: Path, engine: Engine) -> None:
    library = CLibrary(beside / "libapart.so", "apart")
    contexts = [library.create(threads=1) for _ in range(2)]
    for context in contexts:
        _same(context, engine, {"x": _x(4)})


def test_files_of_weights_that_are_not_these_are_told(beside: Path, tmp_path: Path) -> None:
    library = CLibrary(beside / "libapart.so", "apart")
    content = (beside / "apart.weights").read_bytes()
    damaged = tmp_path / "damaged"
    cases = {
        "other content": bytes([content[0] ^ 1]) + content[1:],
        "no file of": content[:-1],
        " bytes, as the weights": b"",
    }
    for part, bad in cases.items():
        damaged.write_bytes(bad)
        with pytest.raises(CLibraryError, match=part) as e:
            library.create(weights=str(damaged).encode())
        assert e.value.status == "BAD_WEIGHTS"
    for path, part in ((tmp_path / "missing", "No such file"), (tmp_path, "no file of")):
        with pytest.raises(CLibraryError, match=part):
            library.create(weights=str(path).encode())
    damaged.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert library.create(weights=str(damaged).encode(), skip_digest=1).handle
    with pytest.raises(CLibraryError, match="other content"):
        library.create(weights=str(damaged).encode())
    damaged.write_bytes(content)
    assert library.create(weights=str(damaged).encode()).handle


# -- kinds of plans ------------------------------------------------------------------------------


def test_sets_of_kernels(tmp_path: Path, opinion: None) -> None:
    engine = test_kernel_sets._built()
    assert len(engine.plan.steps[0].plans) == 2
    context = c_libraries.made(engine.plan, tmp_path, "sets").create(threads=1)
    for rows in (2, 30, 4, 3):
        _same(context, engine, {"x": test_kernel_sets._x(rows)})
    context.shape(0, (33, test_kernel_sets.WIDTH))
    _refused("INVALID_SHAPE", "no profile takes these sizes: n is 33", context.output_shape, 0, 2)


opinion = test_kernel_sets.opinion


def test_states_that_grow(tmp_path: Path) -> None:
    """Their output is bound where their input is, and the caller says how much is filled."""
    engine = test_states._built(BuilderFlag.RESERVE_STATES)
    context = c_libraries.made(engine.plan, tmp_path, "grown").create(threads=1)
    python = engine.create_execution_context()
    python.reserve(12)
    names = [io.name for io in engine.inputs]
    outputs = [io.name for io in engine.outputs]
    shapes = {"x": (2, test_states.HEADS, 4, test_states.SIZE)}
    states = {
        n: np.zeros((2, test_states.HEADS, 12, test_states.SIZE), np.float32) for n in names[1:]
    }
    length = 0
    context.shape(0, shapes["x"])
    for i, name in enumerate(names[1:], 1):
        context.shape(i, states[name].shape)
        context.bind("input", i, states[name])
        other = outputs.index(name.replace("past", "present"))
        context.bind("output", other, states[name])
    _refused("NOT_READY", "how much of the states", context.run)
    for count in (4, 1, 3):
        x = test_states._rows(count)
        y = np.empty_like(x)
        context.shape(0, x.shape)
        context.bind("input", 0, x)
        context.bind("output", outputs.index("y"), y)
        context.call("set_length", length)
        context.run()
        assert y.tobytes() == python.run({"x": x})["y"].tobytes()
        length += count


def test_an_index_out_of_range_fails_the_run(tmp_path: Path) -> None:
    def network(builder: tactix.Builder) -> NetworkDefinition:
        net = builder.create_network("rows")
        table = net.add_constant(np.arange(12, dtype=np.float32).reshape(4, 3), "table")
        index = net.add_input("index", "i64", ("n",))
        net.mark_output(net.add_layer("tactix.Gather", [table, index], axis=0, name="look")[0], "y")
        return net

    engine = _built(network)
    context = c_libraries.made(engine.plan, tmp_path, "rows").create(threads=1)
    index = np.array([1, -1, 3], np.int64)
    _same(context, engine, {"index": index})
    index[1] = 4
    with pytest.raises(CLibraryError, match="index 4 is out of range: the axis has 4") as e:
        context.infer(engine.plan, {"index": index})
    assert e.value.status == "FAILED_EXECUTION"
    assert e.value.text.startswith("look: ")
    index[1] = 0
    _same(context, engine, {"index": index})


def test_demands_of_symbols_are_told(tmp_path: Path) -> None:
    def network(builder: tactix.Builder) -> NetworkDefinition:
        net = builder.create_network("sums")
        a, b = (net.add_input(n, "f32", (n, 3)) for n in ("a", "b"))
        net.mark_output(net.add_layer("tactix.Add", [a, b], name="sum")[0], "y")
        return net

    engine = _built(network)
    context = c_libraries.made(engine.plan, tmp_path, "sums").create(threads=1)
    one, two = np.ones((1, 3), np.float32), np.full((2, 3), 2, np.float32)
    _same(context, engine, {"a": one, "b": two})
    _same(context, engine, {"a": two, "b": two})
    context.shape(0, (2, 3))
    context.shape(1, (3, 3))
    _refused("INVALID_SHAPE", "a is 2, b is 3", context.output_shape, 0, 2)


# -- what cannot be exported ---------------------------------------------------------------------


def test_a_plan_without_inputs(tmp_path: Path) -> None:
    def network(builder: tactix.Builder) -> NetworkDefinition:
        net = builder.create_network("nothing")
        x = net.add_constant(np.arange(6, dtype=np.float32), "x")
        net.mark_output(net.add_layer("tactix.Exp", [x])[0], "y")
        return net

    engine = _built(network)
    _same(c_libraries.made(engine.plan, tmp_path).create(threads=1), engine, {})
    for command in c_libraries.warnings_of(tmp_path, find_compiler()):
        subprocess.run(command, check=True)


def test_the_same_plan_gives_the_same_bytes(engine: Engine, tmp_path: Path) -> None:
    forms = ("shared", "static")
    made = [export(engine.plan, tmp_path / n, "net", forms=forms).libraries for n in ("a", "b")]
    for a, b in zip(*made, strict=True):
        assert a.read_bytes() == b.read_bytes()


def _reasons(plan: Plan, folder: Path) -> str:
    with pytest.raises(PlanCompatibilityError) as e:
        export(plan, folder, "net")
    assert not (folder / "src").exists()
    return str(e.value)


def test_steps_on_numpy_are_refused(tmp_path: Path) -> None:
    engine = _built(_network, tactic_sources={"numpy"})
    text = _reasons(engine.plan, tmp_path)
    assert "numpy runs them: " in text
    assert "tactix explain" in text


def test_loops_and_sizes_that_only_running_tells_are_refused(tmp_path: Path) -> None:
    def network(builder: tactix.Builder) -> NetworkDefinition:
        net = builder.create_network("told")
        (found,) = net.add_layer("tactix.NonZero", [net.add_input("x", "f32", (4,))], name="where")
        net.mark_output(found, "y")
        return net

    text = _reasons(_built(network).plan, tmp_path)
    assert "'where'" in text
