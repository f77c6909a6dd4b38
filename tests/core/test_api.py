"""What the short way says to keywords and arguments that it does not know."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.api import configure
from tactix.base.error_recorder import ErrorRecorder
from tactix.base.errors import (
    ConfigError,
    InvalidArgument,
    ModelImportError,
    PlanFormatError,
)
from tactix.contracts.graph import Node
from tactix.select.enumerate import Candidate
from tactix.select.timing_cache import TimingCache
from tactix_lock import document as lock


@pytest.mark.parametrize(
    ("keyword", "cure"),
    [
        ("fp16", "Write precision='fp16'"),
        ("bf16", "Write precision='bf16'"),
        ("levle", "Did you mean 'level'?"),
        ("shape", "Did you mean 'shapes'?"),
        ("zzz", "There are: budget,"),
    ],
)
def test_an_unknown_keyword_names_the_right_one(keyword: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(cure)):
        configure(**{keyword: True})


def test_all_keywords_are_told() -> None:
    with pytest.raises(ConfigError) as e:
        configure(zzz=1)
    for name in ("precision", "level", "shapes", "enable", "progress", "device", "target"):
        assert name in e.value.do


def test_a_model_given_for_a_plan_is_told_what_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x07" + bytes(200))
    with pytest.raises(PlanFormatError, match=r"not a tactix plan.*tactix\.build"):
        tactix.load(path)


NO_MODELS = [
    ("", ModelImportError, "the path is empty"),
    (Path("."), ModelImportError, "that is a folder"),
    (os.devnull, ModelImportError, "that is no regular file"),
    (b"", ModelImportError, "that is empty"),
    (None, ModelImportError, "NoneType: no importer knows this model"),
]
NO_PLANS = [
    ("", PlanFormatError, "the path is empty"),
    (Path("."), PlanFormatError, "that is a folder"),
    (os.devnull, PlanFormatError, "that is no regular file"),
    (b"", PlanFormatError, "that is empty"),
    (None, InvalidArgument, "a NoneType is no plan"),
]


@pytest.mark.parametrize(("given", "error", "why"), NO_MODELS)
def test_what_is_no_model_is_told_with_what_would_be_one(
    given: Any, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=f"{why}.*Give the path of a model's file, its bytes"):
        tactix.build(given)


@pytest.mark.parametrize(("given", "error", "why"), NO_PLANS)
@pytest.mark.parametrize("flavour", ["default", "lean", "dispatch"])
def test_what_is_no_plan_is_told_with_what_would_be_one(
    given: Any, error: type[Exception], why: str, flavour: str
) -> None:
    with pytest.raises(error, match=why) as e:
        tactix.load(given, flavour=flavour)
    assert str(e.value).endswith(("a plan's file, or its bytes", "or copy it again"))


@pytest.mark.parametrize("given", ["", None, 3])
def test_load_or_build_needs_paths(given: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"the model is {given!r}"):
        tactix.load_or_build(given, cache=tmp_path)
    with pytest.raises(InvalidArgument, match=f"the cache is {given!r}"):
        tactix.load_or_build(tmp_path / "m.onnx", cache=given)


def test_empty_files_are_told_in_the_same_words(tmp_path: Path) -> None:
    empty, told = tmp_path / "empty", list[str]()
    empty.write_bytes(b"")
    for read in (tactix.build, tactix.load):
        with pytest.raises(tactix.TactixError) as e:
            read(empty)
        told.append(str(e.value))
    TimingCache(empty, warn=told.append)
    with pytest.raises(tactix.TactixError) as e:
        lock.read(empty)
    told.append(str(e.value))
    assert len(told) == 4
    for text in told:
        assert text.startswith(f"{empty}: ")
        assert "that is empty" in text


def test_a_setting_that_is_an_empty_path_is_refused() -> None:
    for name in ("timing_cache", "frozen"):
        with pytest.raises(ConfigError, match=f"{name} is an empty path"):
            configure(**{name: ""})


@pytest.mark.parametrize("flavour", ["default", "lean", "dispatch"])
@pytest.mark.parametrize("given", [None, 3, ["a.plan"]])
def test_what_is_neither_a_path_nor_bytes_is_no_plan(given: Any, flavour: str) -> None:
    with pytest.raises(
        InvalidArgument, match=f"a {type(given).__name__} is no plan.*path of a plan's file"
    ):
        tactix.load(given, flavour=flavour)


@pytest.mark.parametrize("made", [lambda: tactix.Runtime("x"), lambda: tactix.Builder("x")])  # type: ignore[arg-type]
def test_what_is_no_logger_is_refused(made: Any) -> None:
    with pytest.raises(InvalidArgument, match="'x' is no logger"):
        made()


def test_a_network_is_named_by_text() -> None:
    with pytest.raises(InvalidArgument, match="name is 0"):
        tactix.Builder().create_network(0)  # type: ignore[arg-type]


def test_errors_of_import_and_of_networks_reach_the_recorder(tmp_path: Path) -> None:
    recorder = ErrorRecorder()
    builder = tactix.Builder(error_recorder=recorder)
    with pytest.raises(tactix.TactixError):
        builder.import_model(tmp_path / "none.onnx")
    assert recorder.num_errors() == 1
    network = builder.create_network()
    x = network.add_input("x", "f32", (2, 3))
    with pytest.raises(tactix.TactixError):
        network.add_layer("tactix.MatMul", [x, x])
    with pytest.raises(InvalidArgument):
        network.add_input("x", "f32", (1,))
    assert recorder.num_errors() == 3
    network.error_recorder = own = ErrorRecorder()
    with pytest.raises(InvalidArgument):
        network.add_input("x", "f32", (1,))
    assert (own.num_errors(), recorder.num_errors()) == (1, 3)


def test_a_profiler_is_told_of_each_step_of_a_run_until_it_is_taken_away() -> None:
    told: list[tuple[str, float]] = []

    class Kept:
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            told.append((layer_name, ms))

    builder = tactix.Builder()
    network = builder.create_network("small")
    (y,) = network.add_layer("tactix.Relu", [network.add_input("x", "f32", (2, 3))])
    (z,) = network.add_layer("tactix.Softmax", [y])
    network.mark_output(z, "z")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, device="cpu")
    engine = builder.build(network, config)
    context = engine.create_execution_context()
    given = {"x": np.array([[-1, 2, 3], [4, -5, 6]], np.float32)}
    before = context.run(given)["z"]
    context.profiler = profiler = Kept()
    assert context.profiler is profiler
    for _ in range(2):
        np.testing.assert_array_equal(context.run(given)["z"], before)
    names = [step.name for step in engine.plan.steps]
    assert [name for name, _ in told] == names * 2
    assert min(ms for _, ms in told) > 0
    context.profiler = None
    context.run(given)
    assert len(told) == 2 * len(names)


def test_a_selector_says_which_candidates_of_a_node_may_run_it() -> None:
    class Slowest:
        def __init__(self) -> None:
            self.asked: list[str] = []
            self.names_some = True

        def select(self, node: Node, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
            self.asked.append(node.name)
            return [candidates[-1]] if self.names_some else []

    builder = tactix.Builder()
    network = builder.create_network("small")
    given = [
        network.add_input(name, "f32", shape) for name, shape in (("x", (4, 8)), ("w", (8, 9)))
    ]
    (y,) = network.add_layer("tactix.MatMul", given, name="own")
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, device="cpu")
    (usual,) = builder.build_plan(network, config).steps
    config.selector = selector = Slowest()
    (chosen,) = builder.build_plan(network, config).steps
    assert selector.asked == ["own"]
    assert chosen.info["tactic"] != usual.info["tactic"]
    selector.names_some = False
    (chosen,) = builder.build_plan(network, config).steps
    assert chosen.info["tactic"] == usual.info["tactic"]


def test_what_cannot_be_compiled_is_said_before_any_tactic_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tactix_cuda.nvrtc.why_missing", lambda: "cuda-python is not installed")
    builder = tactix.Builder()
    network = builder.create_network()
    (y,) = network.add_layer("tactix.Relu", [network.add_input("x", "f32", (2, 3))])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, device="cuda", target="sm_90")
    with pytest.raises(
        ConfigError, match="nothing can be compiled for cuda: cuda-python is not installed"
    ):
        builder.build_plan(network, config)


@pytest.mark.parametrize("size", [1 << 62, 10**20])
def test_sizes_that_no_plan_takes_are_refused_at_the_profile(size: int) -> None:
    bound = str((1 << 62) - 1)
    with pytest.raises(ConfigError, match=bound):
        tactix.OptimizationProfile().set_shape("x", (1,), (1,), (size,))
    with pytest.raises(ConfigError, match=bound):
        configure(shapes={"x": (size, 3)})
    filled = tactix.OptimizationProfile({"x": ((1,), (1,), (size,))})
    with pytest.raises(ConfigError, match=bound):
        tactix.BuilderConfig(profiles=[filled]).check()


@pytest.mark.parametrize(
    ("field", "value", "cure"),
    [
        ("budget", float("nan"), "Give seconds"),
        ("trial_budget", -1.0, "Give seconds"),
        ("threads", -1, "Give 1 to 255"),
        ("threads", 10**20, "Give 1 to 255"),
        ("max_aux_streams", -2, "-1 for as many as help"),
    ],
)
def test_a_number_out_of_its_range_is_told_alone(field: str, value: Any, cure: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} is .*{cure}"):
        tactix.BuilderConfig(**{field: value}).check()
