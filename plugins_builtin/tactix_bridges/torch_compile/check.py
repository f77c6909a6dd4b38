"""Whether an exported graph does what torch does."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tactix_bridges.torch_compile.graph import Unsuited

TOLERANCE = 0.05
"""Of the largest magnitude: more than sixteen bits and another order of sums change, and less than
a size that the exporter fixed.
"""


def check_shapes(expected: Sequence[tuple[int | None, ...]], made: Sequence[torch.Tensor]) -> None:
    """Raises Unsuited. ``expected``: None for sizes that only running tells."""
    for shape, tensor in zip(expected, made, strict=True):
        if any(n not in (None, size) for n, size in zip(shape, tensor.shape, strict=True)):
            raise Unsuited(f"exported, it gives {tuple(tensor.shape)} where torch gives {shape}")


def check_numbers(made: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
    """Of floats. Raises Unsuited."""
    for mine, torchs in zip(made, wanted, strict=True):
        if torchs.is_floating_point() and torchs.numel():
            _check_floats(mine.double(), torchs.double())


def _check_floats(mine: torch.Tensor, torchs: torch.Tensor) -> None:
    finite = torchs.isfinite()
    apart = (mine - torchs)[finite].abs().max() if finite.any() else torch.zeros(())
    largest = torchs[finite].abs().max() if finite.any() else torch.zeros(())
    if not apart <= TOLERANCE * largest + torch.finfo(torch.float32).tiny:
        what = f"{float(apart):.2g} apart, where numbers reach {float(largest):.2g}"
        raise Unsuited(f"exported, it gives other numbers than torch: {what}")
