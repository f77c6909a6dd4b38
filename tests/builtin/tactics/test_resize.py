"""c_resize: modes, coordinates, dtypes, axes, and sizes that only running tells."""

from __future__ import annotations

import itertools
from typing import Any

import asked
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from harness import NATIVE, Case, check, check_all, devices, node
from onnx import helper

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.sample.resize import CpuResizeTactic, CpuResizeWork
from tactix_ops.layers.resize import COORDINATES, ROUNDINGS

TACTIC = CpuResizeTactic()
PLAIN = [c for c in COORDINATES if c != "tf_crop_and_resize"]


def _array(*shape: int, code: str = "f32") -> Any:
    made = np.random.default_rng(3).standard_normal(shape) * 40
    with np.errstate(invalid="ignore"):
        return made.astype(DType(code).numpy)


def _case(x: Any, sizes: tuple[Any, ...], **attrs: Any) -> Case:
    return Case(node("Resize", [x], sizes=sizes, **attrs), TACTIC, [x], nt=(1, 3))


def _running(x: Any, named: tuple[Any, ...], sizes: tuple[Any, ...], **more: Any) -> Case:
    """A case whose sizes are symbols: those of ``named`` are the array's."""
    shape = tuple(dims.sym(d) if isinstance(d, str) else d for d in named)
    out = tuple(dims.sym(d) if isinstance(d, str) else d for d in sizes)
    env = {n: s for n, s in zip(named, x.shape, strict=True) if isinstance(n, str)}
    made = node("Resize", [TensorSpec(DType.of(x.dtype), shape)], sizes=out, **more.pop("attrs"))
    return Case(made, TACTIC, [x], env={**env, **more}, nt=(1, 3))


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
@pytest.mark.parametrize("code", ["u8", "bf16"])
def test_short_elements_are_repeated(device, code):
    """Rows of whole vectors and with a rest, two and four times; three times is no power of two."""
    sizes = {8: (16, 32), 21: (42, 84, 63), 3: (6, 12)}
    cases = []
    for width, wider in sizes.items():
        x = _array(2, 3, 4, width, code=code)
        attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        for out in wider:
            made = node("Resize", [x], sizes=(2, 3, 4 * out // width, out), mode="nearest", **attrs)
            cases.append(Case(made, TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", PLAIN)
def test_all_coordinates_up_and_down(mode, coordinates):
    x = _array(2, 3, 9, 21)
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    sizes = ((2, 3, 18, 42), (2, 3, 4, 50), (2, 3, 23, 7), (2, 3, 1, 1), (2, 3, 9, 63))
    check_all([_case(x, s, **attrs) for s in sizes])


@pytest.mark.parametrize("rounding", list(ROUNDINGS))
def test_all_roundings_to_the_nearest(rounding):
    x = _array(1, 2, 8, 12)
    cases = []
    for coordinates in PLAIN:
        attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
        cases += [_case(x, (1, 2, 16, 24), **attrs), _case(x, (1, 2, 4, 5), **attrs)]
        named, sizes = (1, 2, "h", "w"), (1, 2, "a", "b")
        for a, b in ((16, 24), (4, 5), (8, 12)):
            cases.append(_running(x, named, sizes, attrs=attrs, a=a, b=b))
    check_all(cases)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [False, True])
def test_antialias(mode, outside):
    x = _array(2, 2, 19, 45)
    attrs = {"mode": mode, "antialias": True, "exclude_outside": outside}
    sizes = ((2, 2, 7, 11), (2, 2, 19, 5), (2, 2, 38, 20), (2, 2, 3, 45))
    check_all([_case(x, s, **attrs) for s in sizes])


@pytest.mark.parametrize("code", ["f16", "bf16", "f64", "i8", "u8", "i32", "i16"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_other_dtypes(mode, code):
    x = _array(1, 3, 10, 22, code=code)
    sizes = ((1, 3, 20, 44), (1, 3, 5, 33), (1, 3, 10, 11))
    check_all([_case(x, s, mode=mode) for s in sizes])


@pytest.mark.parametrize("code", ["bool", "i64", "u64", "u16"])
def test_the_nearest_of_any_dtype(code):
    x = (_array(3, 11, 17) > 0).astype(DType(code).numpy)
    check_all([_case(x, s) for s in ((3, 22, 34), (3, 5, 40), (6, 11, 17), (3, 11, 51))])


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_elements_that_come_several_times_in_a_row(device):
    """Whole vectors of results, and what is left; times that vectors take, and others."""
    cases = []
    for code, width, times in itertools.product(("f32", "i32", "u8"), (1, 7, 28, 32), (2, 3, 4)):
        x = np.arange(6 * width).reshape(1, 2, 3, width).astype(DType(code).numpy)
        attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        made = node("Resize", [x], sizes=(1, 2, 6, width * times), mode="nearest", **attrs)
        cases.append(Case(made, TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


def test_the_nearest_of_large_integers():
    x = np.array([[2**62 + 1, -(2**62) - 3, 5]])
    check_all([_case(x, (1, 6)), _case(x.astype(np.uint64), (2, 4))])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_other_axes(mode):
    cases = [
        _case(_array(4, 37), (4, 90), mode=mode),
        _case(_array(37), (12,), mode=mode),
        _case(_array(2, 5, 7, 3), (2, 10, 21, 3), mode=mode),
        _case(_array(2, 5, 7, 40), (2, 10, 3, 40), mode=mode),
        _case(_array(2, 3, 4, 5, 19), (2, 3, 8, 7, 40), mode=mode),
        _case(_array(2, 3, 4, 5, 19), (2, 3, 8, 5, 40), mode=mode),
        _case(_array(2, 3, 6, 5, 19), (2, 3, 3, 5, 19), mode=mode),
        _case(_array(3, 4, 5), (6, 8, 10), mode=mode),
    ]
    check_all(cases)


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
@pytest.mark.parametrize("rounding", [r for r in ROUNDINGS if r != "simple"])
def test_the_nearest_of_scales_without_an_exact_value(coordinates, rounding):
    """As ONNX Runtime has it, also where two elements are as near in float32 alone."""
    x = np.arange(21, dtype=np.float32).reshape(1, 1, 21)
    attrs = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    cases = []
    for scale in map(float, np.float32([0.1, 0.3, 0.35, 0.7, 0.9, 1.3, 1.4, 2.1, 2.8])):
        size, more = int(np.float32(21) * np.float32(scale)), {"scales": (1.0, 1.0, scale), **attrs}
        fixed = _case(x, (1, 1, size), **more)
        found = fixed.node.layer.reference(fixed.node.attrs, x)[0]
        assert np.array_equal(found, _theirs(x, scale, attrs))
        cases += [fixed, _running(x, (1, 1, "s"), (1, 1, "t"), attrs=more, t=size)]
    check_all(cases)


def _theirs(x: Any, scale: float, attrs: dict[str, str]) -> Any:
    """ONNX Runtime's result along the last axis."""
    scales = onnx.numpy_helper.from_array(np.array([1, 1, scale], np.float32), "scales")
    made = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **attrs)
    kind = onnx.TensorProto.FLOAT
    given, result = (
        helper.make_tensor_value_info(n, kind, s) for n, s in (("x", x.shape), ("y", None))
    )
    graph = helper.make_graph([made], "resized", [given], [result], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_that_are_not_the_quotient_of_the_sizes(mode):
    x = _array(1, 2, 9, 13)
    scales = (1.0, 1.0, 2.6, 1.3)
    cases = [_case(x, (1, 2, 23, 16), mode=mode, scales=scales, exclude_outside=True)]
    attrs = {"mode": mode, "scales": scales, "coordinate_transformation_mode": "asymmetric"}
    cases.append(_case(x, (1, 2, 23, 16), **attrs))
    check_all(cases)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("code", ["f32", "f16", "u8", "f64"])
def test_cropping(mode, code):
    x = _array(1, 2, 9, 13, code=code)
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "roi": (0.0, 0.0, -0.3, 0.25, 1.0, 1.0, 1.2, 0.8),
        "extrapolation_value": 7.0,
    }
    cases = [_case(x, s, **attrs) for s in ((1, 2, 9, 13), (1, 2, 18, 40), (1, 2, 1, 5))]
    cases.append(_running(x, (1, 2, "h", "w"), (1, 2, "a", "b"), attrs=attrs, a=7, b=30))
    check_all(cases)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("code", ["f32", "bf16", "f64", "i8"])
def test_sizes_that_only_running_tells(mode, code):
    cases = []
    for coordinates in PLAIN:
        attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
        for h, w, a, b in ((9, 21, 18, 42), (2, 1, 5, 3), (9, 3, 4, 3), (3, 30, 3, 30)):
            x = _array(2, 3, h, w, code=code)
            named, sizes = ("n", 3, "h", "w"), ("n", 3, "a", "b")
            cases.append(_running(x, named, sizes, attrs=attrs, a=a, b=b))
    check_all(cases)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_batch_that_only_running_tells(mode):
    cases = []
    for n in (0, 1, 3):
        x = _array(n, 4, 9, 21)
        attrs = {"mode": mode}
        cases.append(_running(x, ("n", 4, 9, 21), ("n", 4, 18, 42), attrs=attrs))
        cases.append(_running(x, ("n", 4, 9, "w"), ("n", 4, 5, "w"), attrs=attrs))
    check_all(cases)


def test_wild_numbers_stay_where_they_are():
    x = _array(1, 1, 8, 40)
    x[0, 0, 3, 7], x[0, 0, 5, 30] = np.nan, np.inf
    check(node("Resize", [x], sizes=(1, 1, 16, 80)), TACTIC, [x])
    inside = _array(1, 1, 24, 40)
    inside[0, 0, 12, 17], inside[0, 0, 11, 30] = np.nan, np.inf
    check_all(
        [
            _case(inside, (1, 1, 12, 20), mode=mode, antialias=antialias)
            for mode in ("linear", "cubic")
            for antialias in (False, True)
        ]
    )


@pytest.mark.parametrize("code", ["f32", "f16", "f64"])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
def test_what_weighs_nothing_does_not_count(coordinates, mode, outside, code):
    """Not even NaN and infinities: at ends, between elements, of rows and within, of long rows."""
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "exclude_outside": outside and mode == "cubic",
    }
    cases = []
    for shape, sizes in (
        ((2, 3, 9, 11), (2, 3, 18, 22)),
        ((2, 3, 9, 11), (2, 3, 5, 33)),
        ((1, 2, 3, 701), (1, 2, 3, 1402)),
        ((1, 6, 7, 16), (1, 12, 7, 16)),
        ((1, 6, 7, 16), (1, 6, 14, 16)),
        ((1, 3, 5, 6), (2, 3, 5, 12)),
    ):
        x = _array(*shape, code=code)
        x.flat[:: x.size // 7 + 1] = np.nan
        x.flat[3 :: x.size // 5 + 1] = np.inf
        x.flat[-1] = -np.inf
        cases += [_case(x, sizes, **attrs), _case(x, sizes, **attrs, antialias=True)]
    for x, names in (
        (cases[0].arrays[0], ("n", 3, "h", "w")),
        (cases[4].arrays[0], (1, 2, 3, "w")),
    ):
        sizes = tuple(2 * d for d in x.shape)
        cases.append(_running(x, names, sizes, attrs=attrs))
    with np.errstate(invalid="ignore"):
        check_all(cases)


def test_it_is_thought_faster_than_numpy():
    made = node("Resize", [_array(1, 64, 64, 64)], sizes=(1, 64, 128, 128), mode="cubic")
    for variant in asked.variants(TACTIC, made, NATIVE):
        cost = asked.cost(TACTIC, made, variant, CompileContext(NATIVE))
        assert cost is not None
        assert cost < 20e-9 * 64 * 128 * 128


@pytest.mark.parametrize(
    ("code", "sizes", "attrs", "why"),
    [
        ("i64", (2, 8), {"mode": "linear"}, "no linear resize of i64"),
        ("bool", (2, 8), {"mode": "cubic"}, "no cubic resize of bool"),
        ("f32", (2, 4), {"mode": "linear"}, "no axis is resized"),
        ("str", (2, 8), {}, "no resize of str"),
    ],
)
def test_what_it_rejects(code, sizes, attrs, why):
    found = TACTIC.match(
        node("Resize", [TensorSpec(DType(code), (2, 4))], sizes=sizes, **attrs), NATIVE
    )
    assert isinstance(found, Reject)
    assert why in found.reason


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("code", ["f32", "f16", "u8", "f64"])
def test_antialias_of_sizes_that_running_tells(mode, outside, code):
    attrs = {"mode": mode, "antialias": True, "exclude_outside": outside}
    named, sizes = (2, 3, "h", "w"), (2, 3, "a", "b")
    cases = []
    for shape in ((19, 45), (1, 3), (33, 1)):
        x = _array(2, 3, *shape, code=code)
        for a, b in ((7, 11), (19, 5), (38, 20), (3, 45), (1, 1), (2, 90), (0, 4)):
            cases.append(_running(x, named, sizes, attrs=attrs, a=a, b=b))
    cases.append(_running(_array(2, 3, 0, 5, code=code), named, sizes, attrs=attrs, a=0, b=2))
    check_all(cases)


@pytest.mark.parametrize("coordinates", sorted(COORDINATES))
def test_antialias_in_all_coordinates(coordinates):
    x, attrs = _array(1, 2, 30, 22), {"coordinate_transformation_mode": coordinates}
    attrs |= {"mode": "linear", "antialias": True}
    made = [
        _running(x, (1, 2, "h", "w"), (1, 2, "a", "b"), attrs=attrs, a=a, b=b)
        for a, b in ((9, 7), (30, 5), (45, 1))
    ]
    check_all(made)


@pytest.mark.parametrize("scale", [0.5, 0.37, 1.6, 1 / 150])
def test_antialias_by_a_scale(scale):
    """The scale is known, and sizes are not: how many elements count is known, too."""
    h, w = dims.sym("h"), dims.sym("w")
    x = _array(2, 300, 8)
    out = int(np.floor(np.float32(300) * np.float32(scale)))
    for shape, sizes, scales in (
        ((2, h, 8), (2, dims.sym("a"), 8), (1.0, scale, 1.0)),
        ((2, w, 8), (2, dims.sym("a"), 8), (1.0, scale, 1.0)),
    ):
        attrs = {"mode": "cubic", "antialias": True, "scales": scales}
        made = node("Resize", [TensorSpec(DType.FP32, shape)], sizes=sizes, **attrs)
        env = {"h": 300, "w": 300, "a": out}
        check_all([Case(made, TACTIC, [x], env=env, nt=(1, 3))])


def test_antialias_along_three_axes():
    x = _array(1, 9, 10, 11)
    attrs = {"mode": "linear", "antialias": True}
    named, sizes = (1, "d", "h", "w"), (1, "a", "b", "c")
    check_all([_running(x, named, sizes, attrs=attrs, a=4, b=3, c=5)])


@pytest.mark.parametrize("code", ["f32", "f16", "f64", "i8"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_in_blocks_and_channels_last(mode, code):
    """Every format is a variant, and each is compared; 5 and 40 channels leave lanes unused."""
    cases = []
    for channels in (5, 32, 40):
        x = _array(2, channels, 5, 7, code=code)
        assert len(TACTIC.variants(_work(_case(x, (2, channels, 10, 21))), NATIVE)) == 3
        cases += [_case(x, (2, channels, *out), mode=mode) for out in ((10, 21), (3, 4), (5, 9))]
        named, sizes = (2, channels, "h", "w"), (2, channels, "a", "b")
        cases.append(_running(x, named, sizes, attrs={"mode": mode}, a=9, b=13))
    check_all(cases)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("channels", [3, 8, 16, 20])
def test_channels_that_are_stored_last_of_sizes_that_running_tells(mode, channels, antialias):
    x, attrs = _array(2, 5, 7, channels), {"mode": mode, "antialias": antialias}
    named, sizes = (2, "h", "w", channels), (2, "a", "b", channels)
    check_all([_running(x, named, sizes, attrs=attrs, a=a, b=b) for a, b in ((9, 13), (3, 2))])


def test_a_crop_and_batches_that_are_resized_are_linear():
    x = _array(2, 3, 4, 5)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0.0,) * 4 + (1.0,) * 4}
    for case in (_case(x, (2, 3, 8, 10), **crop), _case(x, (2, 6, 4, 5)), _case(x, (4, 3, 4, 5))):
        assert [v.input_format(0).name for v in TACTIC.variants(_work(case), NATIVE)] == ["linear"]


def _work(case: Case) -> CpuResizeWork:
    made = TACTIC.match(case.node, NATIVE)
    assert isinstance(made, CpuResizeWork)
    return made
