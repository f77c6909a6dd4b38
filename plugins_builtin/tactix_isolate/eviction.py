"""Weights as a large network's runs find them: in memory, not in the caches where the last run of
the same kernel left them.

A network whose weights are more than the caches hold reads each of them from memory in every run.
A kernel that is timed by running it again and again finds its own in a cache: then bytes cost
nothing, and float32 weights look as fast as bfloat16's or INT4's. So they are taken out of the
caches before each run that is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tactix.base.dims import Env
from tactix.contracts.artifact import KernelArtifact, Launch, Source, constant, scalar
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Runnable, Step
from tactix.select.compile import Toolchain

LEAST = 1 << 18
"""Bytes of a step's weights from which on it matters where they are: a core reads so many in some
20 us.
"""

CACHES = ("l3", "l2", "l1d")
"""Facts of a device, the largest cache that it may have first."""

TEXT = """\
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { LINE = 64 }; /* bytes; no processor of these has shorter lines */

/* The threads' shares of the lines of SIZE bytes from BEGIN on, out of all caches. */
void TX_ENTRY(const int64_t *a, int tid, int nt) {
    const char *begin = (const char *)a[0];
    const int64_t size = a[1];
#if defined(__x86_64__)
    unsigned eax, ebx = 0, ecx, edx;
    const unsigned clflushopt = 1u << 23; /* Intel SDM, CPUID leaf 7: it waits for no other line */
    const int fast = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & clflushopt);
    for (int64_t at = (int64_t)tid * LINE; at < size; at += (int64_t)nt * LINE) {
        if (fast) __asm__ volatile("clflushopt %0" ::"m"(begin[at]) : "memory");
        else __asm__ volatile("clflush %0" ::"m"(begin[at]) : "memory");
    }
    __asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
    for (int64_t at = (int64_t)tid * LINE; at < size; at += (int64_t)nt * LINE)
        __asm__ volatile("dc civac, %0" ::"r"(begin + at) : "memory");
    __asm__ volatile("dsb ish" ::: "memory");
#else
    (void)begin, (void)size, (void)tid, (void)nt;
#endif
}
"""


def is_streamed(weights: int, device: DeviceProperties) -> bool:
    """Whether so many bytes of weights are more than the largest cache of a device holds, as far as
    that is known.
    """
    sizes = [device.facts[cache] for cache in CACHES if cache in device.facts]
    return bool(sizes) and weights > int(sizes[0])


def weights(step: Step, node: Node) -> list[int]:
    """Buffers of constants that the kernels of a node's step read."""
    args = [a for launch in step.artifact.launches for a in launch.args]
    packed = [step.constants[a.name] for a in args if a.kind == "constant"]
    read = [a.index for a in args if a.kind == "input" and node.given[a.index].const is not None]
    return list(dict.fromkeys([*packed, *(step.inputs[i].buffer for i in read)]))


def code(toolchain: Toolchain, device: DeviceProperties) -> KernelArtifact:
    """What evicts, compiled, without launches. Raises CompilerError, ToolchainError."""
    source = Source("c", TEXT)
    binaries = toolchain.compile([KernelArtifact("", code=source)], device)
    return KernelArtifact(toolchain.by_language["c"].launcher, code=binaries[source.digest])


def eviction(code: KernelArtifact, sizes: Mapping[int, int]) -> Step:
    """Takes buffers, by index with their bytes, out of the caches."""
    launches = tuple(Launch((constant(str(i)), scalar(size))) for i, size in sizes.items())
    constants = {str(i): i for i in sizes}
    return Step("eviction", replace(code, launches=launches), (), (), constants)


class Evicted:
    """Runs a step. ``seconds_of`` are those of runs before each of which its weights were evicted.

    ``measure``: seconds that so many runs take together.
    """

    def __init__(
        self, step: Runnable, evict: Runnable, measure: Callable[[Runnable, int], float]
    ) -> None:
        self._step, self._evict, self._measure = step, evict, measure

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        self._step.bind(env, addresses)
        self._evict.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        self._step.rebind(buffer, address)
        self._evict.rebind(buffer, address)

    def __call__(self) -> None:
        self._step()

    def repeat(self, times: int) -> None:
        self._step.repeat(times)

    def seconds_of(self, times: int) -> float:
        """That so many runs take together."""
        total = 0.0
        for _ in range(times):
            self._evict.repeat(1)
            total += self._measure(self._step, 1)
        return total
