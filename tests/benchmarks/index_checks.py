#!/usr/bin/env python3
"""What it costs to look whether indices are in range: kernels that report, beside kernels that
clamp.

    python tests/benchmarks/index_checks.py [--rounds 400] [MODEL.onnx ...]

Each model is built twice with the same choices; the second time the kernels of Gather,
GatherElements and GatherND keep every index within its axis instead, and the run looks for no
report. The two take turns; a round is the quotient of their times over some calls, and the figure
the median over the rounds, with its quartiles. Without models, small ones are made: one of 26
tables and a small product (as recommenders have them), one of two tables and a transformer's first
products, and one that only reads rows. Prints Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tactix
from tactix.contracts.artifact import KernelArtifact, Source, scalar
from tactix_cpu.tactics.move.gather import GatherTactic

CLAMPED = """
TX_INLINE int64_t tx_clamped(int64_t i, int64_t size) {
    i = i < 0 ? i + size : i;
    return i < 0 ? 0 : i < size ? i : size - 1;
}
#define tx_index(i, size, fault) tx_clamped(i, size)
"""
SECONDS = 0.005
"""Of calls in each half of a round, about."""


def unchecked(a: KernelArtifact) -> KernelArtifact:
    """The artifact with kernels that clamp."""
    assert isinstance(a.code, Source)
    launches = tuple(
        replace(x, args=tuple(scalar(0) if arg.kind == "fault" else arg for arg in x.args))
        for x in a.launches
    )
    return replace(a, code=replace(a.code, text=CLAMPED + a.code.text), launches=launches)


@contextmanager
def clamping() -> Iterator[None]:
    """Builds inside make kernels that clamp."""
    checked = GatherTactic.compile
    GatherTactic.compile = lambda *args: unchecked(checked(*args))  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        GatherTactic.compile = checked  # type: ignore[method-assign]


def model(
    nodes: list[Any], inputs: dict[str, list[int]], constants: dict[str, Any]
) -> onnx.ModelProto:
    """From int64 inputs to one output, ``y``."""
    graph = helper.make_graph(
        nodes, "indices",
        [helper.make_tensor_value_info(k, onnx.TensorProto.INT64, s) for k, s in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, k) for k, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def recommender(batch: int) -> onnx.ModelProto:
    """26 tables of 10,000 rows of 64, a product of all rows by 256."""
    nodes = [helper.make_node("Gather", [f"t{k}", f"i{k}"], [f"r{k}"]) for k in range(26)]
    nodes.append(helper.make_node("Concat", [f"r{k}" for k in range(26)], ["all"], axis=1))
    nodes += [
        helper.make_node("MatMul", ["all", "w"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    tables = {f"t{k}": np.full((10000, 64), k, np.float32) for k in range(26)}
    weights = {"w": np.ones((26 * 64, 256), np.float32)}
    return model(nodes, {f"i{k}": [batch] for k in range(26)}, tables | weights)


def transformer(tokens: int) -> onnx.ModelProto:
    """Words and places of 768 numbers, and the first product of a layer."""
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["a"]), helper.make_node("Gather", ["places", "at"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]  # fmt: skip
    tables = {
        "words": np.ones((50257, 768), np.float32),
        "places": np.ones((1024, 768), np.float32),
    }
    return model(
        nodes,
        {"ids": [1, tokens], "at": [1, tokens]},
        tables | {"w": np.ones((768, 2304), np.float32)},
    )


def rows(count: int, width: int) -> onnx.ModelProto:
    """Nothing but reading."""
    return model(
        [helper.make_node("Gather", ["t", "i"], ["y"])],
        {"i": [count]},
        {"t": np.ones((4096, width), np.float32)},
    )


MADE = {
    "26 tables, batch 1": lambda: recommender(1), "26 tables, batch 128": lambda: recommender(128),
    "transformer, 1 token": lambda: transformer(1), "transformer, 128 tokens": lambda: transformer(128),
    "only rows: 4096 of 16": lambda: rows(4096, 16),
}  # fmt: skip


def feeds(engine: tactix.Engine) -> list[Any]:
    """Zeros for numbers; small indices, in no order."""
    rng = np.random.default_rng(0)
    shapes = [[d if isinstance(d, int) else 8 for d in i.shape] for i in engine.inputs]
    return [
        (rng.integers(0, 16, s) if i.dtype.is_int else np.zeros(s)).astype(i.dtype.numpy)
        for i, s in zip(engine.inputs, shapes, strict=True)
    ]


def caller(engine: tactix.Engine) -> Any:
    """A call by addresses, whose arrays live as long as it."""
    context, given = engine.create_execution_context(), feeds(engine)
    held = [*given, *context.infer(given)]
    bindings = [a.__array_interface__["data"][0] for a in held]
    return lambda held=held: context.execute_v2(bindings)


def seconds(call: Any, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def quotients(source: Any, rounds: int) -> tuple[list[float], float]:
    """Checked over unchecked by round, and the seconds of a checked call."""
    checked = caller(tactix.build(source, level=0, threads=1))
    with clamping():
        plain = caller(tactix.build(source, level=0, threads=1))
    one = min(seconds(checked, 1) for _ in range(20))
    times = max(1, int(SECONDS / one))
    found = []
    for k in range(rounds):
        pair = [(checked, plain), (plain, checked)][k % 2]
        took = {id(call): seconds(call, times) for call in pair}
        found.append(took[id(checked)] / took[id(plain)])
    return found, one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("models", nargs="*", type=Path)
    options = parser.parse_args()
    sources = {p.stem: p for p in options.models} or {name: make() for name, make in MADE.items()}
    print("| model | call | checked over clamped: median (quartiles) |\n|---|---|---|")
    for name, source in sources.items():
        found, one = quotients(source, options.rounds)
        low, middle, high = statistics.quantiles(found, n=4)
        print(
            f"| {name} | {one * 1e6:.1f} us | {middle:.4f} ({low:.4f} to {high:.4f}) |", flush=True
        )


if __name__ == "__main__":
    main()
