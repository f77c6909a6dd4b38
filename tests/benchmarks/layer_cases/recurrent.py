"""Recurrent layers and signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layer_cases.case import Case, scalar


def recurrent() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for note, steps, batch, size, hidden, ways in (
            ("one", 32, 1, 64, 64, 1), ("batch 8", 16, 8, 64, 128, 1), ("both ways", 16, 1, 64, 64, 2),
            ("odd", 9, 3, 33, 35, 1),
        ):  # fmt: skip
            attrs: dict[str, Any] = {"hidden_size": hidden}
            if ways == 2:
                attrs["direction"] = "bidirectional"
            rows = gates * hidden
            given = (
                f"f32[{steps},{batch},{size}]",
                f"= f32[{ways},{rows},{size}] -0.1:0.1",
                f"= f32[{ways},{rows},{hidden}] -0.1:0.1",
                f"= f32[{ways},{2 * rows}] -0.1:0.1",
            )
            yield Case(op, given, attrs, note, 2, slack=16)
    inner = ("f32[16,1,64]", "= f32[1,192,64] -0.1:0.1", "= f32[1,192,64] -0.1:0.1")
    yield Case(
        "GRU", inner, {"hidden_size": 64, "linear_before_reset": 1}, "linear before reset", slack=16
    )

    yield from _options()


def _options() -> Iterator[Case]:
    """What sets these layers' attributes and optional inputs apart."""
    lstm = ("f32[16,4,64]", "= f32[1,256,64] -0.1:0.1", "= f32[1,256,64] -0.1:0.1")
    gru = ("f32[16,4,64]", "= f32[1,192,64] -0.1:0.1", "= f32[1,192,64] -0.1:0.1")
    bias, lengths = "= f32[1,512] -0.1:0.1", "i32[4] 1:17"
    peepholes = "= f32[1,192] -0.1:0.1"
    same = {"hidden_size": 64}
    others = {**same, "activations": ["HardSigmoid", "Softsign"]}
    yield Case("LSTM", (*lstm, bias, lengths), same, "lengths", 2, slack=16)
    yield Case("LSTM", (*lstm, bias, "", "", "", peepholes), same, "peepholes", 2, slack=16)
    yield Case("LSTM", (*lstm, bias), {**same, "clip": 0.5}, "clipped", 2, slack=16)
    yield Case("GRU", (*gru, "", lengths), same, "lengths", 2, slack=16)
    yield Case("GRU", gru, others, "hard sigmoid", 2, slack=16)
    told = (lstm[0], *(w.removeprefix("= ") for w in lstm[1:]))
    yield Case("LSTM", told, same, "told weights", 2, slack=16)


def signals() -> Iterator[Case]:
    for n in (512, 1000, 509):
        yield Case(
            "DFT",
            (f"f32[16,{n},1]", "", scalar(1, np.int64)),
            {"onesided": 1},
            "onesided",
            slack=64,
        )
    yield Case("DFT", ("f32[16,512,2]", "", scalar(1, np.int64)), {}, "complex", slack=64)
    yield Case(
        "DFT", ("f32[16,512,2]", "", scalar(1, np.int64)), {"inverse": 1}, "inverse", slack=64
    )
    frames = ("f32[1,16000,1]", scalar(160, np.int64), "= f32[400] 0:1", scalar(400, np.int64))
    yield Case("STFT", frames, {"onesided": 1}, "speech", slack=64)
    frames = ("f32[4,4096,1]", scalar(128, np.int64), "= f32[512] 0:1", scalar(512, np.int64))
    yield Case("STFT", frames, {"onesided": 1}, "power of two", slack=64)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield Case(op, ("i64[] 4096:4097",), slack=8)
    mel = tuple(f"i64[] {n}:{n + 1}" for n in (80, 512, 16000))
    yield Case("MelWeightMatrix", (*mel, scalar(0), scalar(8000)), slack=8)
