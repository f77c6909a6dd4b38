"""A network of sums, a pack whose tactics add on a CUDA device, and what any such device must do
with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda_steps import BLOCK, LAUNCHER

import tactix
from tactix.base.dims import ceildiv
from tactix.contracts.artifact import KernelArtifact, Launch, Source, scalar, tensor_in, tensor_out
from tactix.contracts.tactic import Reject, Tactic, Variant
from tactix.plugins.hookspecs import hookimpl

TEXT = """
extern "C" __global__ void TX_ENTRY(const float* x, const float* y, float* z, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] OP y[i];
}
"""


class SumTactic(Tactic):
    """One Add of two tensors of one shape; ``sign``: what it computes with."""

    device, source = "cuda", "test"
    implements = ("pointwise",)

    def __init__(self, key: str, sign: str) -> None:
        self.key, self.code = key, Source("cuda_c", TEXT.replace("OP", sign))

    def variants(self, node: Any, device: Any) -> Any:
        alike = len({v.spec.shape for v in node.given}) == 1
        names = [n.layer.key for n in node.body.nodes]
        return [Variant()] if names == ["tactix.Add@1"] and alike else Reject("only a bare Add")

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        n = node.outputs[0].spec.numel
        args = (tensor_in(0), tensor_in(1), tensor_out(0), scalar(n))
        return KernelArtifact(LAUNCHER, (Launch(args, (ceildiv(n, BLOCK),), (BLOCK,)),), self.code)


RIGHT, WRONG = SumTactic("test.right@1", "+"), SumTactic("test.wrong@1", "-")


class Pack:
    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return [RIGHT, WRONG]


def builder() -> tactix.Builder:
    session = tactix.Session(plugins=[("test", Pack())], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]  # sums stay apart
    return tactix.Builder(session=session)


def config(**fields: Any) -> tactix.BuilderConfig:
    given = {"device": "tactix.cuda@1", "tactic_sources": {"test"}, "timing_cache": False, **fields}
    return tactix.BuilderConfig(**given)  # type: ignore[arg-type]


def weights() -> Any:
    return np.linspace(-1, 1, 301, dtype=np.float32)


def sums(built: tactix.Builder) -> Any:
    """u = (x + y) + w with a constant w; and v = x + y + x, of any length."""
    net = built.create_network("sums")
    x, y = (net.add_input(name, "f32", (301,)) for name in "xy")
    a, b = (net.add_input(name, "f32", ("n", 7)) for name in "ab")
    (t,) = net.add_layer("tactix.Add", [x, y], name="first")
    (u,) = net.add_layer("tactix.Add", [t, net.add_constant(weights())], name="second")
    (s,) = net.add_layer("tactix.Add", [a, b], name="third")
    (v,) = net.add_layer("tactix.Add", [s, a], name="fourth")
    net.mark_output(u, "u")
    net.mark_output(v, "v")
    return net


def feeds(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (301,), "y": (301,), "a": (n, 7), "b": (n, 7)}
    return {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}


def expected(f: dict[str, Any]) -> dict[str, Any]:
    return {"u": (f["x"] + f["y"]) + weights(), "v": (f["a"] + f["b"]) + f["a"]}


def check_candidates(plan: tactix.Plan) -> None:
    """The right tactic was measured and chosen, the wrong one found out."""
    for name in ("first", "second", "third", "fourth"):
        rows = {r["tactic"]: r for r in plan.ledger["nodes"][name]["candidates"]}
        assert rows["test.wrong@1"]["status"] == "rejected"
        assert "departs from the reference" in rows["test.wrong@1"]["reason"]
        assert rows["test.right@1"]["status"] == "measured"
        assert rows["test.right@1"]["chosen"]


def check_engine(engine: Any) -> None:
    """Shapes one after the other, an empty one among them."""
    for n in (1, 64, 3, 0, 1000, 64):
        f = feeds(n, seed=n)
        got = engine(f)
        for name, want in expected(f).items():
            np.testing.assert_array_equal(got[name], want)


def check_addresses(engine: Any, device: Any, memory: Any) -> None:
    """``execute_v2`` and ``execute_async_v3`` on device memory; ``memory``: an allocator."""
    f = feeds(50, seed=9)
    want = expected(f)
    sizes = [x.nbytes for x in (*f.values(), *want.values())]
    addresses = [memory.allocate(s) for s in sizes]
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    place = dict(zip(names, addresses, strict=True))
    context = engine.create_execution_context()
    for name, x in f.items():
        context.set_input_shape(name, x.shape)
        device.copy_in(place[name], x)
    results = {name: np.zeros_like(y) for name, y in want.items()}

    def fetched() -> dict[str, Any]:
        for name, y in results.items():
            device.copy_out(y, place[name])
        return results

    assert context.execute_v2(addresses)
    for name, y in fetched().items():
        np.testing.assert_array_equal(y, want[name])
    for name in names:
        context.set_tensor_address(name, place[name])
    stream = device.create_stream()
    for name in want:
        device.copy_in(place[name], np.zeros_like(want[name]))
    assert context.execute_async_v3(stream)
    stream.synchronize()
    for name, y in fetched().items():
        np.testing.assert_array_equal(y, want[name])
