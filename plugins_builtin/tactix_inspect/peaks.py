"""What a device can do at most, measured by kernels that do nothing else: peaks.c, peaks.cu."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.allocator import Allocator
from tactix.contracts.artifact import (
    Arg,
    KernelArtifact,
    Launch,
    Source,
    scalar,
    tensor_in,
    tensor_out,
)
from tactix.contracts.device import Device
from tactix.contracts.launcher import LinkContext, Operand, Runnable, Step
from tactix.plugins.session import Session
from tactix.select.compile import Toolchain, with_binary
from tactix_inspect.placed import PlacedArrays
from tactix_inspect.profile import Roofline

READ = "PEAK_READ"
LEAST_BYTES = 1 << 14
"""That are read: as many as a plan touches, so that the caches that hold these are counted."""


@dataclass(frozen=True)
class PeakSource:
    """The kernels for a kind of devices. ``macros``: which of the text, by dtypes. ``blocks``: of a
    core, each of ``threads``; 0 where the launcher shares the work. ``rounds``: of a call, about a
    millisecond. ``most_bytes``: that are read, beyond the largest caches, where memory is as fast
    for all; ``call_bytes``: in a call.
    """

    file: str
    language: str
    macros: Mapping[str, str]
    rounds: int
    most_bytes: int
    call_bytes: int
    blocks: int = 0
    threads: int = 0

    def launch(self, args: tuple[Arg, ...], cores: int) -> Launch:
        """On a device of so many cores."""
        if not self.blocks:
            return Launch(args)
        return Launch(args, (cores * self.blocks,), (self.threads,))


KINDS = {"f32": "PEAK_FP32", "bf16": "PEAK_BF16", "i8": "PEAK_INT8"}
GPU_KINDS = {"f16": "PEAK_FP16", "f8e4m3": "PEAK_FP8"}
SOURCES = {
    "cpu": PeakSource("peaks.c", "c", KINDS, 200_000, 1 << 26, 1 << 25),
    "cuda": PeakSource(
        "peaks.cu", "cuda_c", KINDS | GPU_KINDS, 2000, 1 << 28, 1 << 32, blocks=8, threads=256
    ),
}
"""By kinds of devices. Eight blocks of 256 threads are the 2,048 that a multiprocessor holds; of a
kernel with more registers it holds fewer at a time.
"""
CALLS, SAMPLES = 8, 8
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
"""Of all kernels, until each has been about as fast twice: other work slows one down for longer
than the samples of a round take, and never makes one faster.
"""
ALIKE = 0.03


@dataclass(frozen=True)
class NoRoofline:
    """Why nothing was measured."""

    why: str


@dataclass(frozen=True)
class PeakKernel:
    """``macro``: what of the text it is; ``nbytes``: of its memory; ``rounds``: of a call."""

    source: PeakSource
    macro: str
    nbytes: int
    rounds: int

    def artifact(self, launcher: str, cores: int) -> KernelArtifact:
        text = resources.files("tactix_inspect").joinpath(self.source.file).read_text()
        head = "#include <stdint.h>\n" if self.source.language == "c" else ""
        source = Source(self.source.language, f"{head}#define {self.macro}\n{text}")
        args = (tensor_out(), tensor_in(0), scalar(self.nbytes), scalar(self.rounds))
        return KernelArtifact(launcher, (self.source.launch(args, cores),), source)


def measured(
    session: Session, device: Device, allocator: Allocator, threads: int, touched: int
) -> Roofline | NoRoofline:
    """The peaks of a device, taken once in a process for each number of threads. ``allocator``: of
    its memory; ``touched``: bytes that a run works on.
    """
    source = SOURCES.get(device.kind)
    if source is None:
        return NoRoofline(f"peaks of {device.kind} are not measured")
    nbytes = min(max(touched, LEAST_BYTES), source.most_bytes)
    place = PeakPlace(session, device, allocator, threads)
    return _measured(place, 1 << (nbytes - 1).bit_length())


@dataclass(frozen=True)
class PeakPlace:
    """Where kernels run: on so many threads of the host, if it is one of its processors."""

    session: Session
    device: Device
    allocator: Allocator
    threads: int


@lru_cache(8)
def _measured(place: PeakPlace, nbytes: int) -> Roofline | NoRoofline:
    source = SOURCES[place.device.kind]
    toolchain = Toolchain(place.session.active_compilers())
    kernels = {
        kind: PeakKernel(source, macro, LEAST_BYTES, source.rounds)
        for kind, macro in source.macros.items()
    }
    kernels[READ] = PeakKernel(source, READ, nbytes, max(1, source.call_bytes // nbytes))
    facts = place.device.properties()
    if why := toolchain.lacks(kernels[READ].artifact("", facts.cores)):
        return NoRoofline(why)
    launcher = toolchain.by_language[source.language].launcher
    artifacts = {kind: k.artifact(launcher, facts.cores) for kind, k in kernels.items()}
    try:
        binaries = toolchain.compile(artifacts.values(), facts)
        rates = {
            kind: _rate(place, with_binary(a, binaries), kernels[kind])
            for kind, a in artifacts.items()
        }
        best, spread = steady(rates)
    except TactixError as e:
        return NoRoofline(str(e))
    nbytes_rate = best.pop(READ)
    return Roofline({kind: r for kind, r in best.items() if r}, nbytes_rate, spread)


def steady(rates: Mapping[str, Callable[[], float]]) -> tuple[dict[str, float], float]:
    """The best of several rounds for each, and by what share the second best is lower where that is
    most. Raises TactixError.
    """
    found: dict[str, list[float]] = {kind: [] for kind in rates}
    spread = 0.0
    for k in range(MOST_ROUNDS):
        for kind, rate in rates.items():
            found[kind] = sorted((*found[kind], rate()))
        spread = max(1 - r[-2] / r[-1] if r[-1] else 0.0 for r in found.values()) if k else 1.0
        if k + 1 >= LEAST_ROUNDS and spread <= ALIKE:
            break
    return {kind: r[-1] for kind, r in found.items()}, spread


def _rate(place: PeakPlace, artifact: KernelArtifact, kernel: PeakKernel) -> Callable[[], float]:
    """What takes samples, and gives operations, or bytes, in a second by the best of them. Raises
    TactixError.
    """
    device, session = place.device, place.session
    told, data = np.zeros(8, np.int64), np.ones(kernel.nbytes, np.uint8)
    placed = PlacedArrays(device, place.allocator, [("data", data)], [("told", told)])
    operands = [Operand(i, TensorSpec(DType.UINT8, (1,)), LINEAR) for i in range(2)]
    step: Step[object] = Step("peak", artifact, (operands[0],), (operands[1],))
    context = LinkContext(device, place.threads, session.layers.__getitem__)
    launchers = {artifact.launcher: session.launchers[artifact.launcher]}
    run: Runnable = device.link([step], launchers, context)
    run.bind({}, placed.addresses)
    run.repeat(CALLS)
    placed.fetch()

    def best(kept: PlacedArrays = placed) -> float:
        seconds = min(device.measure(run, 1) for _ in range(SAMPLES))
        return int(told[0]) * kernel.rounds / seconds

    return best
