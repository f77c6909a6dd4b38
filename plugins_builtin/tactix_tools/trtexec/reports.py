"""What trtexec tells of a run: its sections, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tactix.base.files import replacing
from tactix_tensorrt import api as trt
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.options import ReportingOptions
from tactix_tools.trtexec.queries import Measured, QueryTimes

ROWS: dict[str, Callable[[QueryTimes], float]] = {
    "Latency": lambda q: q.latency,
    "Enqueue Time": lambda q: q.enqueue,
    "H2D Latency": lambda q: q.h2d,
    "GPU Compute Time": lambda q: q.compute,
    "D2H Latency": lambda q: q.d2h,
}
BUSY = 0.8
"""Share of the compute time from which on launching is what holds a device up."""

EXPLANATIONS = """
=== Explanations of the performance metrics ===
Total Host Walltime: from the first query after warming up to the end of the last.
GPU Compute Time: what a query takes on the device; without a GPU, on the processor.
Total GPU Compute Time: the sum of it over all queries.
Throughput: queries divided by Total Host Walltime.
Enqueue Time: what launching a query takes on the host; without a GPU, the whole query.
H2D Latency: what copies of inputs to the device take; without a GPU, 0: nothing is copied.
D2H Latency: what copies of outputs from the device take; without a GPU, 0.
Latency: the sum of H2D Latency, GPU Compute Time and D2H Latency."""


@dataclass(frozen=True)
class Spread:
    """Of one kind of times, in ms. ``percentiles``: by percent."""

    low: float
    high: float
    mean: float
    median: float
    percentiles: dict[float, float]

    def __str__(self) -> str:
        parts = [f"min = {self.low:.6g} ms", f"max = {self.high:.6g} ms"]
        parts += [f"mean = {self.mean:.6g} ms", f"median = {self.median:.6g} ms"]
        parts += [f"percentile({p:.6g}%) = {v:.6g} ms" for p, v in self.percentiles.items()]
        return ", ".join(parts)


def spread(times: Sequence[float], percentiles: Sequence[float]) -> Spread:
    """Percentiles are as TensorRT's: the highest time once the share above it is left out."""
    found, count = sorted(times), len(times)
    return Spread(
        low=found[0],
        high=found[-1],
        mean=sum(found) / count,
        median=median(found),
        percentiles={
            p: found[max(0, count - 1 - int((100 - p) * count / 100))] for p in percentiles
        },
    )


