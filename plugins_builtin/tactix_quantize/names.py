"""What the tensors of a network are called in its model, and so in caches and by users."""

from __future__ import annotations

from tactix.contracts.graph import Value


def names_of(v: Value) -> list[str]:
    """At least one name: the model's first, then that of the layer which makes it."""
    return list(dict.fromkeys((*v.called, v.name)))
