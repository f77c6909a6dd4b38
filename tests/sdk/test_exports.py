from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tactix_sdk
from tactix.base import dims, errors
from tactix.contracts import artifact, expr, layer, rule, tactic
from tactix.plugins import hookspecs

MODULES = (
    "tactix_sdk",
    "tactix_sdk.scalar",
    "tactix_sdk.rules",
    "tactix_sdk.artifacts",
    "tactix_sdk.errors",
)


@pytest.mark.parametrize("name", MODULES)
def test_all_names_exist_once(name: str) -> None:
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert [n for n in module.__all__ if not hasattr(module, n)] == []


def test_names_are_the_contracts_own() -> None:
    assert tactix_sdk.hookimpl is hookspecs.hookimpl
    assert tactix_sdk.Layer is layer.Layer
    assert tactix_sdk.rules.pointwise is rule.pointwise
    assert tactix_sdk.Tactic is tactic.Tactic
    assert tactix_sdk.KernelArtifact is artifact.KernelArtifact
    assert tactix_sdk.errors.PluginError is errors.PluginError


def test_every_scalar_function_is_exported() -> None:
    functions = {
        n
        for n, f in vars(expr).items()
        if callable(f)
        and getattr(f, "__module__", "") == expr.__name__
        and "scalar function" in (f.__doc__ or "")
    }
    assert functions <= set(tactix_sdk.scalar.__all__)
    assert len(functions) > 40


def test_every_pattern_word_is_exported() -> None:
    words = {
        "ANY",
        "P",
        "Rule",
        "anchor",
        "any_of",
        "anything",
        "const",
        "fuse",
        "literal",
        "pointwise",
        "var",
    }
    assert words == set(tactix_sdk.rules.__all__)


def test_importing_is_light() -> None:
    heavy = {"numpy", "onnx", "ml_dtypes", "click", "rich"}
    code = f"import sys, tactix_sdk; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_expression_of_the_sdk_is_a_layer() -> None:
    @tactix_sdk.pointwise("acme.Soft@1", onnx="acme::Soft")
    def soft(x: tactix_sdk.Scalar, *, beta: float = 2.0) -> tactix_sdk.Scalar:
        return x * tactix_sdk.tanh(beta * x)

    np = pytest.importorskip("numpy")
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    (y,) = soft.reference(soft.Attrs(beta=0.5), x)
    np.testing.assert_allclose(y, x * np.tanh(0.5 * x), rtol=1e-6)
    assert soft.imports == ("onnx:acme::Soft",)


def test_what_computes_sizes_is_exported() -> None:
    names = ("ceildiv", "mod", "prod")
    assert set(names) <= set(tactix_sdk.__all__)
    assert [getattr(tactix_sdk, n) for n in names] == [getattr(dims, n) for n in names]