def median(ascending: Sequence[float]) -> float:
    n = len(ascending)
    return (ascending[(n - 1) // 2] + ascending[n // 2]) / 2


def print_performance(
    found: Measured, options: ReportingOptions, warm_up: float, on_host: bool, lines: ReportLines
) -> None:
    """Averages of runs of queries, and the summary."""
    count = len(found.queries)
    lines.info(f"Warmup completed {found.warm_ups} queries over {warm_up:.6g} ms")
    lines.info(f"Timing trace has {count} queries over {found.wall / 1e3:.6g} s")
    lines.info()
    lines.info("=== Trace details ===")
    lines.info(f"Trace averages of {options.averaged} runs:")
    _print_averages(found.queries, options.averaged, lines)
    rows = {
        name: spread([get(q) for q in found.queries], options.percentiles)
        for name, get in ROWS.items()
    }
    compute = rows["GPU Compute Time"]
    lines.info()
    lines.info("=== Performance summary ===")
    lines.info(f"Throughput: {count / found.wall * 1e3:.6g} qps")
    for name, row in rows.items():
        lines.info(f"{name}: {row}")
    lines.info(f"Total Host Walltime: {found.wall / 1e3:.6g} s")
    lines.info(f"Total GPU Compute Time: {compute.mean * count / 1e3:.6g} s")
    if on_host:
        lines.info(
            "The engine is the processor's: nothing is transferred, and launching is running"
        )
    else:
        _warn_of_bounds(rows, lines)
    lines.info("Explanations of the performance metrics are printed in the verbose logs.")
    lines.tell(EXPLANATIONS)
    lines.info()


def _print_averages(queries: Sequence[QueryTimes], size: int, lines: ReportLines) -> None:
    """Of whole runs of that many queries."""
    for i in range(0, len(queries) - size + 1, size):
        run = queries[i : i + size]
        compute, latency, enqueue = (
            sum(get(q) for q in run) / size
            for get in (ROWS["GPU Compute Time"], ROWS["Latency"], ROWS["Enqueue Time"])
        )
        lines.info(
            f"Average on {size} runs - GPU latency: {compute:.6g} ms - Host latency: "
            f"{latency:.6g} ms (enqueue {enqueue:.6g} ms)"
        )


def _warn_of_bounds(rows: Mapping[str, Spread], lines: ReportLines) -> None:
    """What may keep a device waiting."""
    compute = rows["GPU Compute Time"].median
    bounds = {
        "Enqueue Time": rows["Enqueue Time"].median > BUSY * compute,
        "host-to-device transfers for the inputs": rows["H2D Latency"].median >= compute,
        "device-to-host transfers for the outputs": rows["D2H Latency"].median >= compute,
    }
    for name, held in bounds.items():
        if held:
            lines.warn(f"* Throughput may be bound by {name} rather than GPU Compute.")


def export_times(path: str, queries: Sequence[QueryTimes]) -> None:
    """A list of queries."""
    _write(
        path,
        [
            {
                "startEnqMs": q.enqueue_start,
                "endEnqMs": q.enqueue_end,
                "startH2dMs": q.h2d_start,
                "endH2dMs": q.h2d_end,
                "startComputeMs": q.compute_start,
                "endComputeMs": q.compute_end,
                "startD2hMs": q.d2h_start,
                "endD2hMs": q.d2h_end,
                "h2dMs": q.h2d,
                "computeMs": q.compute,
                "d2hMs": q.d2h,
                "latencyMs": q.latency,
            }
            for q in queries
        ],
    )


def export_output(path: str, outputs: Mapping[str, Any]) -> None:
    """A list of outputs: ``name``, ``dimensions`` as text, ``values``."""
    _write(
        path,
        [
            {"name": name, "dimensions": as_trtexec(a.shape), "values": a.ravel().tolist()}
            for name, a in outputs.items()
        ],
    )


def export_layers(path: str, engine: trt.ICudaEngine) -> None:
    """What the engine's inspector says."""
    told = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    _write(path, json.loads(told))


def _write(path: str, content: object) -> None:
    with replacing(path) as f:
        f.write(f"{json.dumps(content, indent=1)}\n".encode())


def print_layers(engine: trt.ICudaEngine, lines: ReportLines) -> None:
    """One a line, and the names of inputs and outputs."""
    told = engine.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.ONELINE
    )
    lines.info("Layer Information:\nLayers:")
    lines.info(told.rstrip("\n"))
    lines.info("\n".join(["Bindings:", *engine]))


def print_profiles(engine: trt.ICudaEngine, lines: ReportLines) -> None:
    """Shapes of every profile."""
    for index in range(engine.num_optimization_profiles):
        lines.info(f"Optimization Profile {index}:")
        for io in engine.native.inputs:
            told = (as_trtexec(list(d)) for d in engine.get_tensor_profile_shape(io.name, index))
            lines.info(f"  {io.name}: {', '.join(map('='.join, zip(RANGES, told, strict=True)))}")


RANGES = ("min", "opt", "max")


def print_output(outputs: Mapping[str, Any], lines: ReportLines) -> None:
    """All values of all outputs."""
    lines.info("Output Tensors:")
    for name, array in outputs.items():
        lines.info(f"{name}: ({as_trtexec(array.shape)})")
        lines.info(" ".join(f"{v:.6g}" for v in array.ravel().tolist()))


def write_raw(arrays: Mapping[str, Any], kind: str) -> list[str]:
    """Each array's bytes in a file of the current folder; their names. ``kind``: input, output."""
    out = []
    for name, array in arrays.items():
        dims = ".".join(map(str, array.shape))
        path = f"{name.replace('/', '_')}.{kind}.{dims}.{array.dtype.name}.raw"
        Path(path).write_bytes(array.tobytes())
        out.append(path)
    return out


class LayerTimes(trt.IProfiler):
    """Milliseconds of each layer in each query."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[float]] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.rows.setdefault(layer_name, []).append(ms)

    @property
    def count(self) -> int:
        """Queries."""
        return max(map(len, self.rows.values()), default=0)

    def as_json(self) -> list[dict[str, object]]:
        """The number of queries, then a layer each."""
        total = sum(map(sum, self.rows.values())) or 1.0
        layers: list[dict[str, object]] = [
            {
                "name": name,
                "timeMs": sum(times),
                "averageMs": sum(times) / len(times),
                "medianMs": median(sorted(times)),
                "percentage": sum(times) / total * 100,
            }
            for name, times in self.rows.items()
        ]
        return [{"count": self.count}, *layers]

    def export(self, path: str) -> None:
        _write(path, self.as_json())

    def print(self, lines: ReportLines) -> None:
        """A table."""
        lines.info()
        lines.info(f"=== Profile ({self.count} iterations ) ===")
        head = "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer"
        lines.info(head)
        for row in self.as_json()[1:]:
            lines.info(
                f"{row['timeMs']:11.2f}  {row['averageMs']:11.4f}  {row['medianMs']:11.4f}"
                f"  {row['percentage']:8.1f}   {row['name']}"
            )
