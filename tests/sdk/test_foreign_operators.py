"""Operators and keys that are tactix's: a pack that takes operators is asked only where the user
enabled it.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from sdk_site import Site

import tactix
from tactix.base.errors import ModelImportError, PluginError
from tactix_sdk import hookimpl, layer, pointwise
from tactix_sdk.testing import Subject
from tactix_tools.cli import main

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
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    )
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


def test_a_converter_is_asked_where_its_pack_is_enabled(
    site: Site, tmp_path: Path, model: Path
) -> None:
    installed(site, tmp_path, "acme", CONVERTER)
    assert layers(model) == ["tactix.Relu@1"]
    assert layers(model, "acme") == ["tactix.Neg@1"]


def test_the_command_line_enables_before_it_imports(
    site: Site, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(site, tmp_path, "acme", CONVERTER)
    plan = tmp_path / "relu.plan"
    assert (
        main(
            [
                "build",
                str(model),
                "-o",
                str(plan),
                "-O",
                "0",
                "--enable",
                "acme",
                "--no-timing-cache",
            ]
        )
        == 0
    )
    assert tactix.load(plan)(np.array([1, -2, 3], np.float32)).tolist() == [-1, 2, -3]
    assert main(["plugins", "list"]) == 0
    assert "1 converter disabled: they touch what others provide" in capsys.readouterr().out


def test_a_layer_does_not_take_an_operator_from_tactix(
    site: Site, tmp_path: Path, model: Path
) -> None:
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
    with pytest.raises(
        tactix.TactixError, match="'here'.*the converter acme.odd failed: " + why
    ) as e:
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


def test_who_takes_a_key_of_tactix_stops_nobody_else(
    site: Site, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = "converter 'onnx:ai.onnx::Gemm@1' of plugin 'acme' (acme 1.0) is left out: tactix has its own"
    installed(site, tmp_path, "acme", CONVERTER.replace("Relu", "Gemm").replace(", since=14", ""))
    plan = tmp_path / "relu.plan"
    assert main(["build", str(model), "-o", str(plan), "-O", "0", "--no-timing-cache"]) == 0
    assert main(["plugins", "list"]) == 0
    assert f"{what}. Give it another key" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(tactix.TactixError, match=re.escape(what)):
        Subject("acme").fresh("build").digest  # noqa: B018


def test_a_packs_tool_called_as_one_of_tactix_takes_nothing_from_it(
    site: Site, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(site, tmp_path, "acme", TOOL)
    assert (
        main(["build", str(model), "-o", str(tmp_path / "p"), "-O", "0", "--no-timing-cache"]) == 0
    )
    assert main(["plugins", "why", "acme.build"]) == 0
    assert "acme.build is one of the tools of acme 1.0; active" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("op", ["Mish", "::Mish", "acme::"])
def test_an_operator_without_its_domain_is_told(op: str) -> None:
    told = r"names no operator. Write domain::Op, as in acme::"
    with pytest.raises(PluginError, match=told):
        layer("acme.Mish@1", onnx=op)(lambda x: x)
    with pytest.raises(PluginError, match=told):
        pointwise("acme.Mish@1", onnx=("acme::Mish", op))(lambda x: x)


@layer("acme.Roll@1", onnx="acme::Roll")
def roll(
    x: Any, *, by: int = 1, scale: float = 1.0, mode: str = "wrap", axes: tuple[int, ...] = (0,)
) -> Any:
    return np.roll(x, by) * np.float32(scale)


def imported(**attributes: Any) -> Any:
    pack = SimpleNamespace(TACTIX_NAMESPACE="acme", tactix_layers=hookimpl(lambda: [roll]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    node = helper.make_node("Roll", ["x"], ["y"], name="turn", domain="acme", **attributes)
    graph = helper.make_graph([node], "roll", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return tactix.Builder(session=tactix.Session(plugins=[pack])).import_model(
        model.SerializeToString()
    )


@pytest.mark.parametrize(
    ("attributes", "told"),
    [({"by": 1.5}, "attribute 'by' is 1.5: the layer takes an int"),
     ({"by": "two"}, "attribute 'by' is 'two': the layer takes an int"),
     ({"mode": 3}, "attribute 'mode' is 3: the layer takes text"),
     ({"axes": [0.5]}, "attribute 'axes' is (0.5,): the layer takes a list like its default"),
     ({"axes": numpy_helper.from_array(np.arange(3))}, "attribute 'axes' is a tensor of shape (3,)")],
)  # fmt: skip
def test_an_attribute_of_another_kind_is_told(attributes: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelImportError) as e:
        imported(**attributes)
    assert told in str(e.value)
    assert "node 'turn' (acme::Roll" in str(e.value)


def test_attributes_that_fit_are_taken() -> None:
    (node,) = imported(by=2, scale=3, mode="edge", axes=[1, 0]).nodes
    assert (node.attrs.by, node.attrs.scale, node.attrs.mode, node.attrs.axes) == (
        2,
        3.0,
        "edge",
        (1, 0),
    )
