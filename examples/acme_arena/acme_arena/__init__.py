"""The acme-arena pack: host memory for plans, limited, kept and counted."""

from acme_arena.pool import Pool

__all__ = ["Pool"]
