"""Keep plans of the current format as files: ``python tests/plans/keep.py``, once per format.

They have no machine code, so that they run anywhere, and hold their lean runtime; one brings a
pack, too, which has to be installed then: ``pip install tests/builtin/lean/packs/acme_twist``.
Never change the files afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tactix
from tactix.plan import container

HERE = Path(__file__).parent


def main() -> None:
    for kind, layers in (("", ()), ("-packs", ("acme_twist.Back", "acme_twist.Plus"))):
        path = HERE / f"format-{container.VERSION}{kind}.plan"
        if path.exists():
            print(f"{path} is there already, and stays as it is", file=sys.stderr)
        else:
            keep(path, layers)


def keep(path: Path, layers: tuple[str, ...]) -> None:
    """A plan of lenet with those layers behind it, its inputs, and its results."""
    builder = tactix.Builder()
    network = builder.import_model(HERE.parent / "models" / "lenet.onnx")
    y = network.outputs[0]
    for kind in layers:
        (y,) = network.add_layer(kind, [y])
    if layers:
        network.mark_output(y, "behind")
    config = tactix.BuilderConfig(
        {tactix.BuilderFlag.VERSION_COMPATIBLE}, builder_optimization_level=0, timing_cache=False, sign=False,
        tactic_sources={"numpy", *(kind.partition(".")[0] for kind in layers)}, plugins_to_serialize=["auto"],
    )  # fmt: skip
    engine = builder.build(network, config)
    engine.save(path)
    shapes = {i.name: [d if isinstance(d, int) else 2 for d in i.shape] for i in engine.inputs}
    feed = {
        name: np.random.default_rng(3).random(shape, np.float32) for name, shape in shapes.items()
    }
    found = engine.create_execution_context().run(feed)
    kept = {**{f"in:{k}": v for k, v in feed.items()}, **{f"out:{k}": v for k, v in found.items()}}
    np.savez(path.with_suffix(".npz"), **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
