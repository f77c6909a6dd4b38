"""Keep a plan of the current format as a file: ``python tests/plans/keep.py``, once per format.

It has no machine code, so that it runs anywhere, and holds its lean runtime. Never change the file afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tactix
from tactix.plan import container

HERE = Path(__file__).parent


def main() -> None:
    path = HERE / f"format-{container.VERSION}.plan"
    if path.exists():
        sys.exit(f"{path} is there already, and stays as it is")
    flags = {tactix.BuilderFlag.VERSION_COMPATIBLE}
    model = HERE.parent / "models" / "lenet.onnx"
    engine = tactix.build(model, level=0, timing_cache=False, tactic_sources={"numpy"}, flags=flags, sign=False)
    engine.save(path)
    shapes = {i.name: [d if isinstance(d, int) else 2 for d in i.shape] for i in engine.inputs}
    feed = {name: np.random.default_rng(3).random(shape, np.float32) for name, shape in shapes.items()}
    found = engine.create_execution_context().run(feed)
    kept = {**{f"in:{k}": v for k, v in feed.items()}, **{f"out:{k}": v for k, v in found.items()}}
    np.savez(path.with_suffix(".npz"), **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
