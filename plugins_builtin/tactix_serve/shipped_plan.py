"""A plan as bytes that come from another process: checked before anything of it runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tactix.base.arrays import Array
from tactix.base.errors import PlanFormatError
from tactix.plan import container
from tactix.run.engine import Engine
from tactix.run.runtime import Runtime


@dataclass(frozen=True)
class ShippedPlan:
    """What is told beside the bytes. ``name``: of the file, for people. ``digest``: sha256 of all
    bytes that were sent, the signature among them. ``device``: kind of the device that it is for.
    """

    name: str
    digest: str
    device: str


def described(content: Array, name: str) -> ShippedPlan:
    """Of a plan's bytes, a flat array of uint8, that are whole. Whether its code may run is asked
    where it would. Raises PlanFormatError.
    """
    view = container.buffer(content)
    plan = container.load(view, verify=True)
    return ShippedPlan(name, _digest(view), str(plan.device.get("kind") or "cpu"))


def opened(content: Array, shipped: ShippedPlan, threads: int, on_untrusted: str = "") -> Engine:
    """The engine of a plan's bytes, a flat array of uint8 that stays where it is: weights are read
    from there. That they are what was sent is checked, then all that ``tactix.load`` asks, trust
    here among it. ``threads``: of one inference.

    Raises PlanFormatError for bytes that are not those that were sent; as ``Runtime.deserialize``.
    """
    view = container.buffer(content)
    if (found := _digest(view)) != shipped.digest:
        why = f"its sha256 is {found}, that of the plan that was sent {shipped.digest}"
        what = "what arrived is another plan"
        raise PlanFormatError(what, who=shipped.name, why=why, do="Deploy the plan again")
    runtime = Runtime(max_threads=threads, on_untrusted=on_untrusted)
    return runtime.deserialize(view)


def _digest(view: memoryview) -> str:
    return hashlib.sha256(view).hexdigest()
