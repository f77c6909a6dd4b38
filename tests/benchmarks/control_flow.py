#!/usr/bin/env python3
"""What branches and loops cost beside their kernels, of tactix and of ONNX Runtime in turns.

    python tests/benchmarks/control_flow.py [THREADS]

Bodies are tiny, so that kernels take some tens of nanoseconds: the cost of one run is the
difference between calls of 10 and of 1000 runs, divided by how many more. Medians of rounds in
which both are timed one after the other. Prints Markdown.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort

import tactix

COUNTS, ROUNDS = (1, 10, 1000), 41

LOOP = """y = Loop (runs, , x) < body = body (int64 i, bool c, float[8] v) => (bool d, float[8] w) {
  d = Identity (c)
  BODY
} >"""
PLAIN = "w = Add (v, x)"
BRANCH = """odd = And (c, which) w = If (odd) <
  then_branch = yes () => (float[8] t) { t = Add (v, x) },
  else_branch = no () => (float[8] e) { e = Sub (v, x) } >"""
INNER = """w = Loop (four, , v) < body = inner (int64 j, bool f, float[8] p) => (bool g, float[8] q) {
  g = Identity (f)
  q = Add (p, x)
} >"""
SCAN = """y, z = Scan <num_scan_inputs = 1, body = body (float[8] v, float[8] r)
  => (float[8] w, float[8] s) { w = Add (v, r) s = Neg (w) }> (x, rows)"""
DEEP = (
    f"w = If (which) < then_branch = yes () => (float[8] t) {{ {INNER.replace('w =', 't =', 1)} }}, "
    + ("else_branch = no () => (float[8] e) { e = Sub (v, x) } >")
)
ROWS = """y, z = Loop (runs, , x)
  < body = body (int64 i, bool c, float[8] v) => (bool d, float[8] w, float[8] s) {
  d = Identity (c)
  w = Add (v, x)
  s = Neg (w)
} >"""
UNTIL = """yes = Constant <value = bool {1}> () one = Constant <value = int64 {1}> ()
y, z = Loop (, yes, x)
  < body = body (int64 i, bool c, float[8] v) => (bool d, float[8] w, float[8] s) {
  j = Add (i, one)
  d = Less (j, runs)
  w = Add (v, x)
  s = Neg (w)
} >"""
ROWS_INSIDE = """zero = Constant <value = int64[1] {0}> ()
y, z = Loop (runs, , x)
  < body = body (int64 i, bool c, float[8] v) => (bool d, float[8] w, float[8] s) {
  d = Identity (c)
  often = Mod (i, four)
  w, r = Loop (often, , v)
    < body = inner (int64 j, bool f, float[8] p) => (bool g, float[8] q, float[8] t) {
    g = Identity (f)
    q = Add (p, x)
    t = Neg (q)
  } >
  s = ReduceSum <keepdims = 0> (r, zero)
} >"""
GROWS = """zero = Constant <value = int64[1] {0}> () none = Slice (rows, zero, zero)
y, past = Loop (runs, , x, none)
  < body = body (int64 i, bool c, float[8] v, float[m, 8] p) => (bool d, float[8] w, float[l, 8] q) {
  d = Identity (c)
  row = Unsqueeze (v, zero)
  q = Concat <axis = 0> (p, row)
  most = ReduceMax <axes = [0], keepdims = 0> (q)
  w = Add (most, x)
} >"""
NETWORKS = {
    "an iteration of a loop": LOOP.replace("BODY", PLAIN),
    "an iteration with a branch": LOOP.replace("BODY", BRANCH),
    "an iteration with a loop of 4": LOOP.replace("BODY", INNER),
    "an iteration with a loop of 4 in a branch": LOOP.replace("BODY", DEEP),
    "an iteration of a scan": SCAN,
    "a row of a loop": ROWS,
    "a row of a loop until a condition": UNTIL,
    "a row that is the sum of up to 3 rows of a loop": ROWS_INSIDE,
    "an iteration that joins a row to a cache and reads it": GROWS,
}


def model(nodes: str) -> onnx.ModelProto:
    rows = ", float[k, 8] z" if "y, z" in nodes else ""
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[8] x, int64 runs, bool which, float[t, 8] rows) => (float[8] y{rows}) {{
      four = Constant <value = int64 {{4}}> ()
      {nodes}
    }}""")


def feeds(runs: int) -> dict[str, Any]:
    rows = np.zeros((runs, 8), np.float32)
    return {
        "x": np.ones(8, np.float32),
        "runs": np.array(runs),
        "which": np.array(True),
        "rows": rows,
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def timed(nodes: str, threads: int) -> list[list[float]]:
    """Microseconds of a run, and of a call with each of the numbers of runs: of tactix, then of
    ONNX Runtime.
    """
    made = model(nodes)
    builder = tactix.Builder()
    engine = builder.build(builder.import_model(made), tactix.BuilderConfig(threads=threads))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    contexts = {n: engine.create_execution_context() for n in COUNTS}
    times: dict[tuple[int, int], list[float]] = {}
    for _ in range(ROUNDS + 1):
        for n, context in contexts.items():
            given = {k: v for k, v in feeds(n).items() if k in names}
            calls = (lambda c=context, g=given: c.run(g)), (lambda g=given: session.run(None, g))
            for who, call in enumerate(calls):
                call()
                times.setdefault((who, n), []).append(min(seconds(call) for _ in range(5)))
    found = {key: 1e6 * statistics.median(some[1:]) for key, some in times.items()}
    _, few, many = COUNTS
    one = [(found[who, many] - found[who, few]) / (many - few) for who in (0, 1)]
    return [[one[who], *(found[who, n] for n in COUNTS)] for who in (0, 1)]


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    ort.set_default_logger_severity(3)
    print(f"{threads} thread(s), us: tactix / ONNX Runtime {ort.__version__}\n")
    heads = "".join(f" a call of {n} |" for n in COUNTS)
    print(f"| what | one |{heads}\n|---|---|{'---|' * len(COUNTS)}")
    for what, nodes in NETWORKS.items():
        pairs = zip(*timed(nodes, threads), strict=True)
        one, *calls = (f"{a:.3f} / {b:.3f}" if a < 1 else f"{a:.1f} / {b:.1f}" for a, b in pairs)
        print(f"| {what} | {one} | {' | '.join(calls)} |")


if __name__ == "__main__":
    main()
