"""Operators and keys that are tactix's: a pack that takes operators is asked only where the user enabled it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from sdk_site import Site

import tactix
from tactix_builtin.cli import main
from tactix_sdk.testing import Subject

CONVERTER = """
from tactix_sdk import hookimpl, onnx_converter

@onnx_converter("ai.onnx::Relu", since=14)
def relu(ctx, node):
    return ctx.layer("tactix.Neg", [ctx.tensor(0)])

@hookimpl
def tactix_converters():
    return [relu]
"""
LAYER = """
from tactix_sdk import hookimpl, layer

@layer("zeta.Relu@1", onnx="ai.onnx::Relu")
def relu(x):
    return -x

@hookimpl
def tactix_layers():
    return [relu]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    path = tmp_path / "relu.onnx"
    opsets = [helper.make_opsetid("", 18)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def installed(site: Site, tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / name
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "1.0"\n[project.entry-points."tactix.build.v1"]\n{name} = "{name}"\n'
    )
    site.install(folder, name)


def layers(model: Path, *enable: str) -> list[str]:
    engine = tactix.build(model, timing_cache=False, level=0, enable=enable)
    return [k for s in engine.plan.steps for k in s.info["layers"]]


def test_a_converter_is_asked_where_its_pack_is_enabled(site: Site, tmp_path: Path, model: Path) -> None:
    installed(site, tmp_path, "acme", CONVERTER)
    assert layers(model) == ["tactix.Relu@1"]
    assert layers(model, "acme") == ["tactix.Neg@1"]


def test_the_command_line_enables_before_it_imports(
    site: Site, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(site, tmp_path, "acme", CONVERTER)
    plan = tmp_path / "relu.plan"
    assert main(["build", str(model), "-o", str(plan), "-O", "0", "--enable", "acme", "--no-timing-cache"]) == 0
    assert tactix.load(plan)(np.array([1, -2, 3], np.float32)).tolist() == [-1, 2, -3]
    assert main(["plugins", "list"]) == 0
    assert "1 converter for layers of others" in capsys.readouterr().out


def test_a_layer_does_not_take_an_operator_from_tactix(site: Site, tmp_path: Path, model: Path) -> None:
    installed(site, tmp_path, "zeta", LAYER)
    assert layers(model) == ["tactix.Relu@1"]
    assert layers(model, "zeta") == ["tactix.Relu@1"]


BROKEN = """
from tactix_sdk import hookimpl, onnx_converter

@onnx_converter("acme::Odd")
def odd(ctx, node):
    return GIVEN

@hookimpl
def tactix_converters():
    return [odd]
"""


@pytest.mark.parametrize(
    ("given", "why"),
    [("1 / 0", "ZeroDivisionError"), ("None", "TypeError: 'NoneType'"), ("'y'", "TypeError: it gave 'y', not a Value"),
     ("[ctx.tensor(0), 3]", "TypeError: it gave 3, not a Value")],
)  # fmt: skip
def test_a_converter_that_fails_is_named(site: Site, tmp_path: Path, given: str, why: str) -> None:
    installed(site, tmp_path, "acme", BROKEN.replace("GIVEN", given))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    node = helper.make_node("Odd", ["x"], ["y"], "here", domain="acme")
    graph = helper.make_graph([node], "odd", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    with pytest.raises(tactix.TactixError, match="'here'.*the converter acme.odd failed: " + why) as e:
        tactix.Builder().import_model(data)
    assert str(e.value).endswith("Mend its pack")


TOOL = """
from tactix_sdk import hookimpl

class Build:
    key = "build"

@hookimpl
def tactix_tools():
    return [Build()]
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [(CONVERTER.replace("Relu", "Gemm").replace(", since=14", ""), "converter 'onnx:ai.onnx::Gemm@1' is tactix's own"),
     (TOOL, "tool 'build' is tactix's own")],
)  # fmt: skip
def test_who_takes_a_key_of_tactix_stops_nobody_else(
    site: Site, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], text: str, what: str
) -> None:
    installed(site, tmp_path, "acme", text)
    plan = tmp_path / "relu.plan"
    assert main(["build", str(model), "-o", str(plan), "-O", "0", "--no-timing-cache"]) == 0
    assert main(["plugins", "list"]) == 0
    assert f"{what}. Give yours another key" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(tactix.TactixError, match=what):
        Subject("acme").fresh("build").digest  # noqa: B018
