#!/usr/bin/env python3
"""Plans as C libraries: whether they compile without warnings and compute what Python computes, how
large they are, what a call costs around the kernels, and how soon the first answer is there.

    python tests/benchmarks/c_host.py FOLDER [--only lenet,mlp] [--sanitize] [--valgrind] [--times]

FOLDER has models (.onnx, built here at --level) or plans (.plan). Every unit is compiled with -Wall
-Wextra -Werror; outputs are compared byte by byte with those of the same plan in Python, at a few
batches and lengths, on one thread and on two. --sanitize compiles all again with GCC's or Clang's
address and undefined-behaviour sanitizers, and runs that. --valgrind runs the library under
Valgrind's memcheck, and compares what it wrote; as that knows no AVX-512, it needs --target
x86-64-v3. --times measures, on one thread: in turns a loop of calls in C and a native loop over the
steps from Python, the median of whose differences is what a call costs, beside that of two such
loops, whose memory lies apart; and fresh processes up to their first answer, as they and as their
caller see it. A plan of one short kernel is the first row. Prints Markdown.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import LENGTH, LENGTHS, VOCABULARY
from rounds import words

import tactix
from tactix.base.dims import evaluate_shape, symbol_name
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix_cpu.compiler import find_compiler
from tactix_ship.c_library.export import Library, export
from tactix_ship.c_library.names import name_from

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))

import c_libraries as host

DRIVER = Path(__file__).with_name("c_host_driver.c")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
MEMCHECK = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full"]
ROUNDS, STARTS = 401, 21
PIECE = 0.001
"""Seconds of each of two loops that take turns: shorter than what other work interrupts."""
BATCHES = (1, 2, 3)


@dataclass(frozen=True)
class Exported:
    """A plan and its library. ``feeds``: inputs, by case."""

    plan: Plan
    engine: Engine
    library: Library
    feeds: Sequence[Mapping[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names of models")
    parser.add_argument("--level", type=int, default=0, help="of builds")
    parser.add_argument("--target", default="", help="of builds: x86-64-v3")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--valgrind", action="store_true")
    parser.add_argument("--times", action="store_true")
    asked = parser.parse_args()
    columns = ["model", "steps", "kernels", "weights", "library", "warnings", "same bytes"]
    columns += ["sanitizers"] if asked.sanitize else []
    columns += ["valgrind"] if asked.valgrind else []
    columns += (
        ["kernels us", "call ns", "apart ns", "first answer ms", "process ms"]
        if asked.times
        else []
    )
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory(prefix="tactix-c-") as folder:
        smallest = [_smallest(Path(folder))] if asked.times else []
        for path in [*smallest, *_files(asked.folder, words(asked.only))]:
            with tempfile.TemporaryDirectory(prefix="tactix-c-") as scratch:
                row = _row(path, Path(scratch), asked)
            print(f"| {' | '.join(row)} |", flush=True)


def _smallest(folder: Path) -> Path:
    """A plan of one short kernel: what is left of a call is what stands around it."""
    builder = tactix.Builder()
    network = builder.create_network("smallest")
    (y,) = network.add_layer("tactix.Relu", [network.add_input("x", "f32", (16,))])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False, threads=1)
    builder.build(network, config).save(path := folder / "smallest.plan")
    return path


def _files(folder: Path, only: Sequence[str]) -> list[Path]:
    found = sorted(folder.glob("*.plan")) or sorted(folder.glob("*.onnx"))
    return [p for p in found if not only or p.stem in only]


def _row(path: Path, scratch: Path, asked: argparse.Namespace) -> list[str]:
    e = _exported(path, scratch, asked)
    library = e.library.libraries[0]
    row = [path.stem, len(e.plan.steps), e.library.kernels, e.library.weights]
    row += [library.stat().st_size, _warnings(e.library.folder), _differences(e)]
    row += [_sanitized(e, scratch)] if asked.sanitize else []
    row += [_memchecked(e, scratch)] if asked.valgrind else []
    row += _times(e, scratch) if asked.times else []
    return [str(x) for x in row]


def _exported(path: Path, scratch: Path, asked: argparse.Namespace) -> Exported:
    if path.suffix == ".onnx":
        config = tactix.BuilderConfig(builder_optimization_level=asked.level, target=asked.target)
        tactix.build(path, config=config).save(built := scratch / f"{path.stem}.plan")
        path = built
    plan = container.load(path)
    engine = tactix.load(path, on_untrusted="allow", max_threads=1)
    name = name_from(path.stem)
    made = export(plan, scratch / name, name, forms=("shared",))
    return Exported(plan, engine, made, [_feeds(plan, path.stem, b) for b in BATCHES])


def _feeds(plan: Plan, model: str, batch: int) -> dict[str, Any]:
    """Open sizes but the first are the model's usual length, and less in other batches."""
    rng, length = np.random.default_rng(batch), LENGTHS.get(model, LENGTH) // batch
    env: dict[str, int] = {}
    for io in plan.inputs:
        for i, d in enumerate(io.shape):
            if name := symbol_name(d):
                env.setdefault(name, batch if i == 0 else length)
    out = {}
    for io in plan.inputs:
        shape = evaluate_shape(io.shape, env)
        if io.dtype.is_float:
            x = rng.standard_normal(shape)
        elif "mask" in io.name or "type" in io.name:
            x = np.full(shape, int("mask" in io.name))
        else:
            x = rng.integers(0, VOCABULARY.get(model, 2), shape)
        out[io.name] = np.ascontiguousarray(x, io.dtype.numpy)
    return out


