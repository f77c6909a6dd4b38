"""The acme-quantile pack: ranges for quantisation by quantiles of what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix_sdk import Pack

if TYPE_CHECKING:
    from acme_quantile.calibrator import Quantile

pack = Pack("acme_quantile")


@pack.calibrator
def quantile() -> Quantile:
    """The calibrator under its key, without data; with data it is made by ``Quantile(batches)``."""
    from acme_quantile.calibrator import Quantile

    return Quantile()
