"""What branches in CUDA graphs are worth: one plan with none, with one, and with as many as are
chosen by default.

Towers of small products that meet at the end, of several widths. Prints microseconds of a run, by
the device's timer, and the bytes of intermediate memory, by ``max_aux_streams``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import tactix
from tactix.run.runtime import Runtime

TOWERS, SIZES = (2, 4, 8, 16), ((1, 512), (64, 256), (512, 1024))
DEPTH, RUNS, ROUNDS = 4, 100, 7


def towers(builder: tactix.Builder, count: int, rows: int, width: int) -> Any:
    """As many towers of products with relu from one input, joined."""
    rng = np.random.default_rng(count)
    net = builder.create_network(f"{count} towers, {rows} x {width}")
    x, ends = net.add_input("x", "f16", (rows, width)), []
    for _ in range(count):
        y = x
        for _ in range(DEPTH):
            w = net.add_constant(
                (rng.standard_normal((width, width)) / width**0.5).astype(np.float16)
            )
            (y,) = net.add_layer("tactix.MatMul", [y, w])
            (y,) = net.add_layer("tactix.Relu", [y])
        ends.append(y)
    (joined,) = net.add_layer("tactix.Concat", ends, axis=1)
    net.mark_output(joined, "y")
    return net


def compared(builder: tactix.Builder, plan: tactix.Plan, x: Any) -> str:
    """Time and memory of the plan; all must give the same bits."""
    contexts, runs, sizes, results = {}, {}, {}, []
    for aux in (0, 1, -1):
        own = replace(plan, meta={**plan.meta, "max_aux_streams": aux})
        engine = Runtime(session=builder.session).load(own)
        contexts[aux], sizes[aux] = engine.create_execution_context(), engine.device_memory_size()
        results.append(contexts[aux].infer([x])[0])
        runs[aux] = partial(engine.device.measure, contexts[aux]._active[0].runnable, RUNS)  # type: ignore[index]
    assert all(np.array_equal(results[0], r) for r in results)
    rounds = [{aux: run() / RUNS for aux, run in runs.items()} for _ in range(ROUNDS)]
    return ", ".join(
        f"{aux}: {min(r[aux] for r in rounds) * 1e6:.1f} us {sizes[aux]} B" for aux in contexts
    )


def main() -> None:
    """A line for each network."""
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        device="tactix.cuda@1",
        builder_optimization_level=0,
        timing_cache=False,
        tactic_sources={"cuda_c"},
    )
    for count in TOWERS:
        for rows, width in SIZES:
            net = towers(builder, count, rows, width)
            plan = builder.build_plan(net, config)
            x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float16)
            print(f"{net.name} ({len(plan.steps)} steps): {compared(builder, plan, x)}", flush=True)


if __name__ == "__main__":
    main()
