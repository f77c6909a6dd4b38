"""Whose plans may bring code. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.trust import TrustStore


@hookimpl
def tactix_trust_stores() -> list[TrustStore]:
    from tactix_trust import trust_stores

    return trust_stores()
