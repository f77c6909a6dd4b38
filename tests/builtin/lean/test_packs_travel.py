"""A plan made with two packs runs where both are gone: in an environment of numpy and the lean
runtime alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import PlanCompatibilityError, UntrustedPlan
from tactix_tools.cli import main

BUILD = """
import json, sys, numpy as np, tactix
folder, version_compatible, kinds, packs = json.loads(sys.argv[1])
builder = tactix.Builder()
network = builder.create_network("mixed")
y = network.add_input("x", "f32", ("n", 5))
for kind in kinds:
    (y,) = network.add_layer(kind, [y])
network.mark_output(y, "y")
flags = {tactix.BuilderFlag.VERSION_COMPATIBLE} if version_compatible else set()
config = tactix.BuilderConfig(flags, builder_optimization_level=0, timing_cache=False, plugins_to_serialize=packs)
engine = builder.build(network, config)
engine.save(folder + "/it.plan")
feed = {"x": np.random.default_rng(11).standard_normal((3, 5), np.float32)}
np.savez(folder + "/in.npz", **feed)
np.savez(folder + "/out.npz", **engine.create_execution_context().run(feed))
print(json.dumps(engine.get_used_plugin_libraries()))
"""
RUN = """
import json, sys, numpy as np, {package} as runtime
same = []
for folder in sys.argv[1:]:
    with np.load(folder + "/in.npz") as f: feed = dict(f)
    with np.load(folder + "/out.npz") as f: expected = {{k: v.tobytes() for k, v in f.items()}}
    found = runtime.load(folder + "/it.plan").create_execution_context().run(feed)
    same.append({{k: v.tobytes() for k, v in found.items()}} == expected)
names = ("acme_cube", "acme_twist", "tactix", "tactix_sdk", "pluggy", "onnx")
there = []
for name in names:
    try: there.append(__import__(name).__name__)
    except ImportError: pass
print(json.dumps({{"same": same, "there": there, "packs": sorted(m for m in sys.modules if m.startswith("_plan_"))}}))
"""
MIXED = ["acme_cube.Cube", "acme_twist.Back", "tactix.Relu", "acme_twist.Plus"]


def python(interpreter: Path, code: str, *args: object) -> Any:
    """What the code prints, as JSON; nothing of this process's path or environment for Python is in
    it.
    """
    command = [str(interpreter), "-I", "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Workshop:
    """An environment in which tactix is at hand and packs come and go."""

    def __init__(self, folder: Path, wheels: Path, pip: Callable[..., None]) -> None:
        self.folder, self.wheels, self.pip = folder, wheels, pip
        venv.create(folder / "env", with_pip=False, symlinks=os.name != "nt")
        self.python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        where = "import json, sysconfig; print(json.dumps(sysconfig.get_path('purelib')))"
        site = Path(python(self.python, where))
        here = {*(p for p in sys.path if p.endswith(("core", "plugins_builtin", "plugin_sdk")))}
        lines = [
            f"import site; site.addsitedir({sysconfig.get_path(p)!r})"
            for p in ("purelib", "platlib")
        ]
        (site / "host.pth").write_text("\n".join([*sorted(here), *dict.fromkeys(lines)]) + "\n")
        self.site = site

    def install(self, *names: str) -> None:
        found = [next(self.wheels.glob(f"{name}-*.whl")) for name in names]
        self.pip(
            "install",
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--upgrade",
            "--target",
            self.site,
            *found,
        )

    def uninstall(self) -> None:
        for path in self.site.glob("acme_*"):
            shutil.rmtree(path)

    def build(
        self, name: str, kinds: list[str], *packs: str, compatible: bool = False
    ) -> tuple[Path, list[str]]:
        folder = self.folder / name
        folder.mkdir()
        return folder, python(
            self.python, BUILD, json.dumps([str(folder), compatible, kinds, packs])
        )


@pytest.fixture(scope="module")
def workshop(
    tmp_path_factory: pytest.TempPathFactory, wheels: Path, pip: Callable[..., None]
) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"), wheels, pip)


@pytest.fixture(scope="module")
def plans(workshop: Workshop) -> dict[str, Path]:
    """Folders with a plan, its inputs and its results, each built by what was installed then;
    nothing is any more.
    """
    workshop.install("acme_cube-1.0", "acme_twist-1.0")
    found = {
        name: workshop.build(name, kinds, *packs, compatible=compatible)
        for name, kinds, packs, compatible in (
            ("mixed", MIXED, ["auto"], True),
            ("bare", MIXED, [], False),
            ("data", MIXED[:1], ["acme-cube"], False),
        )
    }
    assert {name: used for name, (_, used) in found.items()} == {
        "mixed": ["acme-twist==1.0"],
        "bare": ["acme-twist==1.0"],
        "data": [],
    }
    workshop.uninstall()
    workshop.install("acme_cube-1.0", "acme_twist-2.0")
    found["other"] = workshop.build(
        "other", MIXED, str(next(workshop.wheels.glob("acme_twist-2.0*")))
    )
    assert found["other"][1] == ["acme-twist==2.0"]
    return {name: folder for name, (folder, _) in found.items()}


def test_it_runs_where_the_packs_are_gone(
    plans: dict[str, Path], workshop: Workshop, bare_python: Path
) -> None:
    workshop.uninstall()
    facts = python(bare_python, RUN.format(package="tactix_lean"), plans["mixed"])
    assert facts["same"] == [True]
    assert facts["there"] == [], "numpy and the lean runtime, nothing else"
    assert {m.partition(".")[2] for m in facts["packs"]} == {
        "",
        "acme_twist",
        "acme_twist.plugin",
        "acme_twist.rows",
    }


def test_what_is_data_needs_no_pack(plans: dict[str, Path], bare_python: Path) -> None:
    facts = python(bare_python, RUN.format(package="tactix_lean"), plans["data"])
    assert facts == {"same": [True], "there": [], "packs": []}


@pytest.mark.parametrize("package", ["tactix_lean", "tactix"])
def test_two_versions_of_a_pack_side_by_side(
    package: str, plans: dict[str, Path], workshop: Workshop, bare_python: Path
) -> None:
    interpreter = bare_python if package == "tactix_lean" else workshop.python
    workshop.uninstall()
    order = ["mixed", "other", "mixed"]
    facts = python(interpreter, RUN.format(package=package), *(plans[name] for name in order))
    assert facts["same"] == [True, True, True]
    assert len({m.partition(".")[0] for m in facts["packs"]}) == 2
    results = [np.load(plans[name] / "out.npz")["y"].tobytes() for name in ("mixed", "other")]
    assert results[0] != results[1]


def test_what_the_plan_brings_goes_before_what_is_installed(
    plans: dict[str, Path], workshop: Workshop
) -> None:
    workshop.uninstall()
    workshop.install("acme_twist-2.0")
    facts = python(workshop.python, RUN.format(package="tactix"), plans["mixed"], plans["other"])
    assert facts["same"] == [True, True]
    assert "acme_twist" in facts["there"]


def results(runtime: tactix.Runtime, folder: Path) -> bool:
    with np.load(folder / "in.npz") as f, np.load(folder / "out.npz") as g:
        found = runtime.deserialize(folder / "it.plan").create_execution_context().run(dict(f))
        return found["y"].tobytes() == g["y"].tobytes()


@pytest.mark.parametrize("flavour", ["default", "lean", "dispatch"])
def test_every_flavour(flavour: str, plans: dict[str, Path]) -> None:
    assert results(tactix.Runtime(flavour=flavour), plans["mixed"])


@pytest.mark.parametrize("flavour", ["default", "lean", "dispatch"])
def test_its_python_is_host_code(
    flavour: str, plans: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not trusted here."""
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path))
    known = set(sys.modules)
    with pytest.raises(UntrustedPlan) as e:
        tactix.Runtime(flavour=flavour).deserialize(
            plans["other" if flavour != "dispatch" else "mixed"] / "it.plan"
        )
    assert not [m for m in set(sys.modules) - known if m.startswith("_plan_")]
    if flavour != "dispatch":
        assert "Python of acme-twist 2.0, sha256" in str(e.value)
        assert results(tactix.Runtime(flavour=flavour, on_untrusted="allow"), plans["other"])


