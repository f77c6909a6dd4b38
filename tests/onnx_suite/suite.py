#!/usr/bin/env python3
"""onnx's conformance suite through the product: import, build, run, compare with what the standard
expects.

    python tests/onnx_suite/suite.py [--kinds node,simple] [--sources numpy,view,control] [--jobs 2] [--match TEXT]
                                     [--write docs/onnx.md] [--known FILE] [--json out.json]
                                     [--device tactix.cuda@1]

A case passes if every output has the expected dtype and shape and agrees within the case's own
tolerance. All tactics bid if ``--sources`` names none, and the best by estimate is taken. Prints
passed/total. On a GPU what none of its kernels can do runs on the host; ``--write`` then writes the
part of the document that is about CUDA, and without ``--device`` the rest of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from batch import BatchBuilder
from cases import KINDS, Case, Data, collect
from report import document, joined, on_cuda, reason

CPU = "tactix.cpu@1"
LIMIT = 60
"""Seconds for one step of a case."""

CHUNKS = 8
"""Batches of the suite: enough for several processes, few enough that kernels share a call of the
compiler.
"""

ROUNDED = 2**-6
"""Two units in the last place of bfloat16, which onnx's own runner grants."""
TRANSFORMS = frozenset({"DFT", "STFT"})
"""Operators whose expected values onnx computes with numpy's float32 transform: each carries a
rounding of the largest, 5 roundings of 2^-24 for sums of a few hundred numbers. What should be 0 is
that much in them, and nearer to 0 where a kernel sums in float64.
"""
TRANSFORM_ROUNDED = 5 * 2**-24


@dataclass(frozen=True)
class Result:
    """What became of a case; ``error`` is empty if it passed. ``host``: layers that ran on the host
    beside a GPU.
    """

    kind: str
    name: str
    operator: str
    opset: int
    error: str = ""
    host: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


class Timeout(Exception):
    """A case took too long."""


def array_of(value: Any) -> Any:
    """A tensor of a data set as an array; sequences and optionals as they are."""
    import onnx

    from tactix_onnx.weights import WeightReader

    if isinstance(value, onnx.TensorProto):
        return WeightReader(None).array(value)
    return value if value is None or isinstance(value, list) else np.asarray(value)


def assert_agrees(got: Any, want: Any, rtol: float, atol: float) -> None:
    """dtype, shape and numbers; of bfloat16, two units in the last place. Raises AssertionError."""
    if isinstance(want, list):
        assert isinstance(got, (list, tuple)), f"{type(got).__name__} where a sequence is expected"
        assert len(got) == len(want), f"{len(got)} elements, expected are {len(want)}"
        for g, w in zip(got, want, strict=True):
            assert_agrees(g, w, rtol, atol)
        return
    got, want = np.asarray(got), np.asarray(want)
    strings = want.dtype.kind in "OUST"
    assert got.shape == want.shape, f"shape {got.shape}, expected is {want.shape}"
    assert strings or got.dtype == want.dtype, f"dtype {got.dtype}, expected is {want.dtype}"
    if strings or want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    if want.dtype.kind != "c":
        rtol = max(rtol, ROUNDED) if want.dtype.name == "bfloat16" else rtol
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def tolerance(case: Case, wanted: Sequence[Any]) -> float:
    """The absolute tolerance of a case's outputs."""
    if case.operator not in TRANSFORMS:
        return case.atol
    largest = max(float(np.abs(array_of(want)).max(initial=0)) for want in wanted)
    return max(case.atol, TRANSFORM_ROUNDED * largest)


def plan_of(
    case: Case, builder: Any, sources: Sequence[str] | None, device: str
) -> tuple[Any, Data]:
    """The case's plan, by estimates, and its data. Raises whatever goes wrong."""
    import tactix

    model, data = case.load()
    config = tactix.BuilderConfig(
        tactic_sources=set(sources) if sources else None,
        builder_optimization_level=0,
        timing_cache=False,
        threads=1,
        device=device,
    )
    return builder.build_plan(builder.import_model(model), config), data


def assert_passes(case: Case, plan: Any, data: Data, session: Any) -> None:
    """Raises AssertionError, or whatever running the plan raises."""
    import tactix

    quiet = tactix.Logger(tactix.Severity.INTERNAL_ERROR)
    engine = tactix.Runtime(quiet, session, max_threads=1, sign=False).load(plan)
    for inputs, outputs in data:
        found = engine(*map(array_of, inputs))
        results = list(found.values()) if isinstance(found, dict) else [found]
        atol = tolerance(case, outputs)
        for got, want in zip(results, map(array_of, outputs), strict=True):
            assert_agrees(got, want, case.rtol, atol)


