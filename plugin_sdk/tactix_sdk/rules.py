"""The words of rewrite rules. ``pointwise(...)`` is the pattern for any pointwise layer here, not
the decorator.
"""

from tactix.contracts.rule import (
    ANY,
    P,
    Rule,
    anchor,
    any_of,
    anything,
    const,
    fuse,
    literal,
    pointwise,
    var,
)

__all__ = [
    "ANY",
    "P",
    "Rule",
    "anchor",
    "any_of",
    "anything",
    "const",
    "fuse",
    "literal",
    "pointwise",
    "var",
]