def test_references_of_an_installed_pack(
    plans: dict[str, Path], workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of what is not trusted; the Python in the plan is not looked at."""
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path))
    monkeypatch.setenv("TACTIX_UNTRUSTED", "references")
    workshop.uninstall()
    workshop.install("acme_cube-1.0", "acme_twist-1.0")
    facts = python(workshop.python, RUN.format(package="tactix"), plans["mixed"])
    assert facts["same"] == [True]
    assert facts["packs"] == []


@pytest.mark.parametrize("flavour", ["default", "lean"])
def test_a_missing_pack_is_named(flavour: str, plans: dict[str, Path]) -> None:
    with pytest.raises(
        PlanCompatibilityError, match=r"acme_twist\.rows@1' \(of acme-twist 1\.0\)"
    ) as e:
        tactix.Runtime(flavour=flavour).deserialize(plans["bare"] / "it.plan")
    assert len(e.value.reasons) == 2
    assert "pip install acme-twist==1.0" in str(e.value)
    told = tactix.Runtime().check(plans["bare"] / "it.plan")
    assert told[0] == e.value.reasons[0]
    assert told[1].startswith(f"{e.value.reasons[1]}. pip install acme-twist==1.0"), "and the cure"
    assert tactix.Runtime().check(plans["mixed"] / "it.plan") == []


def test_inspecting_imports_nothing(
    plans: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known = set(sys.modules)
    assert main(["inspect", str(plans["mixed"] / "it.plan"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["requirements"]
    assert {r["key"]: r["embedded"] for r in rows if r["dist"] == "acme-twist"} == {
        "acme_twist.Plus@1": True,
        "acme_twist.rows@1": True,
    }
    assert main(["inspect", str(plans["mixed"] / "it.plan")]) == 0
    assert "(acme-twist 1.0, in the plan)" in " ".join(capsys.readouterr().out.split())
    assert not [m for m in set(sys.modules) - known if m.startswith("_plan_")]


SAVE = """
import dataclasses, json, sys, tactix_lean
plan, path = sys.argv[1:]
engine = tactix_lean.load(plan)
made = tactix_lean.Runtime().load(dataclasses.replace(engine.plan, seal=None))
try: made.save(path); print(json.dumps(""))
except tactix_lean.TactixError as e: print(json.dumps(str(e)))
"""


def test_the_lean_runtime_signs_what_it_saves(
    plans: dict[str, Path], bare_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the key that is there; making one is for tactix."""
    plan = plans["mixed"] / "it.plan"
    assert python(bare_python, SAVE, plan, tmp_path / "again.plan") == ""
    assert (tmp_path / "again.plan").read_bytes() == plan.read_bytes()
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path))
    allowed = SAVE.replace("load(plan)", "load(plan, on_untrusted='allow')")
    told = python(bare_python, allowed, plan, tmp_path / "other.plan")
    assert "tactix keys new --local" in told
    assert not (tmp_path / "other.plan").exists()
