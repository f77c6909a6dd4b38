"""A pack's ``infer`` that raises, or gives something else than specs, is told with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import parser

from tactix import Builder
from tactix.plugins.session import Session
from tactix_sdk import DType, Layer, Pack, TensorSpec, errors

FILE = r"test_failing_inference\.py"
MODEL = """
<ir_version: 8, opset_import: ["" : 17, "acme_shapes" : 1]>
g (float[n, 5] x) => (float[n, 5] y) {{ y = acme_shapes.{0} (x) }}
"""


def divided(x: TensorSpec) -> TensorSpec:
    return TensorSpec(x.dtype, (1 // 0,))


class Whole(Layer):
    """Has a class of its own."""

    key = "acme_shapes.Whole@1"
    imports = ("onnx:acme_shapes::Whole",)

    def infer(self, attrs: Any, inputs: Any) -> Any:
        return None

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return inputs


def imported(infer: Callable[..., Any] | None) -> None:
    """A node of a layer with that ``infer``; None for that of ``Whole``."""
    pack = Pack("acme_shapes")

    def scaled(x: Any) -> Any:
        return x * 2

    if infer is None:
        pack.layer(Whole())
    else:
        pack.layer("Scaled", onnx="acme_shapes::Scaled", infer=infer)(scaled)
    text = MODEL.format("Scaled" if infer else "Whole")
    model = parser.parse_model(text).SerializeToString()
    Builder(session=Session(plugins=[pack])).import_model(model)


@pytest.mark.parametrize(
    ("infer", "why"),
    [
        (divided, "ZeroDivisionError"),
        (lambda x: None, "None is no TensorSpec"),
        (lambda x: "text", "'text' is no TensorSpec"),
        (lambda x: [x, "f32"], "'f32' is no TensorSpec"),
        (None, "it gave None, which is no list of TensorSpec"),
    ],
)
def test_the_pack_and_the_line_are_named(infer: Callable[..., Any] | None, why: str) -> None:
    with pytest.raises(errors.ModelImportError) as e:
        imported(infer)
    assert e.match(rf"acme_shapes\.\w+@1.*infer of the pack acme_shapes failed: .*{FILE}:\d+: ")
    assert e.match(why)
    assert e.match("Mend it: `tactix-sdk check DIST -k layer-inference` shows it")
    assert not e.value.do.startswith("See whether")


def test_a_wrong_dtype_is_told_with_who_says_it() -> None:
    with pytest.raises(errors.ModelImportError, match="declared as f32, and is i32: so says") as e:
        imported(lambda x: TensorSpec(DType.INT32, x.shape))
    assert e.match(rf"infer of acme_shapes\.Scaled@1, node .*{FILE}:\d+\. .*mend infer of its pack")