def _warnings(folder: Path) -> str:
    """Units that do not compile where warnings are errors."""
    commands = host.warnings_of(folder, find_compiler())
    failed = [c for c in commands if subprocess.run(c, capture_output=True).returncode]
    return f"{len(failed)} of {len(commands)}" if failed else "none"


def _differences(e: Exported) -> str:
    library = host.CLibrary(e.library.libraries[0], e.library.name)
    same = total = 0
    for threads in (1, 2):
        engine = e.engine
        if threads > 1:
            runtime = tactix.Runtime(on_untrusted="allow", max_threads=threads)
            engine = runtime.deserialize(container.dump(e.plan)) if _is_small(e) else e.engine
        context = library.create(threads=threads)
        python = engine.create_execution_context()
        for feeds in e.feeds:
            wanted = python.run(dict(feeds))
            found = context.infer(e.plan, feeds)
            total += len(found)
            same += sum(
                y.tobytes() == wanted[io.name].tobytes()
                for y, io in zip(found, e.plan.outputs, strict=True)
            )
    return f"{same} of {total}"


def _is_small(e: Exported) -> bool:
    return e.library.weights < 1 << 28


# -- programs in C -------------------------------------------------------------------------------


def _driver(library: Library) -> list[str]:
    name = library.name
    macros = [f"-DNAME={name}", f'-DHEADER="{name}.h"', f"-DPLACES={name.upper()}"]
    return [*macros, f"-I{library.folder / 'include'}", str(DRIVER)]


