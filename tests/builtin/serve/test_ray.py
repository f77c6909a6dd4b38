"""Plans on a real cluster of Ray, on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix.base.errors import DTypeError, InvalidArgument, PlanFormatError, UntrustedPlan
from tactix.plan import container
from tactix_serve import ray as plans_on_ray

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def handle(ray_cluster: Any, plans: Any) -> Any:
    return plans_on_ray.run(plans.path("scaled"), num_replicas=2, threads=1, pin=False)


def test_replicas_answer(handle: Any, expected: Callable[..., Any]) -> None:
    asked = [handle.remote({"x": X * i}) for i in range(8)]
    for i, answer in enumerate(asked):
        np.testing.assert_allclose(answer.result()["y"], expected(X * i), rtol=1e-5)


def test_arrays_of_the_object_store_are_inputs(
    ray_cluster: Any, handle: Any, expected: Callable[..., Any]
) -> None:
    answer = handle.remote({"x": ray_cluster.put(X)}).result()
    np.testing.assert_allclose(answer["y"], expected(X), rtol=1e-5)


def test_wrong_inputs_are_the_errors_that_they_are_elsewhere(handle: Any) -> None:
    with pytest.raises(InvalidArgument, match="no array for 'x'"):
        handle.remote({}).result()
    with pytest.raises(DTypeError, match="got float64"):
        handle.remote({"x": X.astype(np.float64)}).result()


@pytest.mark.compiler
def test_a_plan_that_is_not_trusted_there_is_an_error_here(
    ray_cluster: Any, plans: Any, tmp_path: Path
) -> None:
    path = tmp_path / "strange.plan"
    plan = container.load(plans.path("scaled"))
    path.write_bytes(container.dump(replace(plan, seal=None)))
    with pytest.raises(UntrustedPlan, match="tactix keys trust"):
        plans_on_ray.run(path, pin=False)
    plans_on_ray.forget(path)
    plans_on_ray.forget(path)  # nobody holds it


def test_the_page(ray_cluster: Any, plans: Any, expected: Callable[..., Any]) -> None:
    (text,) = re.findall(r"```python\n# python: ray\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(text, names)
    answer = names["on_ray"](plans.path("twice"), {"x": X})
    np.testing.assert_allclose(answer["y"], expected(X, 2), rtol=1e-5)


def test_what_is_no_plan_is_an_error(ray_cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "no.plan"
    path.write_bytes(bytes(100))
    with pytest.raises(PlanFormatError, match="not a tactix plan"):
        plans_on_ray.run(path)


def test_options_that_ray_does_not_know_are_an_error(ray_cluster: Any, plans: Any) -> None:
    with pytest.raises(InvalidArgument, match="the deployment's options are wrong"):
        plans_on_ray.deployment(plans.path("scaled"), replicas=2)
