"""The devices that a model's config.toml names, looked at before anything is loaded or built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tactix.base.errors import ConfigError, PlanCompatibilityError
from tactix.contracts.device import Device
from tactix.plugins.session import Session
from tactix.run.link import device_of
from tactix.run.runtime import ALL

FORM = "Write names with commas between, as cuda:0,cuda:1, or all"


@dataclass(frozen=True)
class AskedDevices:
    """``value``: as it is in the file at ``path``. ``names``: of it. ``kind``: what a model is
    built for.
    """

    path: Path
    value: str
    names: tuple[str, ...]
    kind: str

    def blamed(self, error: PlanCompatibilityError) -> PlanCompatibilityError:
        """The error of a plan that cannot run there, which says where they were asked for."""
        if not self.names:
            return error
        do = "Name devices that the plan was built for, or leave devices out"
        what, who = f"devices is {self.value!r}: {error.what}", str(self.path)
        return PlanCompatibilityError(what, who=who, reasons=error.reasons, do=do)


def asked_devices(path: Path, value: str, session: Session) -> AskedDevices:
    """Of the setting ``devices``; empty for the first that a plan is for. Raises ConfigError where
    one is not here, is named twice, or is no name.
    """
    names = tuple(name.strip() for name in value.split(",") if value)
    if not names or names == (ALL,):
        return AskedDevices(path, value, names, "cpu")
    what, found = f"devices is {value!r}", list[Device]()
    if not all(names):
        raise ConfigError(what, who=str(path), why="a name is empty", do=FORM)
    for name in names:
        try:
            device = device_of(session, name)
        except ConfigError as e:
            why = ": ".join(filter(None, (e.what, e.why)))
            raise ConfigError(what, who=str(path), why=why, do=e.do or FORM) from None
        if absent := device.available():
            why = f"device {name!r} is not here: {absent}"
            raise ConfigError(what, who=str(path), why=why, do="Leave it out")
        if device in found:
            do = "Name each once: contexts of one device already run beside each other"
            raise ConfigError(what, who=str(path), why=f"{device.label} is named twice", do=do)
        found.append(device)
    return AskedDevices(path, value, names, found[0].kind)
