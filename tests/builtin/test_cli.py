from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import tactix
from tactix.base import errors
from tactix.contracts.tool import Tool
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.registry import MissingKey
from tactix.plugins.session import Session
from tactix_tools import cli


def tool(function: Callable[..., Any]) -> Tool:
    @click.command("probe")
    @click.option("--json", "as_json", is_flag=True)
    @click.option("--number", type=int, default=0)
    @click.pass_obj
    def command(session: Any, as_json: bool, number: int) -> Any:
        return function(session, number)

    return Tool("probe", "Probes the probing.", lambda: command)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Make the command line's only tool a function of the session and a number."""

    def put(function: Callable[..., Any]) -> None:
        made = tool(function)
        session = SimpleNamespace(tools={made.name: made}, why_missing=lambda *asked: ("", ""))
        monkeypatch.setattr(cli, "_session", lambda: session)

    return put


def raising(error: BaseException) -> Callable[..., Any]:
    def function(session: Any, number: int) -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgument("bad"), 2),
        (errors.ShapeError("bad"), 2),
        (errors.ConfigError("bad"), 2),
        (errors.ModelImportError("bad"), 3),
        (errors.UnsupportedOperator("bad"), 3),
        (errors.NetworkError("bad"), 3),
        (errors.NoTacticError("bad"), 4),
        (errors.CompilerError("bad"), 4),
        (errors.TimingCacheError("bad"), 4),
        (errors.PlanFormatError("bad"), 5),
        (errors.PlanCompatibilityError("bad", reasons=("a", "b")), 5),
        (errors.ExecutionError("bad"), 6),
        (errors.AccuracyError("bad"), 6),
        (errors.AllocationError("bad"), 6),
        (errors.BuildCancelled("bad"), 130),
        (KeyboardInterrupt(), 130),
        (MissingKey("bad"), 2),
        (errors.PluginError("bad"), 1),
        (errors.InternalError("bad"), 1),
        (OSError("bad"), 1),
        (ZeroDivisionError("bad"), 1),
    ],
)
def test_exit_codes(
    install: Any, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    install(raising(error))
    assert cli.main(["probe"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.lstrip().startswith("error: ")
    assert "Traceback" not in err


def test_every_tactix_error_has_a_code_of_its_kind() -> None:
    found = [
        c
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, errors.TactixError)
    ]
    others = {c.__name__ for c in found if cli.exit_code(c("x")) == cli.OTHER}
    assert others == {"TactixError", "InternalError", "PluginError"}


def test_message_has_all_parts_and_notes(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.UnsupportedOperator(
        "no layer for [Foo]", who="node n7", why="opset 19", do="Install it"
    )
    error.add_note("in model.onnx")
    install(raising(error))
    cli.main(["probe"])
    assert (
        capsys.readouterr().err
        == "error: node n7: no layer for [Foo]: opset 19. Install it\n  in model.onnx\n"
    )


def test_faults_point_to_debug_and_debug_shows_a_traceback(
    install: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    install(raising(ZeroDivisionError("here")))
    cli.main(["probe"])
    assert "--debug" in capsys.readouterr().err
    assert cli.main(["probe", "--debug"]) == 1
    assert "in function" in capsys.readouterr().err


def test_errors_as_json(install: Any, capsys: pytest.CaptureFixture[str]) -> None:
    install(raising(errors.NoTacticError("nothing fits", who="conv1", do="Enable a source")))
    assert cli.main(["probe", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    error = {
        "type": "NoTacticError",
        "what": "nothing fits",
        "who": "conv1",
        "do": "Enable a source",
    }
    assert document == {"error": error, "exit_code": 4}
    assert cli.main(["probe", "--number", "x", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 2
    assert "'x' is not a valid int" in document["error"]["what"]


def test_result_of_a_tool_is_the_exit_code(install: Any) -> None:
    install(lambda session, number: number)
    assert [cli.main(["probe", "--number", str(n)]) for n in (0, 6)] == [0, 6]
    install(lambda session, number: None)
    assert cli.main(["probe"]) == 0


def test_tools_get_the_session(install: Any) -> None:
    seen = []
    install(lambda session, number: seen.append(session.tools["probe"].help))
    cli.main(["probe"])
    assert seen == ["Probes the probing."]


@pytest.mark.parametrize("args", [["nothing"], ["probe", "--number", "x"], ["probe", "--unknown"]])
def test_usage_errors(install: Any, capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    install(lambda session, number: 0)
    assert cli.main(args) == 2
    assert "Error" in capsys.readouterr().err


def test_a_command_that_is_spelled_wrong_is_asked_for(
    install: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    install(lambda session, number: 0)
    assert cli.main(["prboe"]) == 2
    assert "No such command 'prboe'. Did you mean 'probe'?" in capsys.readouterr().err
    assert cli.main(["unlike"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_help_lists_tools_and_exit_codes_without_making_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> None:
        raise AssertionError("the command was made")

    monkeypatch.setattr(
        cli, "_session", lambda: SimpleNamespace(tools={"far": Tool("far", "Goes far.", never)})
    )
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for text in (
        "far",
        "Goes far.",
        "--debug",
        "--version",
        "Exit codes",
        "130",
        "stopped by Ctrl-C",
    ):
        assert text in out


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_sigterm_while_a_pack_is_asked_is_not_taken_for_its_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tactix_tools() -> list[Tool]:
        signal.raise_signal(signal.SIGTERM)
        return []

    pack = SimpleNamespace(tactix_tools=hookimpl(tactix_tools))
    monkeypatch.setattr(cli, "_session", lambda: Session(plugins=[("acme", pack)], discover=False))
    assert cli.main(["acme.audit"]) == cli.TERMINATED
    assert capsys.readouterr().err == ""


def test_documented_exit_codes_are_the_real_ones() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code, meaning, _ in cli.EXIT_CODES:
        assert f"| {code} | {meaning} |" in text


def test_version_looks_for_no_plugins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_session", lambda: 1 / 0)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"tactix {tactix.__version__}\n"


def test_importing_the_module_loads_neither_click_nor_rich() -> None:
    code = """import sys, tactix_tools.cli
print([m for m in ('click', 'rich', 'numpy', 'onnx', 'pluggy') if m in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_packs_tool_has_the_packs_name_in_front(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Tool(
        "audit", "Audits.", lambda: click.Command("audit", callback=lambda: click.echo("audited"))
    )
    for packs, names in ((("acme",), "acme.audit"), (("acme", "zeta"), "acme.audit or zeta.audit")):
        given = [(p, SimpleNamespace(tactix_tools=hookimpl(lambda: [made]))) for p in packs]
        monkeypatch.setattr(
            cli, "_session", lambda given=given: Session(plugins=given, discover=False)
        )
        assert cli.main(["acme.audit"]) == 0
        assert capsys.readouterr().out == "audited\n"
        assert cli.main(["--help"]) == 0
        assert all(f"{p}.audit" in capsys.readouterr().out for p in packs[:1])
        assert cli.main(["audit"]) == 2
        assert f"A pack's tool has its name in front: {names}" in capsys.readouterr().err


def test_nothing_is_searched_for_cycles_when_the_process_ends(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_end: list[Any] = []
    monkeypatch.setattr(atexit, "register", at_the_end.append)
    cli._leave_cycles.cache_clear()
    install(lambda session, number: 0)
    for _ in range(2):
        assert cli.main(["probe"]) == 0
    assert at_the_end == [gc.freeze]
