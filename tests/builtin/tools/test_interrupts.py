"""Ctrl-C where nothing unfinished is of use: compilers are killed, none is started any more,
nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tactix_codegen import compiler_process as c_process
from tactix_cpu import compiler as cc
from tactix_tools import cli

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as of POSIX")

SLOW = """#!/bin/sh
case "$*" in *--version*) exec {real} --version;; esac
echo $$ > {folder}/$$
exec sleep 300
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Matrix products of many sizes, so that there is more to compile than there are processors."""
    rng, at = np.random.default_rng(5), 16
    nodes, weights = [], []
    for i in range(2 * (os.cpu_count() or 1) + 6):
        weights.append(
            numpy_helper.from_array(rng.standard_normal((at, at + 1)).astype(np.float32), f"w{i}")
        )
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
        at += 1
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, d])
        for n, d in (("x0", 16), (f"x{i + 1}", at))
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    path = tmp_path / "chain.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return str(path)


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file for every compiler that was started; none of them ends by itself."""
    folder, script = tmp_path / "started", tmp_path / "slow-cc"
    folder.mkdir()
    script.write_text(SLOW.format(real=" ".join(cc.find_compiler()), folder=folder))
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "cache"))
    yield folder
    for f in folder.iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(f.name), signal.SIGKILL)


@pytest.mark.parametrize("command", ["lock", "run"])
def test_compiling_ends_at_once(command: str, model: str, children: Path) -> None:
    call = [sys.executable, "-c", "import sys; from tactix_tools.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*call, command, model, "--no-timing-cache"], stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 120
        while not any(children.iterdir()):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == cli.INTERRUPTED
    assert said.strip().endswith("error: stopped")
    assert "Traceback" not in said
    started = [int(f.name) for f in children.iterdir()]
    assert len(started) <= (os.cpu_count() or 1)
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not Path(model).with_suffix(".lock").exists()


def test_a_process_that_starts_just_then_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start, never_cancelled = [], subprocess.Popen, threading.Event()

    def interrupted(*args: Any, **options: Any) -> Any:
        started.append(start(*args, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(c_process.subprocess, "Popen", interrupted)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # workers of pytest-xdist may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            c_process.run_all(
                [[sys.executable, "-c", "import time; time.sleep(300)"]],
                str(tmp_path),
                300.0,
                never_cancelled,
            )
    finally:
        signal.signal(signal.SIGINT, before)
        left = [p for p in started if p.poll() is None]
        for p in left:
            p.kill()
    assert started
    assert not left
