"""The acme-blas pack: a tactic source over the BLAS of this machine.

Building takes the bid, running what calls BLAS: each is imported when a session first needs it.
"""

from __future__ import annotations

from tactix_sdk import Launcher, Pack, Tactic

pack = Pack("acme_blas")


@pack.tactic
def product() -> Tactic:
    from acme_blas.tactic import BlasProduct

    return BlasProduct()


@pack.launcher
def calls() -> Launcher:
    from acme_blas.launcher import BlasLauncher

    return BlasLauncher()
