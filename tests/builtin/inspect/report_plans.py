"""Plans that reports are made of: a small network, a large one, and one whose names are hostile."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Operand, Step
from tactix.plan.schema import Buffer, Plan, TensorIO
from tactix_inspect.profile import PlanProfile, Roofline, StepTime

MODELS = Path(__file__).resolve().parents[2] / "models"

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>${document}"
)


def built(name: str, **fields: Any) -> Plan:
    """A model of tests/models by estimates alone, without kernels that need a compiler."""
    builder = tactix.Builder()
    settings = {"timing_cache": False, "builder_optimization_level": 0, "threads": 1, **fields}
    settings.setdefault("tactic_sources", {"numpy", "view", "control"})
    return builder.build_plan(builder.import_model(MODELS / name), tactix.BuilderConfig(**settings))


def profile_of(plan: Plan) -> PlanProfile:
    """Three runs of a plan of the model ``lenet``, with made-up work and peaks."""
    session = tactix.Session(group="runtime")
    engine = tactix.Runtime(session=session, on_untrusted="allow", max_threads=1).load(plan)
    context = engine.create_execution_context()
    runs: list[list[float]] = []

    class Times:
        def report_layer_time(self, name: str, milliseconds: float) -> None:
            runs[-1].append(milliseconds / 1e3)

    context.profiler = Times()
    for _ in range(3):
        runs.append([])
        context.run({"x": np.zeros((1, 1, 28, 28), np.float32)})
    steps, start = [], 0.0
    for i, (s, seconds) in enumerate(zip(plan.steps, zip(*runs, strict=True), strict=True)):
        median = statistics.median(seconds)
        times = (median, min(seconds), max(seconds), start, (median, median / 2))
        steps.append(StepTime(i, s.name, "", "", *times, 4096, 100_000 * (i % 3), 0.5))
        start += median
    roofline = Roofline({"f32": 1e11}, 1e10)
    shapes: Mapping[str, tuple[int, ...]] = {"x": (1, 1, 28, 28)}
    return PlanProfile(
        plan.name, "", {}, 2, 3, "profiler", shapes, start, start, tuple(steps), roofline
    )


def large(count: int) -> Plan:
    """So many steps that run nothing: chains of four side by side, which join, and a value from the
    first that is read all the way down.
    """
    spec = TensorSpec(DType.FP32, (1, 64))
    names = ["x", *(f"tensor {i}" for i in range(count))]
    reads = [{0} if i < 4 else {i - 3} | ({i - 2} if i % 4 == 0 else set()) for i in range(count)]
    for i in range(40, count, 40):
        reads[i].add(1)
    last = {b: i for i, read in enumerate(reads) for b in read}
    buffers = [
        Buffer("arena", n, DType.FP32, (1, 64), LINEAR, 256, max(0, i - 1), last.get(i, count - 1))
        for i, n in enumerate(names)
    ]
    buffers[0] = replace(buffers[0], kind="input", first=-1, last=-1)
    buffers[-1] = replace(buffers[-1], kind="output", first=-1, last=-1)
    body = [
        {"layer": "tactix.MatMul@1", "name": "inner product", "attrs": {}},
        {"layer": "tactix.Relu@1", "name": "inner relu", "attrs": {"axis": 1}},
    ]
    steps = [
        Step(
            f"/block.{i // 12}/layer.{i}/MatMul",
            KernelArtifact("tactix.cpu.elf@1"),
            tuple(Operand(b, spec, LINEAR) for b in sorted(reads[i])),
            (Operand(i + 1, spec, LINEAR),),
            info={
                "tactic": f"tactix.c_{('gemm', 'conv', 'norm')[i % 3]}@1",
                "seconds": 1e-6 * (1 + i % 17),
                "layers": ["tactix.MatMul@1", "tactix.Relu@1"],
                "origin": [
                    f"/block.{i // 12}/layer.{i}/MatMul",
                    f"/block.{i // 12}/layer.{i}/Relu",
                ],
                "makes": [f"onnx tensor {i}"],
                "reference": {"body": {"nodes": body}},
            },
        )
        for i in range(count)
    ]
    x, y = (TensorIO(n, b, DType.FP32, (1, 64)) for n, b in (("x", 0), ("y", count)))
    return Plan("large", (x,), (y,), (), tuple(buffers), tuple(steps), ledger=ledger(steps))


def ledger(steps: list[Step[Plan]]) -> dict[str, Any]:
    """As a build would write it, with two candidates of each step."""
    rows = {
        s.name: {
            "kind": "tactix.MatMul@1",
            "origin": s.info["origin"],
            "candidates": [
                {"tactic": "tactix.c_gemm@1", "variant": "rows=4", "status": "measured"}
                | {"chosen": True, "seconds": 1e-6, "spread": 0.02},
                {"tactic": "tactix.c_matmul@1", "variant": "rows=8", "status": "measured"}
                | {"chosen": False, "seconds": 2e-6, "spread": 0.1, "near_tie": True},
            ],
            "rejections": [{"tactic": "tactix.c_amx@1", "reason": "the processor has no tiles"}],
        }
        for s in steps
    }
    fusion: dict[str, Any] = {"fired": [], "nearly": [], "split": []}
    return {"nodes": rows, "fusion": fusion, "predicted_seconds": 1e-3}


def hostile(plan: Plan) -> Plan:
    """The plan with names that would be code, were they ever taken for HTML."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return value + HOSTILE
        if isinstance(value, Mapping):
            return {k: changed(v) for k, v in value.items()}
        return [changed(v) for v in value] if isinstance(value, (list, tuple)) else value

    rows = {
        name + HOSTILE: {**changed({**row, "candidates": []}), "candidates": [
            {**c, **{k: changed(c[k]) for k in ("tactic", "variant")}, "reason": HOSTILE}
            for c in row["candidates"]
        ]}
        for name, row in plan.ledger["nodes"].items()
    }  # fmt: skip
    return replace(
        plan,
        name=plan.name + HOSTILE,
        inputs=tuple(replace(io, name=io.name + HOSTILE) for io in plan.inputs),
        steps=tuple(replace(s, name=s.name + HOSTILE, info=changed(s.info)) for s in plan.steps),
        buffers=tuple(replace(b, name=b.name + HOSTILE) for b in plan.buffers),
        ledger={**plan.ledger, "nodes": rows, "rules": {HOSTILE: 1}},
        device=changed(plan.device),
        meta={**plan.meta, "tactix": HOSTILE},
    )
