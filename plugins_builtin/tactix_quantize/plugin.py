"""Calibrators, and the build stage that uses them. Heavy imports stay inside functions, so that
finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.contracts.calibrator import Calibrator
    from tactix.pipeline.stages import Staged

pack = BasePack("tactix")


@pack.calibrator
def calibrators() -> list[Calibrator]:
    from tactix_quantize.calibrators import Entropy, Entropy2, Legacy, MinMax

    return [Entropy2(), Entropy(), MinMax(), Legacy()]


@pack.build_stage
def int8() -> Staged:
    from tactix_quantize.stage import Int8Stage

    return Int8Stage()


@pack.build_stage
def fp8() -> Staged:
    from tactix_quantize.stage import Float8Stage

    return Float8Stage()
