"""Packs that tests make of objects."""

from __future__ import annotations

from typing import Any

import tactix
from tactix.plugins.session import Session
from tactix_sdk import hookimpl


class Pack:
    """A plugin object with these tactics, and layers."""

    def __init__(self, *tactics: Any, layers: tuple[Any, ...] = ()) -> None:
        self.tactics, self.layers = list(tactics), list(layers)

    @hookimpl
    def tactix_tactics(self) -> list[Any]:
        return self.tactics

    @hookimpl
    def tactix_layers(self) -> list[Any]:
        return self.layers


def builder(pack: Pack) -> tactix.Builder:
    return tactix.Builder(session=Session(plugins=[("acme", pack)]))
