"""A chain of sums over many weights, some of them packed by their tactic, and what streaming them
must do anywhere.
"""

from __future__ import annotations

from typing import Any

import cuda_engine as e
import numpy as np
from cuda_steps import BLOCK, LAUNCHER

import tactix
from tactix import BuilderFlag
from tactix.base.dims import ceildiv
from tactix.contracts.artifact import (
    KernelArtifact,
    Launch,
    Packed,
    constant,
    scalar,
    tensor_in,
    tensor_out,
)
from tactix.contracts.tactic import Reject, Tactic, Variant
from tactix.plugins.hookspecs import hookimpl
from tactix.run.runtime import Runtime

LAYERS, WIDTHS = 13, {"x": 500, "y": 90}
AGAIN = 3
"""The weight that the last layer reads once more."""


class PackedTactic(Tactic):
    """A sum with a constant that is the artifact's own."""

    key, device, source = "test.packed@1", "cuda", "test"
    implements = ("pointwise",)

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()] if node.name.startswith("packed") else Reject("only layers called so")

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        n = node.outputs[0].spec.numel
        args = (tensor_in(0), constant("w"), tensor_out(0), scalar(n))
        launch = Launch(args, (ceildiv(n, BLOCK),), (BLOCK,))
        own = Packed(-1, array=np.array(node.given[1].spec.const))
        return KernelArtifact(LAUNCHER, (launch,), e.RIGHT.code, constants=(("w", own),))


class Pack:
    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return [e.RIGHT, PackedTactic()]


def weights() -> dict[str, list[Any]]:
    rng = np.random.default_rng(5)
    return {
        k: [rng.standard_normal(n).astype(np.float32) for _ in range(LAYERS)]
        for k, n in WIDTHS.items()
    }


def engine_of(built: tactix.Builder, plan: tactix.Plan, **more: Any) -> Any:
    return Runtime(session=built.session, **more).load(plan)


def plan_of(streaming: bool = True) -> tuple[tactix.Builder, tactix.Plan]:
    """x and y each plus their weights, one of which is read twice; and a + b of any length."""
    session = tactix.Session(plugins=[("test", Pack())], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]  # sums stay apart
    built = tactix.Builder(session=session)
    net = built.create_network("chains")
    held = {k: [net.add_constant(w) for w in ws] for k, ws in weights().items()}
    ends = {k: net.add_input(k, "f32", (n,)) for k, n in WIDTHS.items()}
    a, b = (net.add_input(name, "f32", ("n", 7)) for name in "ab")
    for i in (*range(LAYERS), AGAIN):
        for k, x in ends.items():
            name = f"{'packed' if i % 4 == 1 else 'plain'} {k}{i} {len(net.nodes)}"
            (ends[k],) = net.add_layer("tactix.Add", [x, held[k][i]], name=name)
    for k, x in ends.items():
        net.mark_output(x, f"{k} out")
    net.mark_output(net.add_layer("tactix.Add", [a, b], name="last")[0], "ab")
    flags = {BuilderFlag.WEIGHT_STREAMING} if streaming else set()
    return built, built.build_plan(net, e.config(flags=flags))


def feeds(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {**{k: (w,) for k, w in WIDTHS.items()}, "a": (n, 7), "b": (n, 7)}
    return {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}


def expected(f: dict[str, Any]) -> dict[str, Any]:
    out = {"ab": f["a"] + f["b"]}
    for k, ws in weights().items():
        out[f"{k} out"] = f[k]
        for i in (*range(LAYERS), AGAIN):
            out[f"{k} out"] = out[f"{k} out"] + ws[i]
    return out


def arrays(n: int) -> dict[str, Any]:
    """Inputs and outputs."""
    return {**feeds(n, 0), **expected(feeds(n, 0))}


def budgets(engine: Any) -> list[int]:
    """The smallest, some between, and all."""
    low, size = engine.minimum_weight_streaming_budget, engine.streamable_weights_size
    return [low, low + 64, 2 * low, size // 3, size // 2, size - 64, size]


def check_run(context: Any, n: int, seed: int) -> None:
    got, want = context.run(feeds(n, seed)), expected(feeds(n, seed))
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)


class Placed:
    """A context whose inputs and outputs lie in device memory, with a stream of its own."""

    def __init__(self, engine: Any, memory: Any, n: int) -> None:
        self.device, self.context, self.n = engine.device, engine.create_execution_context(), n
        self.stream = self.device.create_stream()
        self.want, held = expected(feeds(n, 0)), arrays(n)
        self.address = {name: memory.allocate(x.nbytes) for name, x in held.items()}
        for name in feeds(n, 0):
            self.context.set_input_shape(name, held[name].shape)
        for name, address in self.address.items():
            self.context.set_tensor_address(name, address)

    def start(self, seed: int) -> None:
        """Queue inputs and a run of them in its stream."""
        self.want = expected(feeds(self.n, seed))
        held = [(self.address[k], x) for k, x in feeds(self.n, seed).items()]
        self.stream.submit(lambda: [self.device.copy_in(a, x) for a, x in held])
        assert self.context.execute_async_v3(self.stream)

    def check(self) -> None:
        """In the order of its stream, without another wait."""
        for name, want in self.want.items():
            got = np.zeros_like(want)
            self.stream.submit(
                lambda name=name, got=got: self.device.copy_out(got, self.address[name])
            )
            np.testing.assert_array_equal(got, want)


def check_streams(engine: Any, memory: Any, count: int, rounds: int) -> None:
    """Runs of several contexts under way at once, each in a stream of its own."""
    placed = [Placed(engine, memory, 3 + 5 * k) for k in range(count)]
    for seed in range(rounds):
        for k, p in enumerate(placed):
            p.start(100 * seed + k)
        for p in placed[seed % count :] + placed[: seed % count]:
            p.check()
