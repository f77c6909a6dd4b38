"""Tactics for ``sm_90a``: matrix instructions of a warp group, and the copy engine."""
