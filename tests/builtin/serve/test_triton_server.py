"""examples/triton_server: the template runs as Triton's documents say that the Python backend calls
it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

TEMPLATE = Path(__file__).parents[3] / "examples" / "triton_server" / "digits"


class Tensor:
    """As ``pb_utils.Tensor``: numpy arrays alone."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class Request:
    """As ``pb_utils.InferenceRequest``."""

    def __init__(self, feeds: dict[str, Any], outputs: list[str]) -> None:
        self._inputs, self._outputs = [Tensor(n, x) for n, x in feeds.items()], outputs

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def requested_output_names(self) -> list[str]:
        return self._outputs


class Response:
    """As ``pb_utils.InferenceResponse``."""

    def __init__(self, output_tensors: list[Tensor], error: Any = None) -> None:
        self._tensors, self._error = output_tensors, error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> Any:
        return self._error


class TritonError:
    def __init__(self, message: str) -> None:
        self._message = message

    def message(self) -> str:
        return self._message


class TritonModelException(Exception):
    pass


def input_named(request: Request, name: str) -> Tensor | None:
    return next((x for x in request.inputs() if x.name() == name), None)


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("triton_python_backend_utils")
    module.Tensor, module.InferenceResponse, module.TritonError = Tensor, Response, TritonError
    module.TritonModelException = TritonModelException
    module.get_input_tensor_by_name = input_named
    monkeypatch.setitem(sys.modules, module.__name__, module)


Opens = Callable[..., Any]


@pytest.fixture
def opens(utils: None, plans: Any, tmp_path: Path) -> Iterator[Opens]:
    """A model of the template over a plan of the tests."""
    made = []

    def open_(plan: str, **config: Any) -> Any:
        version = tmp_path / plan / "1"
        version.mkdir(parents=True, exist_ok=True)
        shutil.copy(TEMPLATE / "1" / "model.py", version)
        shutil.copy(plans.path(plan), version / "model.plan")
        spec = importlib.util.spec_from_file_location("model", version / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.TritonPythonModel()
        model.initialize({"model_config": json.dumps({"max_batch_size": 8, **config})})
        made.append(model)
        return model

    yield open_
    for model in made:
        model.finalize()


def asked(x: Any) -> Request:
    return Request({"x": x}, ["y"])


def rows(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, 4), np.float32)


def test_requests_of_a_list_are_answered_in_order(
    opens: Opens, expected: Callable[..., Any]
) -> None:
    model = opens("scaled", parameters={"threads": {"string_value": "1"}})
    xs = [rows(n, n) for n in (1, 3, 2)]
    responses = model.execute([asked(x) for x in xs])
    for x, response in zip(xs, responses, strict=True):
        (y,) = response.output_tensors()
        assert y.name() == "y"
        np.testing.assert_allclose(y.as_numpy(), expected(x), rtol=1e-5, atol=1e-6)
    assert model.engine.stats().answered == 1  # they ran together


def test_other_shapes_run_apart(opens: Opens) -> None:
    model = opens("lengths")
    xs = [np.ones((1, n), np.int64) for n in (2, 3, 2)]
    found = [r.output_tensors()[0].as_numpy() for r in model.execute([asked(x) for x in xs])]
    assert all(np.array_equal(y, 2 * x) for x, y in zip(xs, found, strict=True))
    assert model.engine.stats().answered == 2


def test_who_fails_fails_alone(opens: Opens, expected: Callable[..., Any]) -> None:
    x = rows(2)
    wrong = [asked(x[:, :3]), Request({}, ["y"]), asked(x.astype(np.float64))]
    first, *errors, last = opens("scaled").execute([asked(x), *wrong, asked(x)])
    for response in (first, last):
        np.testing.assert_allclose(
            response.output_tensors()[0].as_numpy(), expected(x), rtol=1e-5, atol=1e-6
        )
    assert all(e.has_error() and "x" in e.error().message() for e in errors)


def test_outputs_that_are_not_asked_for_are_left_out(opens: Opens) -> None:
    (response,) = opens("scaled").execute([Request({"x": rows(1)}, [])])
    assert (response.output_tensors(), response.has_error()) == ([], False)


def test_plans_without_an_open_axis_are_told(opens: Opens) -> None:
    with pytest.raises(TritonModelException, match=r"no open first axis.*max_batch_size to 0"):
        opens("fixed")
    model = opens("fixed", max_batch_size=0)
    responses = model.execute([asked(rows(2, i)) for i in range(2)])
    assert not any(r.has_error() for r in responses)
    assert model.engine.stats().answered == 2


def test_the_configuration_is_that_of_the_model() -> None:
    import onnx

    model = onnx.load(str(TEMPLATE.parents[1] / "digits" / "digits.onnx"))
    text = (TEMPLATE / "config.pbtxt").read_text()
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        (found,) = re.findall(
            rf'^{kind} \[ {{ name: "(\w+)" data_type: TYPE_FP32 (.*) }} \]$', text, re.M
        )
        dims = [d.dim_value for d in values[0].type.tensor_type.shape.dim[1:]]
        assert found == (values[0].name, f"dims: [ {', '.join(map(str, dims))} ]")
