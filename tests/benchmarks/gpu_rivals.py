#!/usr/bin/env python3
"""A peer of gpu_peers.py in a process of its own: it builds a network, then times a round for every
line on stdin.

    python tests/benchmarks/gpu_rivals.py torch.compile|xla MODEL BATCH --lock FILE [--mode default]

Answers are as those of peer_engines.py: first the facts, then the seconds of one inference for each
line. Who holds the lock builds alone. torch.compile is max-autotune inside a CUDA graph, or with
``--mode default`` what it takes without a search, in a graph as well; for networks with batch norms
these are folded first, where torch.fx can follow the network, and only ATen's kernels are searched:
a search of Triton's as well does not end within minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer_engines import answer

MODES = {"max-autotune": "max-autotune-no-cudagraphs", "default": "default"}
"""torch.compile's names of modes that leave the graph to us."""


def compiled(name: str, batch: int, mode: str) -> tuple[Callable[[], float], dict[str, Any]]:
    import gpu_models
    import torch
    from gpu_times import departure, listed, seconds, torch_graph
    from torch._inductor import config as inductor
    from torch.fx.experimental.optimization import fuse

    model, x = gpu_models.make(name, batch)
    with torch.no_grad():
        want = listed(model(x))
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        with contextlib.suppress(Exception):  # torch.fx follows no branches on data
            model = fuse(model)
        inductor.max_autotune_gemm_backends = inductor.max_autotune_conv_backends = "ATEN"
    model, x = model.half(), x.half() if x.is_floating_point() else x
    if x.ndim == 4:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    fast = torch.compile(model, mode=MODES[mode])
    with torch.no_grad():
        error = departure(listed(fast(x)), want)
    call = torch_graph(fast, x)
    return lambda: seconds(call), {"error": error}


def xla(name: str, batch: int, _mode: str) -> tuple[Callable[[], float], dict[str, Any]]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import gpu_jax

    return gpu_jax.build(name, batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=("torch.compile", "xla"))
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument(
        "--lock", type=Path, required=True, help="a file; who holds it builds alone"
    )
    parser.add_argument(
        "--mode", choices=tuple(MODES), default="max-autotune", help="of torch.compile"
    )
    args = parser.parse_args()
    build = {"torch.compile": compiled, "xla": xla}[args.peer]
    with args.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start = time.perf_counter()
        sample, facts = build(args.model, args.batch, args.mode)
        fcntl.flock(file, fcntl.LOCK_UN)  # compilers' own processes may hold the file as well
    answer({**facts, "seconds": time.perf_counter() - start})
    for _ in sys.stdin:
        answer(sample())


if __name__ == "__main__":
    main()
