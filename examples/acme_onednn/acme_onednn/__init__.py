"""The acme-onednn pack: a tactic source over oneDNN, bound by ctypes.

Building takes the bid, running what executes primitives: each is imported when a session first needs it.
"""

from __future__ import annotations

from tactix_sdk import Launcher, Pack, Tactic

pack = Pack("acme_onednn")


@pack.tactic
def product() -> Tactic:
    from acme_onednn.tactic import OneDnnProduct

    return OneDnnProduct()


@pack.launcher
def calls() -> Launcher:
    from acme_onednn.launcher import OneDnnLauncher

    return OneDnnLauncher()
