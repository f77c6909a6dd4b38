#!/usr/bin/env python3
"""What batching brings a server: clients ask one plan at a fixed rate, and as fast as it answers,
with batching and without.

    tactix build bert_base.onnx -o bert_base.plan --device cuda --precision fp16 \\
        --min-shapes ... --opt-shapes ... --max-shapes ...
    python tests/benchmarks/serving_rate.py bert_base.plan --model bert_base.onnx [--rate 2000]
        [--protocols grpc,http] [--front-ends auto] [--seconds 10] [--warm 4] [--clients 8]
        [--max-batch 64] [--window 0.004] [--target 0.02] [--single one.plan] [--outputs pooled]
        [--module model.pt]

``--single``: a plan for requests one by one, perhaps tuned for one sample; by default the same.
``--front-ends``: as of ``tactix serve``. Requests are of one sample; those at a rate begin when
their time has come, whether earlier ones are answered or not, as those of many users do.
``--outputs``: which are asked for; by default all. ``--module``: the same network as a torch module
that ``torch.save`` wrote, which torch.compile then runs behind the same server (``served_peers.py``;
its classes must be importable). Before each load that counts the same load runs
for ``--warm`` seconds.

Printed are answers a second, percentiles of the time from a request's due time to its answer, what
failed, the largest departure from the engine's own answer (one of 50 answers is compared), and the
processor time: of the process that has the models, of the front ends and of the clients together,
in microseconds an answer and, in brackets, how busy the busiest one was. A second table tells of
each run of a batch or of one request, from the server's metrics, with the load before that warms
up: rows and those of padding; microseconds of putting inputs together, of ``run`` with the way to a
thread and back, of cutting outputs ``apart``; of these on a GPU ``submit`` with the copy into
pinned memory, ``wait`` and ``take`` from pinned memory; kilobytes to the host; and of all runs
together how many shapes were ``bound``, ``graphs`` made and nodes of graphs ``changed``; runs by
size. Exits with 1 if the departure is over 2 %, or a request failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs
from rounds import words
from served_peers import describe, served
from served_processes import Served, serving
from serving_clients import WIRES, ClientLoad, ClientOrder, client

import tactix
from tactix_serve.supervisor import automatic_front_ends

NAME, MOST, DIFFERENT = "served", 0.02, 8
"""``DIFFERENT``: samples of a client."""
HEADS = ("requests", "protocol", "load", "answers a second", "p50 ms", "p99 ms", "failed",
         "departure", "engine us", "front ends us", "clients us")  # fmt: skip


PARTS = ("requests", "protocol", "load", "runs", "rows", "padding", "together", "run", "apart",
         "submit", "wait", "take", "kB out", "bound", "graphs", "changed", "sizes")  # fmt: skip


def parts(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """From "runs" on, of what a server has counted meanwhile."""
    more = {k: after[k] - before.get(k, 0.0) for k in after}

    def of(metric: str, *values: str) -> float:
        asked = [f'"{value}"' for value in values]
        return sum(
            v for k, v in more.items() if k.startswith(metric) and all(a in k for a in asked)
        )

    def device(what: str) -> float:
        return of("tactix_device_total", what)

    sizes = {
        int(found[1]): int(count)
        for name, count in more.items()
        if (found := re.match(r'tactix_batches_total.*rows="(\d+)"', name)) and count
    }
    batches = sum(sizes.values())
    runs = max(1, batches or device("host_runs"))
    out = [f"{batches or device('host_runs'):.0f}"]
    out += [f"{of(f'tactix_batch_{name}_total') / runs:.1f}" for name in ("rows", "padding")]
    for name in ("together", "run", "apart"):
        out.append(f"{of('tactix_batch_seconds_total', name) / runs * 1e6:.0f}")
    for name in ("submit", "wait", "take"):
        out.append(f"{device(f'{name}_seconds') / runs * 1e6:.0f}")
    out.append(f"{device('to_host_bytes') / runs / 1e3:.0f}")
    out += [f"{device(name):.0f}" for name in ("binds", "graphs", "changed_nodes")]
    return [*out, " ".join(f"{n}: {k}" for n, k in sorted(sizes.items()))]


def put(plan: Path, folder: Path, config: str) -> None:
    """The plan into a repository."""
    place = folder / NAME / "1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.plan").write_bytes(plan.read_bytes())
    (folder / NAME / "config.toml").write_text(config)


def processor(before: Sequence[float], after: Sequence[float], took: float, answers: int) -> str:
    """Of processes, for each answer, and of the busiest for each second."""
    used = [b - a for a, b in zip(before, after, strict=False)]
    if not used:
        return "-"
    return f"{sum(used) / max(1, answers) * 1e6:.0f} ({max(used) / took:.0%})"


@dataclass(frozen=True)
class RateTable:
    """What the lines have in common."""

    args: argparse.Namespace
    order: ClientOrder
    pool: ProcessPoolExecutor
    parts: list[str] = field(default_factory=list)

    def loads(self, order: ClientOrder) -> tuple[list[ClientLoad], float]:
        begin = time.perf_counter()
        loads = list(self.pool.map(client, [order] * self.args.clients))
        return loads, time.perf_counter() - begin

    def line(self, server: Served, kind: str, protocol: str, rate: float) -> tuple[str, bool]:
        """Of one load; whether it was right."""
        port = {"http": server.http, "grpc": server.grpc}[protocol]
        per_client = rate / self.args.clients
        order = replace(self.order, protocol=protocol, port=port, rate=per_client)
        counted = server.counters()
        self.loads(replace(order, seconds=self.args.warm))
        before = server.processor()
        loads, took = self.loads(order)
        after = server.processor()
        found = parts(counted, server.counters())
        times = np.sort([t for x in loads for t in x.times]) * 1e3
        failed = [f for x in loads for f in x.failed]
        departure = max(x.departure for x in loads)
        p50, p99 = np.percentile(times, (50, 99)) if len(times) else (np.nan, np.nan)
        asked = f"{rate:g} a second" if rate else "at once"
        self.parts.append(f"| {' | '.join([kind, protocol, asked, *found])} |")
        rows = [kind, protocol, asked, f"{len(times) / took:.0f}", f"{p50:.2f}", f"{p99:.2f}"]
        rows += [str(len(failed)), f"{departure:.1e}"]
        rows += [processor(before[r], after[r], took, len(times)) for r in before]
        used = [x.processor for x in loads]
        rows.append(processor([0.0] * len(used), used, took, len(times)))
        text = f"| {' | '.join(rows)} |"
        return "\n".join([text, *failed[:1]]), not failed and departure <= MOST


def answers(args: argparse.Namespace) -> ClientOrder:
    """Requests, and what the engine gives for them."""
    feeds = [make_inputs(args.model, 1, seed) for seed in range(DIFFERENT)]
    engine = tactix.load(args.plan)
    context = engine.create_execution_context()
    found = [context.run(feed) for feed in feeds]
    chosen = args.outputs or [io.name for io in engine.outputs]
    want: list[dict[str, Any]] = [{name: np.asarray(y[name]) for name in chosen} for y in found]
    engine.close()
    return ClientOrder("grpc", 0, NAME, 0.0, args.seconds, feeds, want)


@dataclass(frozen=True)
class Setting:
    """What serves, how, and with which config.toml."""

    backend: str
    kind: str
    config: str

    @property
    def name(self) -> str:
        return self.kind if self.backend == "tactix" else f"{self.backend}, {self.kind}"


def settings(args: argparse.Namespace) -> list[Setting]:
    batching = f"max_batch = {args.max_batch}\nwindow = {args.window}\ntarget = {args.target}"
    kinds = {
        "one by one": "max_queue = 4096\n",
        "batches": f"[batching]\n{batching}\nmax_queue = 4096\n",
    }
    backends = ["tactix", "torch"] if args.module else ["tactix"]
    return [Setting(b, kind, config) for kind, config in kinds.items() for b in backends]


@contextmanager
def served_by(args: argparse.Namespace, chosen: Setting, work: Path) -> Iterator[Served]:
    folder = work / chosen.name.replace(" ", "_")
    alone = chosen.kind == "one by one" and args.single
    put(args.single if alone else args.plan, folder, chosen.config)
    if chosen.backend == "tactix":
        with serving(folder, ["--front-ends", args.front_ends]) as server:
            yield server
        return
    version = folder / NAME / "1"
    shutil.copy(args.module, version / "model.pt")
    with tactix.load(args.plan) as engine:
        describe(engine, version / "model.json")
    auto = args.front_ends == "auto"
    count = automatic_front_ends() if auto else int(args.front_ends)
    with served(folder, work / "cache", chosen.backend, count, args.outputs) as server:
        yield server


def table(args: argparse.Namespace) -> bool:
    order = answers(args)
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    right, spawn = True, multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as work,
        ProcessPoolExecutor(args.clients, mp_context=spawn) as pool,
    ):
        rows = RateTable(args, order, pool)
        for chosen in settings(args):
            with served_by(args, chosen, Path(work)) as server:
                for protocol in args.protocols:
                    for rate in (0.0, args.rate):
                        text, good = rows.line(server, chosen.name, protocol, rate)
                        right &= good
                        print(text, flush=True)
    print(f"\n| {' | '.join(PARTS)} |\n|{'---|' * len(PARTS)}", *rows.parts, sep="\n")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--single", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--protocols", type=words, default=list(WIRES))
    parser.add_argument("--front-ends", default="auto")
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--window", type=float, default=0.004)
    parser.add_argument("--target", type=float, default=0.02)
    parser.add_argument("--outputs", type=words, default=[])
    parser.add_argument("--module", type=Path)
    return int(not table(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
