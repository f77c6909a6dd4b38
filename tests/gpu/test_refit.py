"""Live refit on the GPU: as a build of the new model, bit for bit, and never some of both while
others infer.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gpu_networks import MODELS, feed, outputs
from onnx import numpy_helper
from refit_models import branches, chain, conv_bn, loop, normal, scan
from refit_threads import Infer, inferring, refitted_apart

import tactix
from tactix import BuilderFlag
from tactix.base.errors import ExecutionError
from tactix_cuda.device import CudaDevice
from tactix_refit.refitter import Refitter

pytestmark = pytest.mark.gpu

FLAGS = {BuilderFlag.REFIT}


def built(model: Any, *flags: BuilderFlag, level: int = 0, **options: Any) -> tactix.Engine:
    return tactix.build(
        model,
        device=CudaDevice.key,
        flags=FLAGS | set(flags),
        level=level,
        timing_cache=False,
        **options,
    )


def assert_same(got: dict[str, Any], want: dict[str, Any]) -> None:
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y, name)


def altered(path: Path, names: list[str], seed: int = 7) -> bytes:
    """A model with some of its weights scaled, element by element, by 0.5 to 1.5."""
    proto, rng = onnx.load(path), np.random.default_rng(seed)
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            x = numpy_helper.to_array(tensor)
            scale = rng.random(x.shape, np.float32) + np.float32(0.5)
            tensor.CopyFrom(numpy_helper.from_array((x * scale).astype(x.dtype), tensor.name))
    return proto.SerializeToString()  # type: ignore[no-any-return]


@pytest.mark.parametrize("flags", [(), (BuilderFlag.FP16,)], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", ["decoder", "encoder", "lenet", "lstm", "residual", "unet"])
def test_networks(name: str, flags: tuple[BuilderFlag, ...], device: CudaDevice) -> None:
    """Without measuring, so that both builds choose the same."""
    path = MODELS / f"{name}.onnx"
    engine = built(path, *flags)
    refitter, feeds = Refitter(engine), feed(engine, 3, 7)
    before = outputs(engine, feeds)
    other = altered(path, refitter.get_all_weights())
    refitter.refit_from_onnx(other)
    want = outputs(built(other, *flags), feeds)
    assert any((before[k] != want[k]).any() for k in want)
    assert_same(outputs(engine, feeds), want)
    refitter.refit_from_onnx(path)
    assert_same(outputs(engine, feeds), before)


@pytest.mark.parametrize("name", ["encoder", "residual"])
def test_by_all_sources_and_in_a_file(name: str, device: CudaDevice, tmp_path: Path) -> None:
    """Measured choices, libraries among them: beside an engine of the refitted plan, which has the
    same steps.
    """
    path = MODELS / f"{name}.onnx"
    engine = built(path, BuilderFlag.FP16, level=1)
    refitter, feeds = Refitter(engine), feed(engine, 2, 16)
    context = engine.create_execution_context()
    context.persistent_cache_limit = 1 << 20
    before = context.run(feeds)
    refitter.refit_from_onnx(altered(path, refitter.get_all_weights()))
    got = context.run(feeds)
    refitter.save(tmp_path / "new.plan")
    assert_same(outputs(tactix.load(tmp_path / "new.plan", on_untrusted="allow"), feeds), got)
    assert any((before[k] != got[k]).any() for k in got)


def test_some_weights(device: CudaDevice) -> None:
    engine = built(chain(1.0, layers=3))
    refitted_apart(engine, Refitter(engine), 10)


BODIES: dict[str, tuple[bytes, bytes, Any]] = {
    "branches": (branches(1, 5), branches(2, 6), normal(0, x=(2, 4))),
    "loop": (loop(1.5), loop(0.5), normal(0, x=(3, 16))),
    "scan": (scan(1), scan(2), normal(0, h0=(1, 3, 2, 3), x=(4, 1, 3, 2, 3))),
}


@pytest.mark.parametrize("name", BODIES)
def test_branches_and_loops(name: str, device: CudaDevice) -> None:
    first, second, feeds = BODIES[name]
    engine = built(first)
    context = engine.create_execution_context()
    before = context.run(feeds)
    Refitter(engine).refit_from_onnx(second)
    assert_same(context.run(feeds), built(second).create_execution_context().run(feeds))
    Refitter(engine).refit_from_onnx(first)
    assert_same(context.run(feeds), before)


def test_stripped_plans(device: CudaDevice, tmp_path: Path) -> None:
    feeds = normal(0, x=(2, 3, 9, 8))
    built(conv_bn(1), BuilderFlag.STRIP_PLAN).save(tmp_path / "stripped.plan")
    engine = tactix.load(tmp_path / "stripped.plan")
    with pytest.raises(ExecutionError, match="weights are missing"):
        engine(feeds["x"])
    for seed in (2, 1, 3):
        Refitter(engine).refit_from_onnx(conv_bn(seed))
        np.testing.assert_array_equal(engine(feeds["x"]), built(conv_bn(seed))(feeds["x"]))


WIDTH, LAYERS = 256, 12
OLD, NEW = chain(1.0, LAYERS, WIDTH), chain(2.0, LAYERS, WIDTH)
ALLOWED = [{1.0}, {2.0**LAYERS}]


def refitting(engine: tactix.Engine, infer: Infer) -> None:
    """Refit again and again while threads infer."""
    refitter, x = Refitter(engine), np.ones((2, WIDTH), np.float32)
    with inferring(infer):
        for i in range(60):
            refitter.refit_from_onnx(NEW if i % 2 == 0 else OLD)
            assert set(np.unique(engine(x)).tolist()) == {2.0**LAYERS if i % 2 == 0 else 1.0}


def test_threads_that_infer(device: CudaDevice) -> None:
    engine, runs = built(OLD), list[int]()

    def infer(stop: threading.Event) -> None:
        context, count = engine.create_execution_context(), 0
        while not stop.is_set():
            x = np.ones((1 + count % 5, WIDTH), np.float32)
            found = set(np.unique(context.run({"x": x})["y"]).tolist())
            assert found in ALLOWED, found
            count += 1
        runs.append(count)

    refitting(engine, infer)
    assert len(runs) == 3
    assert min(runs) > 0


def test_streams_that_nobody_waits_for(device: CudaDevice) -> None:
    """Each thread queues many runs with outputs of their own, and looks at them later."""
    torch = pytest.importorskip("torch")
    engine, seen = built(OLD), list[set[float]]()

    def infer(stop: threading.Event) -> None:
        context, stream = engine.create_execution_context(), torch.cuda.Stream()
        x = torch.ones(2000, WIDTH, device="cuda")
        ys = [torch.empty(2000, WIDTH, device="cuda") for _ in range(30)]
        torch.cuda.current_stream().synchronize()
        context.set_tensor_address("x", x)
        while not stop.is_set():
            for y in ys:
                context.set_tensor_address("y", y)
                context.execute_async_v3(stream)
            stream.synchronize()
            for y in ys:
                found = {float(y.min()), float(y.max())}
                assert found in ALLOWED, found
                seen.append(found)

    refitting(engine, infer)
    assert all(found in seen for found in ALLOWED)
