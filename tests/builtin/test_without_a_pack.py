"""Any built-in pack but the operations and the device in use can be left out: what needed it says
so by its name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"ops", "cpu"}

BEGIN = """
import sys
import numpy as np
import tactix
from tactix import BuilderFlag
from tactix.base.errors import TactixError

folder, model = sys.argv[1:]
builder = tactix.Builder()
runtime = tactix.Runtime(session=builder.session, on_untrusted="allow")
net = builder.create_network("small")
x = net.add_input("x", "f32", ["n", 3])
(h,) = net.add_layer("tactix.Relu", [x])
net.mark_output(net.add_layer("tactix.Mul", [h, net.add_constant(np.float32([1, 2, 3]), "c")])[0], "y")

def config(**options):
    return tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, **options)

plan = builder.build_plan(net, config())
"""
RUN = """
given = np.float32([[1, -1, 2]])
engine = runtime.load(plan)
engine.save(folder + "/it.plan")
for e in (engine, runtime.deserialize(folder + "/it.plan")):
    np.testing.assert_array_equal(e(given), [[1, 0, 6]])
"""
REFUSED = """
try:
    {needs}
except TactixError as e:
    print(type(e).__name__, e)
else:
    print("nothing was refused")
"""

FLAG = "builder.build_plan(net, config(flags={{BuilderFlag.{0}}}))"
NEEDS = {
    "cublaslt": (
        "builder.build_plan(net, config(tactic_sources={'cublaslt'}))",
        "ConfigError no tactic source",
    ),
    "cuda": (
        "builder.build_plan(net, config(device='cuda', target='sm_90'))",
        "ConfigError no plugin provides device",
    ),
    "cudnn": (
        "builder.build_plan(net, config(tactic_sources={'cudnn'}))",
        "ConfigError no tactic source",
    ),
    "inspect": ("runtime.load(plan).shadow()", "PluginError small: no flavour in use shadows"),
    "lock": (
        "builder.build_plan(net, config(frozen='it.lock'))",
        "ConfigError the option frozen cannot be served",
    ),
    "onnx": ("builder.import_model(model)", "ModelImportError"),
    "quantize": (FLAG.format("INT8"), "ConfigError BuilderFlag.INT8 cannot be served"),
    "refit": (FLAG.format("REFIT"), "ConfigError BuilderFlag.REFIT cannot be served"),
    "runtime": (
        FLAG.format("WEIGHT_STREAMING"),
        "ConfigError BuilderFlag.WEIGHT_STREAMING cannot be served",
    ),
    "serve": ("", ""),
    "ship": (
        FLAG.format("VERSION_COMPATIBLE"),
        "ConfigError BuilderFlag.VERSION_COMPATIBLE cannot be served",
    ),
    "tensorrt": ("", ""),
    "tools": ("", ""),
    "trtops": ("", ""),
    "trust": (
        "tactix.Runtime(session=builder.session).deserialize(folder + '/it.plan')",
        "UntrustedPlan",
    ),
}
"""Of each pack, what cannot be done without it, and how the error begins."""


def packs() -> set[str]:
    """The built-in packs that have an entry point."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    names = {name for group in groups.values() for name in group}
    return {name.partition(".")[2] for name in names if name.startswith("tactix.")}


def process(pack: str, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TACTIX_DISABLE": pack}
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)


def test_every_pack_is_left_out_once() -> None:
    assert NEEDS.keys() == packs() - NEEDED


@pytest.mark.parametrize("pack", sorted(NEEDS))
def test_the_rest_works(pack: str, tmp_path: Path) -> None:
    needs, error = NEEDS[pack]
    code = (
        BEGIN + (RUN if pack != "runtime" else "") + (REFUSED.format(needs=needs) if needs else "")
    )
    found = process(pack, "-c", code, str(tmp_path), str(ROOT / "tests" / "models" / "mlp.onnx"))
    assert found.returncode == 0, found.stderr
    if needs:
        assert found.stdout.startswith(error)
        assert f"its plugin 'tactix.{pack}' (tactix" in found.stdout
        assert f"Take '{pack}' out of TACTIX_DISABLE" in found.stdout


def test_without_the_runtime_no_plan_runs(tmp_path: Path) -> None:
    found = process(
        "runtime", "-c", BEGIN + REFUSED.format(needs="runtime.load(plan)"), str(tmp_path), ""
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(
        "MissingKey flavour 'default' is unavailable: its plugin 'tactix.runtime' (tactix"
    )


@pytest.mark.parametrize("pack", sorted(NEEDS))
def test_the_plugins_are_listed(pack: str) -> None:
    found = process(pack, "-m", "tactix", "plugins", "list")
    if pack == "tools":
        assert found.returncode == 2
        assert "No such command 'plugins': its plugin 'tactix.tools' (tactix" in found.stderr
        return
    assert found.returncode == 0, found.stderr
    rows = {words[0]: words for line in found.stdout.splitlines() if (words := line.split())}
    assert "disabled" in rows[f"tactix.{pack}"]
    assert "active" in rows["tactix.ops"]
