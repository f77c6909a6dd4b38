"""What the short way says to keywords and arguments that it does not know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tactix
from tactix.api import configure
from tactix.words.error_recorder import ErrorRecorder
from tactix.words.errors import ConfigError, InvalidArgument, PlanFormatError


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


def test_a_context_refuses_a_profiler_that_it_would_ignore() -> None:
    builder = tactix.Builder()
    network = builder.create_network("small")
    (y,) = network.add_layer("tactix.Relu", [network.add_input("x", "f32", (2, 3))])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, device="cpu")
    context = builder.build(network, config).create_execution_context()
    context.profiler = None
    with pytest.raises(InvalidArgument, match="takes no profiler"):
        context.profiler = object()  # type: ignore[assignment]


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
