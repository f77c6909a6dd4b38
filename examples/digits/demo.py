"""Build a plan for the digits model, load it in a fresh process, and show what came out: `make
demo`.

Exit code 0 if accuracy is at least 0.97 and, where ONNX Runtime is installed, the outputs agree
with it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tactix
from tactix.run.runtime import default_threads
from tactix_inspect.agreement import agree
from tactix_inspect.model_tensors import SessionTerms, runtime_session
from tactix_tools.peers import has_onnxruntime
from tactix_tools.progress import BuildProgress
from tactix_tools.show import console as make_console
from tactix_tools.show import duration, errors_console, size, table
from tactix_tools.timing import Schedule, measure

HERE = Path(__file__).resolve().parent
MODEL, DATA = HERE / "digits.onnx", HERE / "digits_test.npz"
PLAN = HERE.parent.parent / ".demo" / "digits.plan"
ENOUGH = 0.97
THREADS = default_threads()

console = make_console()
Run = Callable[[np.ndarray], Any]


def build() -> int:
    """Build and save the plan, then run the rest in a process that has built nothing."""
    console.rule(f"1. build a plan of {MODEL.relative_to(HERE.parent.parent)}")
    with BuildProgress(errors_console()) as progress:
        engine = tactix.build(MODEL, progress=progress)
    PLAN.parent.mkdir(exist_ok=True)
    engine.save(PLAN)
    console.print(f"saved {PLAN.relative_to(HERE.parent.parent)}: {size(PLAN.stat().st_size)}")
    return subprocess.run([sys.executable, __file__, "--run"], check=False).returncode


def run() -> int:
    """Load the plan, and show accuracy, latency, layers and fusion."""
    console.rule("2. load it in a fresh process and run it")
    engine = tactix.load(PLAN)
    data = np.load(DATA)
    images, labels = data["images"], data["labels"]
    logits = engine(images)
    accuracy = float((logits.argmax(1) == labels).mean())
    console.print(f"accuracy: {accuracy:.4f} on {len(labels)} held-out images")
    peer = runtime_session(str(MODEL), SessionTerms(threads=THREADS)) if has_onnxruntime() else None
    agrees = peer is None or outputs_agree(logits, peer.run(None, {"image": images})[0])
    show_latency(engine, peer, images)
    show_layers(engine)
    return 0 if accuracy >= ENOUGH and agrees else 1


def outputs_agree(logits: np.ndarray, want: np.ndarray) -> bool:
    found = agree("logits", "ONNX Runtime", logits, want, rtol=1e-4, atol=None)
    verdict = "[green]agree[/]" if found.passed else "[bold red]DISAGREE[/]"
    console.print(
        f"outputs {verdict} with ONNX Runtime: largest relative difference {found.max_rel:.2g}"
    )
    return found.passed


def show_latency(engine: tactix.Engine, peer: Any, images: np.ndarray) -> None:
    if peer is None:
        console.print("ONNX Runtime is not installed: no comparison (pip install onnxruntime)")
    rows = []
    for batch in (1, 32):
        x = np.ascontiguousarray(images[:batch])
        ours = median(engine, x)
        theirs = median(lambda a: peer.run(None, {"image": a}), x) if peer else None
        beside = [duration(theirs), f"{theirs / ours:.2f}x"] if theirs else ["-", "-"]
        rows.append([batch, duration(ours), *beside])
    columns = ["batch", "tactix", "ONNX Runtime", "speed-up"]
    console.print(table(f"Median latency, {THREADS} threads", columns, rows, right=columns))


def median(call: Run, x: np.ndarray) -> float:
    return measure([lambda: call(x)], Schedule(warmup=0.2, seconds=0.5)).median


def show_layers(engine: tactix.Engine) -> None:
    console.rule("3. what was chosen, and what fused")
    rows = [
        [s["name"], ", ".join(s["origin"]), s["tactic"], s["variant"], microseconds(s)]
        for s in engine.inspect()["steps"]
    ]
    columns = ["layer", "nodes of the model", "tactic", "variant", "us at batch 1"]
    console.print(table("Layers", columns, rows, right=columns[-1:]))
    rules = sorted(engine.plan.ledger["rules"].items(), key=lambda kv: -kv[1])
    console.print(
        table(
            "Rules that fired", ["times", "rule"], [(n, rule) for rule, n in rules], right=["times"]
        )
    )


def microseconds(step: dict[str, Any]) -> str:
    """What was measured at build, now or before: a time in the cache is one, too."""
    return (
        f"{step['seconds'] * 1e6:.2f}"
        if step["status"] in ("measured", "cached")
        else "not measured"
    )


if __name__ == "__main__":
    raise SystemExit(run() if "--run" in sys.argv[1:] else build())
