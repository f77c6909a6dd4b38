#!/usr/bin/env python3
"""Seconds of a level 0 build of networks of many nodes, by phase, and of the processor in all.

    python tests/benchmarks/large_builds.py [--nodes 5000,10000,20000] [--network blocks,chain] [--profile]

``blocks``: an ONNX model of layers of twenty nodes, a product, a normalization and an activation
written out, and moves; ``chain``: additions of its input. Nothing but the few kernels that these
differ in is compiled; objects come from the cache after the first build. ``--profile``: what takes
longest, of the last. Prints Markdown.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np
from build_cost import Clock

PHASES = ("fuse", "bid", "choose", "assemble", "kernels")
WIDTH = 32
BLOCK = 20
"""Nodes of a layer of ``blocks``."""


def blocks(nodes: int) -> bytes:
    """A model of layers over (4, WIDTH)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    steps: list[Any] = []
    scalars = {"two": 2.0, "eps": 1e-5, "half": 0.5}
    constants = [numpy_helper.from_array(np.float32(v), name) for name, v in scalars.items()]
    constants.append(numpy_helper.from_array(np.array([2, 2, WIDTH]), "split"))
    constants.append(numpy_helper.from_array(np.array([4, WIDTH]), "joined"))
    last = "x"

    def step(op: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(steps)}"
        steps.append(helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attrs))
        return name

    for i in range(nodes // BLOCK):
        weight = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH
        bias = rng.standard_normal(WIDTH).astype(np.float32)
        constants += [
            numpy_helper.from_array(weight, f"w{i}"),
            numpy_helper.from_array(bias, f"b{i}"),
        ]
        y = step("Add", step("MatMul", last, f"w{i}"), f"b{i}")
        y = step("Mul", step("Mul", y, step("Sigmoid", y)), "half")
        y = step(
            "Reshape", step("Transpose", step("Reshape", y, "split"), perm=[1, 0, 2]), "joined"
        )
        y = step("Add", y, last)
        off = step("Sub", y, step("ReduceMean", y, axes=[-1]))
        variance = step("ReduceMean", step("Pow", off, "two"), axes=[-1])
        y = step("Div", off, step("Sqrt", step("Add", variance, "eps")))
        y = step("Relu", step("Add", step("Mul", y, f"b{i}"), f"b{i}"))
        last = step("Tanh", y)
    shape = (4, WIDTH)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", last))
    graph = helper.make_graph(steps, "blocks", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return model.SerializeToString()


def chain(nodes: int) -> bytes:
    """A model of additions."""
    from onnx import TensorProto, helper

    names = ["x", *(f"t{i}" for i in range(nodes))]
    steps = [helper.make_node("Add", [a, "x"], [b]) for a, b in pairwise(names)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", names[-1]))
    graph = helper.make_graph(steps, "chain", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


NETWORKS = {"blocks": blocks, "chain": chain}


def built(model: bytes) -> dict[str, float]:
    """Seconds of each phase, of the import, of the plan's bytes, and of all; of the processor, too."""
    import tactix
    from tactix.plan import container

    start, clock, began = time.perf_counter(), Clock(), os.times()
    builder = tactix.Builder()
    network = builder.import_model(model)
    imported = time.perf_counter()
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    config.progress_monitor = clock
    plan = builder.build_plan(network, config)
    planned = time.perf_counter()
    container.dump(plan)
    end, ended = time.perf_counter(), os.times()
    processor = sum(ended[:4]) - sum(began[:4])  # this process and those that it ran
    whole = {"import": imported - start, "dump": end - planned, "seconds": end - start}
    whole["processor s"] = processor
    return {**clock.seconds, **whole}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--nodes", default="5000,10000,20000")
    parser.add_argument("--network", default="blocks,chain")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args(arguments)
    columns = ("import", *PHASES, "dump", "seconds", "processor s")
    built(blocks(BLOCK))  # imports, and the compiler's version
    print("| network | nodes | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 2) + "|")
    profile = cProfile.Profile()
    for name in args.network.split(","):
        for nodes in map(int, args.nodes.split(",")):
            model = NETWORKS[name](nodes)
            if args.profile:
                profile = cProfile.Profile()
                seconds = profile.runcall(built, model)
            else:
                seconds = built(model)
            row = " | ".join(f"{seconds.get(c, 0.0):.2f}" for c in columns)
            print(f"| {name} | {nodes} | {row} |", flush=True)
    if args.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    return 0


if __name__ == "__main__":
    sys.exit(main())
