"""Arrays of torch and cupy in, arrays that they take without a copy out, in streams of theirs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cuda_engine as e
import numpy as np
import pytest

import tactix
from tactix.base.errors import DTypeError, InvalidArgument
from tactix.run.runtime import Runtime
from tactix_cuda.arrays import DeviceArray
from tactix_cuda.device import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def engine(device: CudaDevice) -> Any:
    built = e.builder()
    return Runtime(session=built.session).load(built.build_plan(e.sums(built), e.config()))


@pytest.fixture
def torch(device: CudaDevice) -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


def same(got: Any, want: dict[str, Any]) -> None:
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)


@pytest.mark.parametrize("n", [1, 1000, 0, 3])
def test_torch(engine: Any, torch: Any, n: int) -> None:
    f = e.feeds(n, seed=n)
    got = engine({k: torch.from_numpy(x).cuda() for k, x in f.items()})
    taken = {k: torch.from_dlpack(y) for k, y in got.items()}
    assert all(isinstance(y, DeviceArray) for y in got.values())
    assert all(taken[k].data_ptr() == got[k].address for k in got if got[k].size)
    same({k: t.cpu().numpy() for k, t in taken.items()}, e.expected(f))
    same(
        {k: torch.as_tensor(y, device="cuda").cpu().numpy() for k, y in got.items() if y.size},
        {"u": e.expected(f)["u"]},
    )
    same({k: y.numpy() for k, y in got.items()}, e.expected(f))


def test_side_streams_of_torch(engine: Any, torch: Any) -> None:
    """Arrays made, used and freed as fast as the host can, in several streams by turns, with
    nothing waited for.
    """
    streams = [torch.cuda.Stream() for _ in range(3)]
    rng, results = np.random.default_rng(3), []
    base = {
        k: rng.standard_normal((20000, 7) if k in "ab" else 301).astype(np.float32) for k in "xyab"
    }
    fixed = {k: torch.from_numpy(x).cuda() for k, x in base.items()}
    torch.cuda.synchronize()
    for i in range(120):
        with torch.cuda.stream(streams[i // 7 % 3]):
            given = {k: x * float(i + 1) for k, x in fixed.items()}
            y = engine(given)
            del given
            results.append(
                torch.from_dlpack(y["v"]).double().sum()
                if i % 10
                else torch.from_dlpack(y["v"]).clone()
            )
            del y
    torch.cuda.synchronize()
    for i, got in enumerate(results):
        scaled = {k: x * np.float32(i + 1) for k, x in base.items()}
        want = e.expected(scaled)["v"]
        if i % 10:
            np.testing.assert_allclose(got.item(), want.sum(dtype=np.float64), rtol=1e-6, atol=1.0)
        else:
            np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_cupy(engine: Any) -> None:
    cupy = pytest.importorskip("cupy")
    for n, stream in ((5, cupy.cuda.Stream.null), (700, cupy.cuda.Stream(non_blocking=True))):
        with stream:
            f = e.feeds(n, seed=n)
            got = engine({k: cupy.asarray(x) for k, x in f.items()})
            for take in (cupy.asarray, cupy.from_dlpack):
                taken = {k: take(y) for k, y in got.items()}
                assert all(taken[k].data.ptr == got[k].address for k in got)
                same({k: cupy.asnumpy(t) for k, t in taken.items()}, e.expected(f))


def test_the_interface_alone(engine: Any) -> None:
    cupy = pytest.importorskip("cupy")
    f = e.feeds(40)
    held = {k: cupy.asarray(x) for k, x in f.items()}
    given = {
        k: SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__)
        for k, x in held.items()
    }
    same({k: y.numpy() for k, y in engine(given).items()}, e.expected(f))


def test_host_arrays_among_them(engine: Any, torch: Any) -> None:
    f = e.feeds(12)
    got = engine(
        f["x"],
        torch.from_numpy(f["y"]).cuda(),
        torch.from_numpy(f["a"]),
        torch.from_numpy(f["b"]).cuda(),
    )
    same({k: y.numpy() for k, y in got.items()}, e.expected(f))
    same(engine({k: torch.from_numpy(x) for k, x in f.items()}), e.expected(f))


def test_what_cannot_be_taken(engine: Any, torch: Any) -> None:
    good = {k: torch.from_numpy(x).cuda() for k, x in e.feeds(8).items()}
    cases = {
        "is not contiguous": (torch.zeros(602, device="cuda")[::2], InvalidArgument),
        "does not start at a multiple": (torch.zeros(302, device="cuda")[1:], InvalidArgument),
        "is f32, got f16": (good["x"].half(), DTypeError),
        "detach": (good["x"].clone().requires_grad_(), InvalidArgument),
    }
    for text, (x, kind) in cases.items():
        with pytest.raises(kind, match=text):
            engine({**good, "x": x})
    if torch.cuda.device_count() > 1:
        with pytest.raises(InvalidArgument, match="lies on CUDA device 1"):
            engine({**good, "x": good["x"].to("cuda:1")})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i64", "u8"])
def test_dtypes(device: CudaDevice, torch: Any, dtype: str) -> None:
    builder = tactix.Builder()
    net = builder.create_network("twice")
    x = net.add_input("x", dtype, ("n", 9))
    net.mark_output(net.add_layer("tactix.Add", [x, x])[0], "y")
    config = tactix.BuilderConfig(
        device=device.key, timing_cache=False, builder_optimization_level=0
    )
    engine = Runtime(session=builder.session).load(builder.build_plan(net, config))
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "u8": torch.uint8}[
        dtype
    ]
    x = torch.arange(63, device="cuda").reshape(7, 9).to(kind)
    got = torch.from_dlpack(engine(x))
    assert got.dtype == kind
    assert torch.equal(got, x + x)


def test_addresses_by_arrays_in_streams(engine: Any, torch: Any) -> None:
    f = e.feeds(64)
    want, context = e.expected(f), engine.create_execution_context()
    given = {k: torch.from_numpy(x).cuda() for k, x in f.items()}
    out = {k: torch.zeros(y.shape, device="cuda") for k, y in want.items()}
    for name, x in (given | out).items():
        context.set_tensor_address(name, x)
    stream = torch.cuda.Stream()
    for s in (stream, stream.cuda_stream, torch.cuda.default_stream()):
        for y in out.values():
            y.zero_()
        torch.cuda.synchronize()
        assert context.execute_async_v3(s)
        torch.cuda.synchronize()
        same({k: y.cpu().numpy() for k, y in out.items()}, want)
    context.close()
