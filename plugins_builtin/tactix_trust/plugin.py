"""Whose plans may bring code: the package's functions import the rest."""

from __future__ import annotations

from tactix.plugins.pack import BasePack
from tactix_trust import trust_stores

pack = BasePack("tactix")
pack.trust_store(trust_stores)