def _write_inputs(e: Exported, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for i, io in enumerate(e.plan.inputs):
        x = e.feeds[0][io.name]
        head = np.array([x.ndim, *x.shape], np.int64).tobytes()
        (folder / f"in{i}").write_bytes(head + x.tobytes())


def _sanitized(e: Exported, scratch: Path) -> str:
    """All of it with sanitizers, run a few times on two threads."""
    compiler, src = list(find_compiler()), e.library.folder / "src"
    folder = scratch / "inputs"
    _write_inputs(e, folder)
    objects = []
    for command in [*host.warnings_of(e.library.folder, compiler), [*compiler, *_weights(e, src)]]:
        kept = [c for c in command if c not in ("-fsyntax-only", "-Werror")]
        made = str(scratch / f"{len(objects)}.o")
        objects.append(made)
        subprocess.run([*kept, *SANITIZERS, "-w", "-c", "-o", made], check=True)
    program = str(scratch / "sanitized")
    own = [*compiler, *SANITIZERS, *_driver(e.library), *objects, "-lm", "-pthread"]
    subprocess.run([*own, "-o", program], check=True)
    done = subprocess.run([program, "2", "12", str(folder)], capture_output=True, text=True)
    return "clean" if done.returncode == 0 else done.stderr.strip().splitlines()[0][:60]


def _memchecked(e: Exported, scratch: Path) -> str:
    """The library under Valgrind, run twice on two threads; what it lost counts as an error."""
    folder, program = scratch / "given", str(scratch / "plain")
    _write_inputs(e, folder)
    linked = [str(e.library.libraries[0]), f"-Wl,-rpath,{e.library.libraries[0].parent}"]
    own = [*find_compiler(), "-O2", "-g", *_driver(e.library), *linked]
    subprocess.run([*own, "-o", program], check=True)
    check = [*MEMCHECK, program, "2", "2", str(folder)]
    done = subprocess.run(check, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().splitlines()[0][:60]
    wanted = e.engine.create_execution_context().run(dict(e.feeds[0]))
    same = sum(
        (folder / f"out{i}").read_bytes() == wanted[io.name].tobytes()
        for i, io in enumerate(e.plan.outputs)
    )
    return f"no error, {same} of {len(e.plan.outputs)} the same bytes"


def _weights(e: Exported, src: Path) -> list[str]:
    return [f'-DWEIGHTS_FILE="{src / e.library.name}.weights"', str(src / "weights.c")]


def _times(e: Exported, scratch: Path) -> list[str]:
    call = _overhead(e, scratch)
    inside, outside = _first_answer(e, scratch)
    told = [f"{call.kernels * 1e6:.2f}", f"{call.beyond * 1e9:.0f}", f"{call.apart * 1e9:.0f}"]
    return [*told, f"{inside:.2f}", f"{outside:.2f}"]


@dataclass(frozen=True)
class CallTimes:
    """Seconds: ``kernels``: of a run in a native loop from Python; ``beyond``: of a call in C
    beyond that; ``apart``: what another engine of the same plan in Python takes beyond the first,
    as its memory lies elsewhere, and as others use the machine.
    """

    kernels: float
    beyond: float
    apart: float


def _overhead(e: Exported, scratch: Path) -> CallTimes:
    path = scratch / "driver.so"
    linked = [str(e.library.libraries[0]), f"-Wl,-rpath,{e.library.libraries[0].parent}"]
    own = [*find_compiler(), "-O2", "-fPIC", "-shared", *_driver(e.library), *linked]
    subprocess.run([*own, "-o", str(path)], check=True)
    repeat = ctypes.CDLL(str(path)).repeat
    repeat.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    context = host.CLibrary(e.library.libraries[0], e.library.name).create(threads=1)
    context.infer(e.plan, e.feeds[0])
    again = tactix.Runtime(on_untrusted="allow", max_threads=1).deserialize(container.dump(e.plan))
    native, other = (_native(engine, e.feeds[0]) for engine in (e.engine, again))
    once = min(_seconds(lambda: native.repeat(10)) for _ in range(10)) / 10
    times = max(1, int(PIECE / once))
    calls = (
        lambda: native.repeat(times),
        lambda: other.repeat(times),
        lambda: repeat(context.handle, times),
    )
    rounds = [[_seconds(call) / times for call in calls] for _ in range(ROUNDS)]
    apart, beyond = (statistics.median(r[i] - r[0] for r in rounds) for i in (1, 2))
    return CallTimes(statistics.median(r[0] for r in rounds), beyond, apart)


def _native(engine: Engine, feeds: Mapping[str, Any]) -> Any:
    """The steps of an engine, bound in a context that stays."""
    context = engine.create_execution_context()
    _kept.append((engine, context, context.run(dict(feeds))))
    return context._active[0].runnable  # type: ignore[index]


_kept: list[Any] = []


def _seconds(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _first_answer(e: Exported, scratch: Path) -> tuple[float, float]:
    """Milliseconds to the first answer from the begin of main, and of a process that gives one."""
    folder, program = scratch / "inputs", str(scratch / "program")
    _write_inputs(e, folder)
    linked = [str(e.library.libraries[0]), f"-Wl,-rpath,{e.library.libraries[0].parent}"]
    subprocess.run(
        [*find_compiler(), "-O2", *_driver(e.library), *linked, "-o", program], check=True
    )
    found = list(_starts([program, "1", "1", str(folder)]))
    return tuple(statistics.median(x) for x in zip(*found))  # type: ignore[return-value]


def _starts(command: Sequence[str]) -> Iterator[tuple[float, float]]:
    for _ in range(STARTS):
        begin = time.perf_counter()
        told = subprocess.check_output(command, text=True)
        yield int(told) / 1e6, (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    main()
