"""Devices that are stated, not found: the same on every machine, and never there, so that nothing
is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tactix
from tactix.contracts.device import Device, DeviceProperties
from tactix.plugins.hookspecs import hookimpl
from tactix.run.link import device_of

NAMESPACE = "replay"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
INT8 = frozenset({"avx512_vnni", "avx512_vbmi", "avx512_bf16"})
AMX = INT8 | {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}


@dataclass(frozen=True)
class Target:
    """``name``: in the record. ``level``: what the device of that kind knows it by; ``features``:
    beside those.
    """

    name: str
    kind: str
    level: str
    precisions: tuple[str, ...]
    features: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        return f"{NAMESPACE}.{self.name}@1"

    def properties(self, device: Device) -> DeviceProperties:
        """What is stated: of a processor all but its features is replaced, as a level takes it from
        this machine.
        """
        found = device.target(self.level)
        if self.kind != "cpu":
            return found
        facts = {
            "arch": "x86_64",
            "system": "linux",
            "l1d": 48 * KIB,
            "l2": 2 * MIB,
            "l3": 32 * MIB,
        }
        features = found.features | self.features
        return replace(
            found,
            name=self.name,
            features=features,
            cores=4,
            memory=64 * GIB,
            facts=facts,
            tuned_to={},
            family=True,
        )


TARGETS = (
    Target("x86-64-v3", "cpu", "x86-64-v3", ("fp32", "bf16")),
    Target("x86-64-v4", "cpu", "x86-64-v4", ("fp32", "bf16"), INT8),
    Target("x86-64-v4-amx", "cpu", "x86-64-v4", ("fp32", "bf16"), AMX),
    Target("sm_80", "cuda", "sm_80", ("fp32", "fp16", "tf32")),
    Target("sm_90a", "cuda", "sm_90a", ("fp32", "fp16", "tf32")),
)
"""What everything is built for; without int8, as networks with Q/DQ are what asks for that."""


def session() -> tactix.Session:
    """A session that has the built-in plugins and the stated devices, and no other pack."""
    found = tactix.Session(only=(), logger=quiet())
    stated = [_stated(t, device_of(found, t.kind)) for t in TARGETS]

    class Pack:
        TACTIX_NAMESPACE = NAMESPACE

        @staticmethod
        @hookimpl
        def tactix_devices() -> Sequence[Device]:
            return stated

    return tactix.Session(plugins=[Pack], only=(NAMESPACE,), logger=quiet())


def quiet() -> tactix.Logger:
    return tactix.Logger(tactix.Severity.INTERNAL_ERROR)


def _stated(target: Target, like: Device) -> Device:
    """A device of the same class as one of that kind."""
    fields: dict[str, Any] = {
        "key": target.key,
        "available": lambda self: "it is stated, not found",
        "target": lambda self, name: target.properties(like),
        "properties": lambda self: target.properties(like),
    }
    made: Device = type("Stated", (type(like),), fields)()
    return made
