"""What compilers of every language share: the name of a kernel's entry, and what a failure says
first.
"""

from __future__ import annotations

from tactix.contracts.artifact import Source


def symbol(source: Source) -> str:
    """The entry's name in the shared object."""
    return f"k_{source.digest[:16]}"


def first_errors(output: str, count: int = 6) -> str:
    """The compiler's first error lines, or the first lines at all."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return "; ".join((errors or lines or ["it said nothing"])[:count])
