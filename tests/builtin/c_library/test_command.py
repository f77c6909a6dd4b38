"""``tactix export --c``: what it writes, what it refuses, and the example that uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_cpu.compiler import find_compiler
from tactix_ship.c_library.export import export
from tactix_tools import cli

ROOT = Path(__file__).parents[3]
DIGITS, EXAMPLE = ROOT / "examples" / "digits", ROOT / "examples" / "c_host"
SH = re.compile(r"```sh\n(.*?)```", re.S)

pytestmark = pytest.mark.compiler


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "digits.plan"
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    tactix.build(DIGITS / "digits.onnx", config=config).save(path)
    return path


@pytest.fixture(scope="module")
def exported(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "digits"
    assert cli.main(["export", str(plan), "--c", str(folder)]) == 0
    return folder


def _digits(plan: Path) -> list[int]:
    images = np.load(DIGITS / "digits_test.npz")["images"]
    found: Any = tactix.load(plan, on_untrusted="allow")(images)
    return [int(d) for d in found.argmax(1)]


def test_programs_in_c_and_cpp_compile_and_agree(
    plan: Path, exported: Path, tmp_path: Path
) -> None:
    images = tmp_path / "images.f32"
    np.load(DIGITS / "digits_test.npz")["images"].tofile(images)
    strict = ["-Wall", "-Wextra", "-Werror", f"-I{exported / 'include'}"]
    (compiler, *rest) = find_compiler()
    of_cpp = shutil.which("c++") or shutil.which("g++")
    programs = {"main.c": [compiler, *rest]}
    programs |= {"main.cpp": [of_cpp, "-std=c++17"]} if of_cpp else {}
    for source, command in programs.items():
        program = tmp_path / f"{source}.bin"
        library = exported / "lib" / "libdigits.a"
        own = [str(EXAMPLE / source), "-o", str(program), str(library), "-lm", "-pthread"]
        subprocess.run([*command, *strict, *own], check=True)
        done = subprocess.run([program, images], capture_output=True, text=True, check=True)
        assert [*map(int, done.stdout.split())] == _digits(plan)
        wrong = subprocess.run([program], capture_output=True, text=True)
        assert wrong.returncode == 2


def test_json_tells_what_was_written(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--name", "few", "--weights", "file", "--static", "--json"]
    assert cli.main(["export", str(plan), "--c", str(out), *options]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["written"]
    assert list(facts["libraries"]) == ["libfew.a"]
    assert facts["same_compiler"]
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found == set(facts["files"])
    assert (out / "lib" / "few.weights").stat().st_size == facts["weights"]


def test_sources_build_again_and_packages_are_found(exported: Path, tmp_path: Path) -> None:
    if not shutil.which("cmake") or not shutil.which("make"):
        pytest.skip("there is no cmake, or no make")
    again, use = tmp_path / "again", tmp_path / "use"
    strict = "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"
    steps = [
        ["cmake", "-G", "Unix Makefiles", "-S", exported / "src", "-B", again, strict],
        ["cmake", "--build", again],
        [
            "cmake",
            "-G",
            "Unix Makefiles",
            "-S",
            EXAMPLE,
            "-B",
            use,
            f"-DCMAKE_PREFIX_PATH={exported}",
        ],
        ["cmake", "--build", use],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (again / "libdigits.so").exists()
    assert subprocess.run([use / "recognise"], capture_output=True).returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="the example's shell is bash")
def test_the_examples_commands_run(tmp_path: Path) -> None:
    if not (shutil.which("cc") and shutil.which("c++")):
        pytest.skip("there is no cc, or no c++")
    work = shutil.copytree(EXAMPLE, tmp_path / "examples" / "c_host")
    (work.parent / "digits").symlink_to(DIGITS)
    (commands,) = SH.findall((EXAMPLE / "README.md").read_text())
    quick = commands.replace("-o digits.plan", "-o digits.plan -O0 --quiet")
    assert quick != commands
    done = _shell(quick, work)
    first = [str(d) for d in _digits(work / "digits.plan")[:3]]
    assert done.stdout.split()[-6:] == first * 2


@pytest.mark.skipif(os.name != "posix", reason="the document's shell is bash")
def test_the_documents_commands_run(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no cc")
    document = (ROOT / "docs" / "c-hosts.md").read_text()
    (commands,), (program,) = SH.findall(document), re.findall(r"```c\n(.*?)```", document, re.S)
    (tmp_path / "digits.onnx").symlink_to(DIGITS / "digits.onnx")
    (tmp_path / "main.c").write_text(program)
    done = _shell(commands.replace("-o digits.plan", "-o digits.plan -O0 --quiet"), tmp_path)
    assert "the first of ten: " in done.stdout
    assert (tmp_path / "digits" / "lib" / "pkgconfig" / "digits.pc").exists()


def _shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def test_options_that_do_not_fit_are_refused(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    cases = {
        "a library is no file": ["-o", "out.onnx", "--c", out],
        "nothing says what to write": [],
        "Give --c OUT": ["--onnx", "--static"],
        "a library cannot be named 'math'": ["--c", out, "--name", "math"],
    }
    for text, options in cases.items():
        assert cli.main(["export", str(plan), *options]) != 0
        assert text in capsys.readouterr().err
    assert not Path(out).exists()


def _unsigned(plan: Path, folder: Path) -> Path:
    other = folder / "strange.plan"
    container.save(replace(container.load(plan), name="strange"), other)
    return other


def test_code_that_nobody_trusts_goes_into_no_library(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = str(_unsigned(plan, tmp_path))
    out = str(tmp_path / "out")
    assert cli.main(["export", strange, "--c", out]) != 0
    assert "not trusted" in capsys.readouterr().err
    assert not Path(out).exists()
    both = ["--shared", "--static"]
    assert cli.main(["export", strange, "--c", out, *both, "--untrusted", "allow"]) == 0
    assert {p.suffix for p in Path(out, "lib").glob("lib*")} == {".so", ".a"}


def test_a_plan_without_texts_is_refused(plan: Path, tmp_path: Path) -> None:
    whole: Plan = container.load(plan)
    with pytest.raises(PlanCompatibilityError, match="is not noted, or not here"):
        export(replace(whole, ledger={}), tmp_path, "digits")
