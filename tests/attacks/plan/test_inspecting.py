"""``tactix inspect`` and ``tactix diff`` look at data: they import nothing of it, run no code, obey
no text of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plan_samples import opened, sealed
from plan_trial import inspected

from tactix.base.errors import PlanFormatError
from tactix_tools import cli

WATCHED = """
import json, os, runpy, sys
SEEN = []
def watch(event, args):
    if event in ("import", "ctypes.dlopen", "exec", "compile", "os.system", "os.exec", "subprocess.Popen", "os.fork"):
        SEEN.append(f"{event} {args[0] if args else ''}"[:200])
sys.addaudithook(watch)
from tactix_tools import cli
code = cli.main(sys.argv[1:])
print(json.dumps({"code": code, "seen": SEEN, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def _watched(arguments: list[str], folder: Path) -> tuple[dict[str, Any], str]:
    """What happened, and what was printed, with the folder on the path for imports."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", WATCHED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, cwd=folder)
    return json.loads(done.stderr.splitlines()[-1]), done.stdout


@pytest.mark.parametrize(
    "command", [("inspect", "x.plan"), ("diff", "x.plan", "y.plan")], ids=lambda c: c[0]
)
def test_nothing_is_run_or_imported(
    command: tuple[str, ...], samples: dict[str, bytes], tmp_path: Path
) -> None:
    """Modules that stand ready under every name in the plan are not imported, and its code is not
    loaded.
    """
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    header, rest = opened(samples["branches"])
    row = {"key": "planted.Layer@1", "dist": "planted", "version": "1.0", "digest": min(header["blobs"]),
           "embedded": True, "host_code": True}  # fmt: skip
    header["requirements"] = [row]
    for s in header["steps"]:
        s["artifact"]["launcher"] = "planted.launcher@1"
        s["artifact"]["params"] = {
            "layer": "planted.Layer@1",
            "module": "planted",
            "__reduce__": ["os.system", "id"],
        }
    header["device"] |= {"key": "planted.device@1", "kind": "planted"}
    (tmp_path / "x.plan").write_bytes(sealed(header, rest))
    (tmp_path / "y.plan").write_bytes(samples["branches"])
    found, printed = _watched(list(command), tmp_path)
    assert found["code"] == (command[0] == "diff")
    assert "planted.Layer@1" in printed
    assert not (tmp_path / "ran").exists()
    assert "planted" not in found["modules"]
    assert not [
        e
        for e in found["seen"]
        if e.split()[0] not in ("import", "compile", "exec", "ctypes.dlopen")
    ]
    # libraries that Python's own modules load have names; plans load theirs from memory
    assert not [
        e for e in found["seen"] if e.startswith("ctypes.dlopen") and ("proc" in e or "plan" in e)
    ]
    assert not [e for e in found["seen"] if "planted" in e]


@pytest.mark.parametrize(
    "text", ["[/]", "[bold", "[link=x]", "\x1b[2J", "\x07", "\u202e", "\r", "x" * 5000]
)
def test_names_are_printed_as_they_are_but_for_control_characters(
    samples: dict[str, bytes], text: str
) -> None:
    header, rest = opened(samples["numpy"])
    header["name"] = header["steps"][0]["name"] = header["profiles"][0]["name"] = text
    header["ledger"]["rules"] = {text: 1}
    printed = inspected(sealed(header, rest))
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(printed)
    if text.isprintable() and len(text) < 100:
        assert printed.count(text) >= 3


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["steps"][0].update(info={}),
        lambda h: h["steps"][0]["info"].update(seconds="fast"),
        lambda h: h["steps"][0]["info"].update(bodies=7),
        lambda h: h.update(ledger={"rules": 5}),
    ],
)
def test_notes_that_are_not_as_tactix_writes_them(samples: dict[str, bytes], change: Any) -> None:
    header, rest = opened(samples["numpy"])
    change(header)
    with pytest.raises(PlanFormatError, match="its notes cannot be shown"):
        inspected(sealed(header, rest))


def test_errors_of_the_command_line_obey_no_text_of_the_file(
    samples: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, rest = opened(samples["numpy"])
    header["steps"][0]["name"] = "\x1b[2J[/]"
    header["steps"][0]["constants"] = {"w": 1 << 40}
    path = tmp_path / "x.plan"
    path.write_bytes(sealed(header, rest))
    assert cli.main(["inspect", str(path)]) == cli.PLAN
    told = capsys.readouterr().err
    assert "\x1b[2J" not in told
    assert "[2J[/]" in told
    assert f"no buffer {1 << 40}" in told
