"""A server of ``tactix serve`` that a benchmark starts, and the processor time of its processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Served:
    """``pid``: of the process that was started. Ports; 0 for none."""

    pid: int
    http: int
    grpc: int

    def processes(self) -> dict[str, list[int]]:
        """The process that has the models, and front ends, which may be others each time."""
        children = _children(self.pid)
        found = {p: text for p in children if b"tactix_serve.child" in (text := _command(p))}
        if not found:
            return {"engine": [self.pid], "front ends": []}
        fronts = [p for p, text in found.items() if b'"listening": null' in text]
        return {"engine": [p for p in found if p not in fronts], "front ends": fronts}

    def processor(self) -> dict[str, list[float]]:
        """Seconds of each process so far."""
        return {role: list(map(seconds, pids)) for role, pids in self.processes().items()}

    def counters(self) -> dict[str, float]:
        """What /metrics tells: numbers by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        told = (line.rpartition(" ") for line in lines if line[:1] not in ("", "#"))
        return {name: float(value) for name, _, value in told}

    def resident(self) -> dict[str, list[float]]:
        """MiB of each process."""
        return {role: list(map(resident, pids)) for role, pids in self.processes().items()}


def _children(pid: int) -> list[int]:
    text = "".join(p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children"))
    return list(map(int, text.split()))


def _command(pid: int) -> bytes:
    """Empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def seconds(pid: int) -> float:
    """Of the processor, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> float:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    (line,) = (x for x in text.splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@contextmanager
def serving(folder: Path, options: Sequence[str]) -> Iterator[Served]:
    """A server of a folder; ``options``: of ``tactix serve``."""
    command = [sys.executable, "-m", "tactix", "serve", str(folder)]
    with started([*command, "--http", "0", "--grpc", "0", *options]) as server:
        yield server


@contextmanager
def started(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A server of any command that tells its ports as ``tactix serve`` does."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = dict(re.findall(r"(http|grpc)://\S+:(\d+)", line))
            yield Served(process.pid, int(found["http"]), int(found["grpc"]))
        finally:
            process.terminate()
            if code := process.wait(90):
                print(f"the server ended with {code}")
