"""What the processor can do at most, measured by kernels that do nothing else: peaks.c."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import KernelArtifact, Launch, Source, scalar, tensor_in, tensor_out
from tactix.contracts.device import Device
from tactix.contracts.launcher import LinkContext, Operand, Runnable, Step
from tactix.plugins.session import Session
from tactix.select.compile import Toolchain, with_binary
from tactix_inspect.profile import Roofline

KINDS = {"f32": "PEAK_FP32", "bf16": "PEAK_BF16", "i8": "PEAK_INT8"}
READ = "PEAK_READ"
ROUNDS = 200_000
"""Of a call: about a millisecond on one thread."""
LEAST_BYTES, MOST_BYTES = 1 << 14, 1 << 26
"""That are read: as many as a plan touches, so that the caches that hold these are counted; beyond
the largest caches memory is as fast for all.
"""
CALL_BYTES = 1 << 25
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
    """``macro``: what of peaks.c it is; ``nbytes``: of its memory; ``rounds``: of a call."""

    macro: str
    nbytes: int
    rounds: int

    def artifact(self, launcher: str) -> KernelArtifact:
        text = resources.files("tactix_inspect").joinpath("peaks.c").read_text()
        source = Source("c", f"#include <stdint.h>\n#define {self.macro}\n{text}")
        args = (tensor_out(), tensor_in(0), scalar(self.nbytes), scalar(self.rounds))
        return KernelArtifact(launcher, (Launch(args),), source)


def measured(session: Session, device: Device, threads: int, touched: int) -> Roofline | NoRoofline:
    """The peaks of a processor, taken once in a process for each number of threads; ``touched``:
    bytes that a run works on.
    """
    if not device.host_memory:
        return NoRoofline(f"peaks of {device.kind} are not measured")
    nbytes = min(max(touched, LEAST_BYTES), MOST_BYTES)
    return _measured(session, device, threads, 1 << (nbytes - 1).bit_length())


@lru_cache(8)
def _measured(session: Session, device: Device, threads: int, nbytes: int) -> Roofline | NoRoofline:
    toolchain = Toolchain(session.active_compilers())
    compiler = toolchain.by_language.get("c")
    if compiler is None:
        return NoRoofline(toolchain.missing.get("c", "no installed plugin compiles C"))
    kernels = {kind: PeakKernel(macro, LEAST_BYTES, ROUNDS) for kind, macro in KINDS.items()}
    kernels[READ] = PeakKernel(READ, nbytes, max(1, CALL_BYTES // nbytes))
    artifacts = {kind: k.artifact(compiler.launcher) for kind, k in kernels.items()}
    try:
        binaries = toolchain.compile(artifacts.values(), device.properties())
        rate = partial(_rate, session, device, threads)
        rates = {
            kind: rate(with_binary(a, binaries), kernels[kind]) for kind, a in artifacts.items()
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


def _rate(
    session: Session, device: Device, threads: int, artifact: KernelArtifact, kernel: PeakKernel
) -> Callable[[], float]:
    """What takes samples, and gives operations, or bytes, in a second by the best of them. Raises
    TactixError.
    """
    told = np.zeros(8, np.int64)
    data = np.ones(kernel.nbytes, np.uint8)
    operands = [Operand(i, TensorSpec(DType.UINT8, (1,)), LINEAR) for i in range(2)]
    step: Step[object] = Step("peak", artifact, (operands[1],), (operands[0],))
    context = LinkContext(device, threads, session.layers.__getitem__)
    launchers = {artifact.launcher: session.launchers[artifact.launcher]}
    run: Runnable = device.link([step], launchers, context)
    run.bind({}, [told.ctypes.data, data.ctypes.data])
    run.repeat(CALLS)

    def best(kept: object = (told, data)) -> float:
        seconds = min(device.measure(run, 1) for _ in range(SAMPLES))
        return int(told[0]) * kernel.rounds / seconds

    return best