def run_case(
    case: Case, builder: Any, sources: Sequence[str] | None, device: str = CPU
) -> tuple[str, ...]:
    """The layers that ran on the host beside a GPU. Raises whatever goes wrong."""
    plan, data = plan_of(case, builder, sources, device)
    assert_passes(case, plan, data, builder.session)
    return crossing(plan)


def crossing(plan: Any) -> tuple[str, ...]:
    """Layers that a plan for a GPU runs on the host."""
    return tuple(sorted(set(_crossing(plan))))


def _crossing(plan: Any) -> Iterator[str]:
    """Kinds of the nodes that a plan for a GPU runs on the host, those of its bodies included."""
    for s in plan.steps:
        if s.artifact.launcher == "tactix.cuda.host@1":
            yield s.info["kind"]
        for p in s.plans:
            yield from _crossing(p)


def run_batch(
    cases: Sequence[Case], sources: Sequence[str] | None = None, device: str = CPU
) -> list[Result]:
    """Results in the order of the cases; their C kernels are compiled together."""
    signal.signal(signal.SIGALRM, _too_long)
    builder = BatchBuilder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drafts = [_attempt(plan_of, c, builder, sources, device) for c in cases]
        made = iter(builder.finish([d[0] for d in drafts if not isinstance(d, str)]))
        return [
            _result(c, d, builder)
            if isinstance(d, str)
            else _result(c, (next(made), d[1]), builder)
            for c, d in zip(cases, drafts, strict=True)
        ]


def _result(case: Case, draft: str | tuple[Any, Data], builder: Any) -> Result:
    """``draft``: what went wrong, or the plan and its data."""
    facts = (case.kind, case.name, case.operator, case.opset)
    if isinstance(draft, str):
        return Result(*facts, error=draft)
    plan, data = draft
    error = _attempt(assert_passes, case, plan, data, builder.session)
    return Result(*facts, error=error or "", host=() if error else crossing(plan))


def _attempt(step: Callable[..., Any], *args: Any) -> Any:
    """What the step gives, or what went wrong in words."""
    signal.alarm(LIMIT)
    try:
        return step(*args)
    except Exception as e:
        return _described(e)
    finally:
        signal.alarm(0)


def _too_long(*_: Any) -> None:
    raise Timeout(f"it took more than {LIMIT} seconds")


def _described(e: Exception) -> str:
    if isinstance(e, AssertionError):
        lines = [line.strip() for line in str(e).splitlines() if line.strip()]
        return f"wrong result: {'; '.join(lines[:4])}"[:300]
    where = (
        ""
        if type(e).__module__.startswith("tactix")
        else f" {traceback.extract_tb(e.__traceback__)[-1].name}"
    )
    return f"{type(e).__name__}{where}: {' '.join(str(e).split())}"[:400]


def run_suite(
    cases: Sequence[Case], sources: Sequence[str] | None = None, jobs: int = 0, device: str = CPU
) -> list[Result]:
    """Results in the order of the cases, from so many processes (0: as many as there are cores)."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _CASES[:] = cases
    with multiprocessing.get_context("fork").Pool(jobs or os.cpu_count() or 1) as pool:
        tasks = [(chunk, sources, device) for chunk in range(CHUNKS)]
        found = pool.starmap(_run_chunk, tasks, chunksize=1)
    by_id = {r.id: r for results in found for r in results}
    return [by_id[c.id] for c in cases]


_CASES: list[Case] = []


def _run_chunk(chunk: int, sources: Sequence[str] | None, device: str) -> list[Result]:
    return run_batch(_CASES[chunk::CHUNKS], sources, device)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sources", default="")
    parser.add_argument("--device", default=CPU)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--match", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--known", type=Path, help="write the failures and their reasons here")
    options = parser.parse_args()
    sources = options.sources.split(",") if options.sources else None
    cases = [c for c in collect(options.kinds.split(",")) if options.match in c.id]
    results = run_suite(cases, sources, options.jobs, options.device)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=0))
    if options.write:
        part = document(results) if options.device == CPU else on_cuda(results)
        options.write.write_text(
            joined(options.write.read_text() if options.write.exists() else "", part)
        )
    if options.known:
        options.known.write_text(
            "".join(f"{r.id}: {reason(r.error, r.name)}\n" for r in results if r.error)
        )
    for kind in dict.fromkeys(r.kind for r in results):
        own = [r for r in results if r.kind == kind]
        print(f"{kind}: {sum(not r.error for r in own)}/{len(own)}")
    print(f"{sum(not r.error for r in results)}/{len(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
