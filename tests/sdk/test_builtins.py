"""tactix's own plugins pass the checks of any pack."""

from __future__ import annotations

from tactix_sdk.testing import PackTests

FUSED = "it takes groups that fusing makes; tests/builtin/tactics has its cases"


class TestBuiltins(PackTests):
    pack = "tactix"
    beyond = {
        "tactix.c_int8_pointwise@1": FUSED,
        "tactix.c_int8_quantize@1": FUSED,
        "tactix.c_bf16_conv@1": FUSED,
        "tactix.view@1": "its results are its inputs' memory, which an output of the network cannot be",
        "tactix.c_reformat@1": "changes of format are the builder's",
        "tactix.control@1": "branches and loops; tests/builtin/launchers has its cases",
    }
