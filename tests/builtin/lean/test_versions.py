"""Two versions of tactix, with plan formats that do not fit, run each other's plans; old plans load
for ever.

The plans bring a pack, which the runtime that they bring has to import.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.plan import container

REPO = Path(__file__).parents[3]
MODEL = REPO / "tests" / "models" / "mlp.onnx"
PLANS = REPO / "tests" / "plans"
SOURCES = ("core", "plugins_builtin", "plugin_sdk")

BUILD = """
import sys, numpy as np, tactix
from tactix import BuilderFlag
model, plan, inputs, outputs = sys.argv[1:]
builder = tactix.Builder()
network = builder.import_model(model)
y = network.outputs[0]
for kind in ("acme_twist.Back", "acme_twist.Plus"):
    (y,) = network.add_layer(kind, [y])
network.mark_output(y, "twisted")
flags = {BuilderFlag.VERSION_COMPATIBLE}
config = tactix.BuilderConfig(flags, builder_optimization_level=0, timing_cache=False, plugins_to_serialize=["auto"])
engine = builder.build(network, config)
engine.save(plan)
feed = {i.name: np.random.default_rng(5).random([d if isinstance(d, int) else 2 for d in i.shape], np.float32)
        for i in engine.inputs}
np.savez(inputs, **feed)
np.savez(outputs, **engine.create_execution_context().run(feed))
"""
RUN = """
import json, sys, numpy as np, tactix
facts = {"version": tactix.__version__, "same": [], "handed_over": []}
for folder in sys.argv[1:]:
    with np.load(folder + "/in.npz") as f: feed = dict(f)
    with np.load(folder + "/out.npz") as f: expected = {k: v.tobytes() for k, v in f.items()}
    engine = tactix.Runtime(flavour="dispatch").deserialize(folder + "/it.plan")
    found = {k: v.tobytes() for k, v in engine.create_execution_context().run(feed).items()}
    facts["same"].append(found == expected)
    engine = tactix.load(folder + "/it.plan")
    found = {k: v.tobytes() for k, v in engine.create_execution_context().run(feed).items()}
    facts["same"].append(found == expected)
    facts["handed_over"].append(type(engine).__module__.startswith("_tactix_lean_"))
facts["packs"] = sorted({m.partition(".")[0] for m in sys.modules if m.startswith("_plan_")})
runtimes = [m for m in sys.modules if m.startswith("_tactix_lean_") and "." not in m]
facts["runtimes"] = sorted(sys.modules[m].__version__ for m in runtimes)
print(json.dumps(facts))
"""


def run(tree: Path, code: str, *args: object, packs: str = "") -> str:
    path = os.pathsep.join([*(str(tree / source) for source in SOURCES), *filter(None, [packs])])
    command = [sys.executable, "-c", code, *map(str, args)]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tree)
    assert done.returncode == 0, done.stderr
    return done.stdout


def change(path: Path, pattern: str, to: str) -> None:
    text, count = re.subn(pattern, to, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert count == 1, path
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree as another version, whose plans have another format."""
    tree = tmp_path_factory.mktemp("other")
    for source in SOURCES:
        shutil.copytree(
            REPO / source,
            tree / source,
            ignore=shutil.ignore_patterns("__pycache__", ".*", "*.egg-info"),
        )
    change(tree / "core/tactix/__init__.py", r'^__version__ = ".*"', '__version__ = "7.0.0"')
    change(
        tree / "core/tactix/plan/container.py",
        r"^VERSION = \d+",
        f"VERSION = {container.VERSION + 1}",
    )
    return tree


def test_two_versions_run_each_others_plans(
    other: Path, tmp_path: Path, wheels: Path, pip: Callable[..., None]
) -> None:
    folders, packs = [], tmp_path / "packs"
    pip(
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        packs,
        next(wheels.glob("acme_twist-1.0*")),
    )
    for name, tree in (("this", REPO), ("other", other)):
        folder = tmp_path / name
        folder.mkdir()
        run(
            tree,
            BUILD,
            MODEL,
            folder / "it.plan",
            folder / "in.npz",
            folder / "out.npz",
            packs=str(packs),
        )
        folders.append(folder)
    for tree, version, own in ((REPO, tactix.__version__, 0), (other, "7.0.0", 1)):
        facts: dict[str, Any] = json.loads(run(tree, RUN, *folders))
        assert facts["version"] == version
        assert facts["same"] == [True] * 4
        assert facts["handed_over"] == [own == 1, own == 0], (
            "without a flavour the one of the other version alone"
        )
        assert len(facts["packs"]) == 3, (
            "the pack once for either runtime, and for the host, which loads its own plan"
        )
        assert facts["runtimes"] == sorted([tactix.__version__, "7.0.0"]), "both in one process"


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.plan")), ids=lambda p: p.stem)
def test_plans_of_every_format_load_for_ever(path: Path) -> None:
    """Each was built by ``python tests/plans/keep.py`` when its format was new, and is never built
    again.
    """
    with np.load(path.with_suffix(".npz")) as f:
        feed, expected = (
            {k[3:]: f[k] for k in f if k.startswith("in:")},
            [f[k] for k in f if k.startswith("out")],
        )
    engine = tactix.Runtime(flavour="dispatch", on_untrusted="allow").deserialize(path)
    engines = [engine]
    if path.stem.startswith(f"format-{container.VERSION}"):
        engines.append(tactix.Runtime(on_untrusted="allow").deserialize(path))
    for e in engines:
        found = list(e.create_execution_context().run(feed).values())
        assert len(found) == len(expected)
        for y, z in zip(found, expected, strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)


def test_this_format_has_a_plan_that_is_kept() -> None:
    for kind in ("", "-packs"):
        assert (PLANS / f"format-{container.VERSION}{kind}.plan").exists()
