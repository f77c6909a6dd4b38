"""Weights that stay in the L2 cache from run to run: windows of launches whose accesses the cache
holds on to.

CUDA C++ Programming Guide, "L2 Cache": a part of the cache is set aside, of which the whole process
has one; a launch names one window of addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tactix.contracts.launcher import LinkContext

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

Users = Mapping[int, Sequence[tuple[int, int, int]]]
"""By buffer the arguments that are its address: the last number is the launch."""


@dataclass(frozen=True)
class AccessPolicyWindow:
    """Bytes from an address on."""

    address: int
    size: int

    def fill(self, value: Any, api: Any) -> Any:
        """Make it the launch attribute's value."""
        own = value.accessPolicyWindow
        # all of the window may persist: ``chosen`` takes no more than was set aside, so nothing
        # in it drives out the rest; what is outside of it passes through
        own.base_ptr, own.num_bytes, own.hitRatio = self.address, self.size, 1.0
        own.hitProp = api.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
        own.missProp = api.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
        value.accessPolicyWindow = own
        return value


def windows(
    users: Users, addresses: Sequence[int], ctx: LinkContext, device: CudaDevice
) -> dict[int, AccessPolicyWindow]:
    """By launch the largest of its weights that the limit has room for; sets that part of the cache
    aside.
    """
    if not ctx.persistent_cache_limit:
        return {}
    device.set_aside(ctx.persistent_cache_limit)
    out: dict[int, AccessPolicyWindow] = {}
    for b in chosen(
        users,
        ctx.weights,
        ctx.persistent_cache_limit,
        device.attribute("MAX_ACCESS_POLICY_WINDOW_SIZE"),
    ):
        for _, _, start in users[b]:
            if start not in out or out[start].size < ctx.weights[b]:
                out[start] = AccessPolicyWindow(addresses[b], ctx.weights[b])
    return out


def chosen(users: Users, weights: Mapping[int, int], limit: int, largest: int) -> list[int]:
    """Weights that fit into so many bytes: those that most launches read come first, then the small
    ones.

    All are read once per run and launch, so that a byte is worth what the number of launches says.
    """
    reads = Counter({b: len({start for _, _, start in users[b]}) for b in weights if b in users})
    out, left = [], limit
    for b in sorted(reads, key=lambda b: (-reads[b], weights[b], b)):
        if 0 < weights[b] <= min(left, largest):
            out.append(b)
            left -= weights[b]
    return out
