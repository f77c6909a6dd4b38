"""Whether times of kernels in another process can be compared with those taken here: the same
candidates, both ways.

    python tests/benchmarks/market_times.py [--threads 1] [--repeats 5]

Every candidate of tactix for a few layers is measured in this process and, as if it were a
stranger's, in the worker, in turns as a build does it. Printed: microseconds here and there, their
ratio, and, to compare with, the ratio of the same candidate twice in this process; at last the
median and extremes of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

import tactix
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import CompileContext
from tactix.network.definition import NetworkDefinition
from tactix.select.bench import Bench
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Bids, Candidate, Terms, bid
from tactix.select.interleave import interleave
from tactix_isolate.bench import CpuBench

CASES: tuple[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]], ...] = (
    ("tactix.Relu", ((1, 64, 56, 56),), {}),
    ("tactix.Relu", ((8, 1000),), {}),
    ("tactix.MatMul", ((1, 64), (64, 64)), {}),
    ("tactix.MatMul", ((128, 768), (768, 768)), {}),
    ("tactix.MatMul", ((12, 128, 64), (12, 64, 128)), {}),
    ("tactix.Softmax", ((12, 128, 128),), {"axis": -1}),
    ("tactix.Convolution", ((1, 64, 56, 56), (64, 64, 3, 3)),
     {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1), "group": 1}),
    ("tactix.Convolution", ((1, 32, 112, 112), (32, 1, 3, 3)),
     {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1), "group": 32}),
)  # fmt: skip


def bids(session: tactix.Session, context: CompileContext, toolchain: Toolchain) -> Iterator[Bids]:
    for layer, shapes, attrs in CASES:
        net = NetworkDefinition(session.layers)
        (y,) = net.add_layer(
            layer, [net.add_input(f"x{i}", "f32", s) for i, s in enumerate(shapes)], **attrs
        )
        net.mark_output(y)
        yield bid(net.nodes[0], session.active_tactics(), context, Terms(2, None, toolchain.lacks))


def times(
    b: Bids, c: Candidate, here: Bench, there: CpuBench, made: Any, repeats: int
) -> list[float]:
    """Seconds here, there, and here again: medians of what a build would take for the time."""
    arrays, want = there.trial(b.node, {})
    trial = there.of(c)
    other, got = trial.prepare(b.node, with_binary(c.artifact, made), c.variant, arrays, {})
    assert trial.check(b.node, c.variant, got, want) <= 1
    own, held = (
        here.prepare(b.node, with_binary(c.artifact, made), c.variant, arrays, {})[0],
        here.keep(),
    )
    again, _ = here.prepare(b.node, with_binary(c.artifact, made), c.variant, arrays, {})
    taken = [
        [min(s) for s in interleave(there.measure, [own, other, again])] for _ in range(repeats)
    ]
    del held
    return [median(column) for column in zip(*taken)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    session = tactix.Session(discover=True)
    device = session.devices["tactix.cpu@1"]
    context = CompileContext(device.properties(), {}, options.threads)
    toolchain = Toolchain(c for c in session.compilers.values() if c.launcher == "tactix.cpu.elf@1")
    link = LinkContext(device, options.threads, session.layers.__getitem__)
    here = Bench(link, session.launchers)
    there = CpuBench(
        link, session.launchers, None, {e.key: e.provider for e in session.tactics.entries()}
    )
    ratios: list[tuple[float, float]] = []
    for b in bids(session, context, toolchain):
        candidates = [c for c in b.candidates if not c.artifact.alias]
        made = toolchain.compile((c.artifact for c in candidates), context.device)
        for c in candidates:
            a, z, again = times(b, c, here, there, made, options.repeats)
            ratios.append((z / a, again / a))
            print(
                f"{b.node.kind:24} {c.title:52} {a * 1e6:10.2f} {z * 1e6:10.2f} {z / a:6.3f} {again / a:6.3f}",
                flush=True,
            )
    for what, found in zip(("there", "here again"), zip(*ratios)):
        print(
            f"{what}: median {median(found):.3f}, from {min(found):.3f} to {max(found):.3f}, of {len(found)} candidates"
        )


if __name__ == "__main__":
    main()
