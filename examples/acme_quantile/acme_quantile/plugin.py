"""The hook: a calibrator under its key, without data; with data it is made by
``Quantile(batches)``.
"""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_calibrators() -> list[Any]:
    from acme_quantile.calibrator import Quantile

    return [Quantile()]
