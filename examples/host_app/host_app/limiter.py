"""The engine, made when the application starts: no model file, no plan file, no cache."""

from typing import Any

import numpy as np

import tactix
from host_app.plugins import session

Array = np.ndarray[Any, Any]


class Limiter:
    """Smooths by a Hann window of ``taps`` samples (odd), then limits softly to 1 / ``drive``."""

    def __init__(self, taps: int = 31, drive: float = 1.25, longest: int = 1 << 20) -> None:
        builder = tactix.Builder(session=session())
        network = builder.create_network("limiter")
        window = np.hanning(taps + 2)[1:-1].astype(np.float32)
        x = network.add_input("x", "f32", ("channels", 1, "samples"))
        w = network.add_constant((window / window.sum()).reshape(1, 1, taps))
        (y,) = network.add_layer(
            "tactix.Convolution", [x, w], "smooth", pads=(taps // 2, taps // 2)
        )
        (y,) = network.add_layer("host_app.SoftLimit", [y], "limit", drive=drive)
        network.mark_output(y, "y")
        profile = tactix.OptimizationProfile()
        profile.set_shape("x", (1, 1, 1), (2, 1, 4096), (8, 1, longest))
        self.engine = builder.build(
            network, tactix.BuilderConfig(profiles=[profile], timing_cache=False)
        )

    def __call__(self, audio: Array) -> Array:
        """``audio``: float32 (channels, samples), of at least one and at most ``longest`` samples."""
        y: Array = self.engine(audio[:, None])
        return y[:, 0]
