"""What packs and things in them may be called. Every process that looks for packs imports this."""

from __future__ import annotations

import re

from tactix.base.errors import ConfigError

OWN = "tactix"
RESERVED = frozenset({OWN, "tensorrt", "trt", "onnx", "std"})
NAMESPACE = r"[a-z][a-z0-9_]*"
NAME = r"[A-Za-z][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*"
VERSION = r"[1-9][0-9]*"


def check_namespace(namespace: str, *, own: bool = False) -> str:
    """The namespace, if a pack may have it; ``own``: the pack is tactix. Raises ConfigError."""
    if not re.fullmatch(NAMESPACE, namespace):
        do = "Use lower-case letters, digits and _, starting with a letter"
        raise ConfigError(f"{namespace!r} is no namespace", do=do)
    if namespace in RESERVED and not (own and namespace == OWN):
        raise ConfigError(
            f"namespace {namespace!r} is reserved",
            do="Choose another name for the pack's entry points",
        )
    return namespace
