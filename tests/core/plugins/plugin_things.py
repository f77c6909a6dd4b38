"""What tests give through hooks."""

from __future__ import annotations

from typing import Any

from tactix.contracts.flavour import Flavour
from tactix.contracts.importer import Converter, Importer
from tactix.contracts.layer import Layer
from tactix.contracts.rule import Rule
from tactix.contracts.tactic import Tactic


class Thing(Layer, Tactic, Rule, Converter, Importer, Flavour[Any]):  # type: ignore[misc]
    """Passes for an object of any hook; it has the fields that are given."""

    key = ""
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def load(self, *args: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError

    def claims(self, source: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<thing {self.key}>"
