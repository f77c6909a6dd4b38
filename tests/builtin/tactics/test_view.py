"""view: what it says is one memory holds the same elements in the same order, in both formats."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from harness import NATIVE, devices, node

import tactix
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject, Variant
from tactix_ops.tactics.view import ViewTactic

TACTIC = ViewTactic()
RNG = np.random.default_rng(0)


def _offered(n: Node, device: DeviceProperties = NATIVE) -> tuple[Variant, ...]:
    found = TACTIC.variants(n, device)
    return () if isinstance(found, Reject) else tuple(found)


def _named(n: Node) -> set[str]:
    return {f"{v.input_format(0).name} {v.output_format(0).name}" for v in _offered(n)}


def _assert_same_storage(n: Node, x: Any, y: Any) -> None:
    for v in _offered(n):
        have, want = v.input_format(0).pack(x), v.output_format(0).pack(y)
        np.testing.assert_array_equal(have.ravel(), want.ravel(), err_msg=f"{n.attrs} {v}")


def _filled(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_every_pair_of_formats_of_a_transpose_is_one_storage(device: DeviceProperties) -> None:
    for rank in (2, 3, 4):
        for shape in itertools.product((1, 3, 32), repeat=rank):
            x = _filled(shape)
            for perm in itertools.permutations(range(rank)):
                n = node("Transpose", [x], perm=perm)
                _assert_same_storage(n, x, np.transpose(x, perm))


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_every_pair_of_formats_of_a_reshape_is_one_storage(device: DeviceProperties) -> None:
    shapes = [
        (2, 32), (2, 32, 1), (2, 32, 1, 1), (2, 5), (2, 5, 1, 1), (2, 32, 12), (2, 32, 3, 4),
        (2, 32, 4, 3), (2, 3, 4, 32), (2, 5, 12), (2, 5, 2, 6), (2, 16, 24), (1, 64, 12), (768,),
    ]  # fmt: skip
    for source, target in itertools.product(shapes, repeat=2):
        if np.prod(source) == np.prod(target):
            x = _filled(source)
            n = node("Reshape", [x], shape=target)
            _assert_same_storage(n, x, x.reshape(target))


def test_tokens_to_an_image_and_back_are_views() -> None:
    tokens, image = _filled((2, 12, 32)), _filled((2, 32, 12))
    assert _named(node("Transpose", [tokens], perm=(0, 2, 1))) == {"linear nhwc", "nhwc linear"}
    back = node("Transpose", [_filled((2, 32, 3, 4))], perm=(0, 2, 3, 1))
    assert "nhwc linear" in _named(back)
    block = f"c{NATIVE.lanes}"
    kept = {"linear linear", "nhwc nhwc", f"{block} {block}"}
    assert _named(node("Reshape", [image], shape=(2, 32, 3, 4))) == kept


def test_a_transpose_that_moves_elements_in_every_format_is_no_view() -> None:
    n = node("Transpose", [_filled((3, 4, 5, 6))], perm=(3, 1, 0, 2))
    assert TACTIC.variants(n, NATIVE) == Reject("elements change their order in every format")


@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions_between_tokens_run_without_a_transpose(batch: int) -> None:
    """As encoders have them: tokens, an image, a convolution by channels, tokens."""
    b = tactix.Builder()
    net = b.create_network("tokens")
    w = RNG.standard_normal((32, 1, 3, 3)).astype(np.float32)
    (x,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", ["n", 12, 32])])
    (t,) = net.add_layer("tactix.Transpose", [x], perm=(0, 2, 1))
    (t,) = net.add_layer("tactix.Reshape", [t], shape=(x.spec.shape[0], 32, 3, 4))
    (t,) = net.add_layer(
        "tactix.Convolution", [t, net.add_constant(w)],
        group=32, pads=(1, 1, 1, 1), strides=(1, 1), dilations=(1, 1),
    )  # fmt: skip
    (t,) = net.add_layer("tactix.Reshape", [t], shape=(x.spec.shape[0], 32, 12))
    (t,) = net.add_layer("tactix.Transpose", [t], perm=(0, 2, 1))
    (y,) = net.add_layer("tactix.Add", [t, x])
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(builder_optimization_level=0)
    plan = b.build_plan(net, config)
    assert not [s.name for s in plan.steps if "Transpose" in s.info["kind"]]
    engine = tactix.Runtime(session=b.session).load(plan)
    given = RNG.standard_normal((batch, 12, 32)).astype(np.float32)
    image = np.maximum(given, 0).transpose(0, 2, 1).reshape(batch, 32, 3, 4)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    made = sum(
        padded[:, :, i : i + 3, j : j + 4] * w[None, :, 0, i, j, None, None]
        for i in range(3)
        for j in range(3)
    )
    want = made.reshape(batch, 32, 12).transpose(0, 2, 1) + np.maximum(given, 0)
    np.testing.assert_allclose(engine(given), want, rtol=0, atol=1e-5)
