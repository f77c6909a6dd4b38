"""Which products of a build became 8 bits, and why others did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tactix.base.logger import Logger
from tactix.plan.schema import Plan
from tactix.select.precision import told


@dataclass(frozen=True)
class QuantizedProducts:
    """``narrow``: names of products that read 8 bits; ``wide``: why others stay float, by name."""

    narrow: frozenset[str]
    wide: Mapping[str, str]

    @classmethod
    def of(cls, plan: Plan, key: str) -> QuantizedProducts:
        """As the ledger has it; ``key``: what it calls the stage."""
        fusion = [p.ledger["fusion"] for p in plan.nested()]
        fired = (row for f in fusion for row in f["fired"] if row["rule"] == key)
        narrow = frozenset(name for row in fired for name in row["removed"])
        missed = (row for f in fusion for row in f["nearly"] if row["rule"] == key)
        wide = {row["node"]: row["reason"] for row in missed if row["node"] not in narrow}
        return cls(narrow, wide)

    def tell(self, logger: Logger, precision: str) -> None:
        """In one line; a warning if nothing is of 8 bits."""
        if not self.narrow:
            why = told(self.wide) or "it has no product"
            do = "`tactix explain PLAN` tells why, layer by layer"
            logger.warning(f"nothing is computed in {precision}: {why}. {do}")
            return
        rest = f"; {len(self.wide)} stay float: {told(self.wide)}" if self.wide else ""
        total = len(self.narrow) + len(self.wide)
        logger.info(f"{len(self.narrow)} of {total} products in {precision}{rest}")
