"""Makes cuDNN's plans; many that are compiled in processes of their own: in one the library
compiles one by one.

A source is the kind of work, the work itself, which guess of the library to take, and whether its
plan is compiled (half a second; others take milliseconds). The binary is the plan's text, or why
there is none. Plans are cached by content beside the compiled kernels.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tactix.base.errors import CompilerError, TactixError, ToolchainError
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix_cuda.device import the_device
from tactix_cudnn.attention import CudnnAttention
from tactix_cudnn.convolution import CudnnConvolution
from tactix_cudnn.graph import CudnnGraph, CudnnWork
from tactix_cudnn.library import Cudnn, cudnn
from tactix_cudnn.plan import FAILED
from tactix_trust import object_cache

LANGUAGE = "cudnn_graph"
EACH, MOST = 6, 8
"""Compiled plans that are worth a process, which takes two seconds to start, and a plan half a
second (docs/cuda.md, "Tactic sources, and NVIDIA's libraries"); and processes at most. Threads do
not help: eight of them made 2.3 plans a second where one made 2 (H200's machine, cuDNN 9.19).
"""
TIMEOUT = 600
"""Seconds for the plans of one process."""
KINDS: dict[str, type[CudnnWork]] = {k.kind: k for k in (CudnnConvolution, CudnnAttention)}


def source(what: CudnnWork, rank: int, compiles: bool) -> Source:
    """Of a plan for that work by one of the library's guesses."""
    told = {"kind": what.kind, "work": what.to_json(), "rank": rank, "compiles": compiles}
    return Source(LANGUAGE, json.dumps(told, sort_keys=True))


class CudnnCompiler(Compiler):
    """``library``: None for the one of the device that is here."""

    key = "tactix.cudnn@1"
    language = LANGUAGE
    launcher = "tactix.cuda.cudnn@1"

    def __init__(self, library: Cudnn | None = None) -> None:
        self._given = library

    def available(self) -> str:
        """There are no sources where the library is not: its tactic says why."""
        return ""

    @property
    def examples(self) -> list[Source]:
        """A small 1x1 convolution of float16."""
        x, w = (1, 8, 4, 4), (8, 8, 1, 1)
        one, none = (1, 1), (0, 0)
        return [source(CudnnConvolution("f16", x, w, x, one, one, none, none), 0, False)]

    def identity(self) -> str:
        """Raises ToolchainError without a GPU."""
        return "cudnn " + ".".join(map(str, self._library().version))

    def _library(self) -> Cudnn:
        if self._given is not None:
            return self._given
        device = the_device()
        if why := device.available():
            raise ToolchainError("cuDNN makes no plans here", who=self.key, why=why)
        device.activate()
        return cudnn(device)

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """Raises CompilerError if a process fails; a plan that cannot be made is a binary that says
        so.
        """
        names = {s.text: self._key(s, device) for s in sources}
        blobs = {
            text: kept
            for text, name in names.items()
            if (kept := object_cache.find(name)) is not None
        }
        todo = [text for text in names if text not in blobs]
        for text, plan in zip(todo, self._make(todo), strict=True):
            blobs[text] = plan.encode()
            object_cache.put(names[text], blobs[text])
        return [Binary(blobs[s.text], "", s.text) for s in sources]

    def _key(self, source: Source, device: DeviceProperties) -> str:
        parts = (self.identity(), device.name, *sorted(device.features), source.text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest() + ".cudnn"

    def _make(self, texts: Sequence[str]) -> list[str]:
        long = [t for t in texts if json.loads(t)["compiles"]]
        count = min(MOST, os.cpu_count() or 1, -(-len(long) // EACH))
        if count < 2 or self._given:
            return plans(self._library(), texts) if texts else []
        with ThreadPoolExecutor(count) as workers:
            parts = list(workers.map(_in_process, [long[i::count] for i in range(count)]))
        found = {
            t: p for i, part in enumerate(parts) for t, p in zip(long[i::count], part, strict=True)
        }
        here = [t for t in texts if t not in found]
        found |= zip(here, plans(self._library(), here), strict=True)
        return [found[t] for t in texts]


def plans(library: Cudnn, texts: Sequence[str]) -> list[str]:
    """A plan, or why there is none, for each source."""
    return [_plan(library, json.loads(t)) for t in texts]


def _plan(library: Cudnn, told: dict[str, Any]) -> str:
    try:
        graph = CudnnGraph(library, KINDS[told["kind"]].from_json(told["work"]))
        return graph.plan(told["rank"]).decode()
    except TactixError as e:
        return FAILED + str(e)


def _in_process(texts: Sequence[str]) -> list[str]:
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    try:
        done = subprocess.run(
            command, input=json.dumps(texts), capture_output=True, text=True, timeout=TIMEOUT
        )
        made = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as e:
        raise CompilerError("plans of cuDNN could not be made in a process", why=str(e)) from None
    if made is None:
        why = f"exit status {done.returncode}: {done.stderr.strip()[-500:]}"
        raise CompilerError("plans of cuDNN could not be made in a process", why=why)
    return [str(x) for x in made]


def serve() -> None:
    """The process: a JSON list of sources from standard input, of plans to standard output."""
    device = the_device()
    device.activate()
    made = plans(cudnn(device), json.load(sys.stdin))
    json.dump(made, sys.stdout)
    sys.stdout.flush()
