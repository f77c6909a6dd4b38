"""C libraries of CUDA plans on a driver of the tests' own (fake_libcuda.c), whose kernels simt.py
compiles for the host.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simt

import tactix
from tactix.contracts.artifact import Launch, Source
from tactix.plan.schema import Plan
from tactix.select.compile import COMPILED
from tactix_codegen.preludes import installed_preludes
from tactix_cpu.compiler import find_compiler
from tactix_cuda.modules import kernel_name
from tactix_cuda.tensor_maps import maps_of

HERE = Path(__file__).parent
PROGRAM = HERE.parents[1] / "benchmarks" / "c_host_driver.c"
STRICT = ("-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def built(network: Any, **fields: Any) -> Plan:
    """A plan of cubins alone, by estimates. ``network``: of a builder."""
    builder = tactix.Builder()
    config = tactix.BuilderConfig(
        device="tactix.cuda@1",
        tactic_sources={"cuda_c", "view"},
        timing_cache=False,
        builder_optimization_level=0,
        **fields,
    )
    return builder.build_plan(network(builder), config)


def driver(folder: Path) -> Path:
    """The folder with libcuda.so.1."""
    made = folder / "libcuda.so.1"
    own = [*find_compiler(), *STRICT, "-O1", "-g", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*own, str(HERE / "fake_libcuda.c"), "-o", str(made), "-ldl"], check=True)
    return folder


def emulated(plan: Plan, cache: Path) -> Path:
    """The plan's kernels for the host, with the table that the driver reads."""
    launches: dict[str, list[Launch]] = {}
    rows: dict[str, str] = {}
    for s in plan.steps:
        code: Any = s.artifact.code
        maps = maps_of(s.artifact)
        for i, x in enumerate(s.artifact.launches):
            name, count = kernel_name(code, x.symbol), len(maps[i]) if maps else 0
            launches.setdefault(code.symbol, []).append(x)
            rows[name] = f'{{"{name}", run_{name}, {len(x.args)}, {count}}},'
    table = "\n".join(
        [
            "struct simt_entry { const char* name;",
            "  const char* (*run)(const int64_t*, int, int, int, long, int); int arguments, maps; };",
            'extern "C" const simt_entry simt_kernels[] = {',
            *rows.values(),
            "{nullptr, nullptr, 0, 0}};",
        ]
    )
    codes = {s.artifact.code.symbol: s.artifact.code for s in plan.steps}  # type: ignore[union-attr]
    found = [simt.Emulated(e, _source(plan, codes[e]), own) for e, own in launches.items()]
    return simt.library_of(found, cache, table)


def _source(plan: Plan, code: Any) -> Source:
    """The text of a kernel, and the preludes that it was compiled with."""
    noted = plan.ledger[COMPILED][code.symbol]
    preludes = tuple(installed_preludes()[p].text for p in noted["preludes"])
    return Source("cuda_c", code.source, preludes)


@dataclass(frozen=True)
class Started:
    """A launch as a driver was asked for it. ``how``: ``launch``, or ``graph`` for a node."""

    how: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared: int
    early: bool
    arguments: tuple[int, ...]


def journal(path: Path) -> list[Started]:
    """What fake_libcuda.c wrote."""
    out = []
    for line in path.read_text().splitlines():
        how, name, grid, block, cluster, shared, early, *rest = line.split()
        sizes = [tuple(map(int, x.split(","))) for x in (grid, block, cluster)]
        out.append(Started(how, name, *sizes, int(shared), early == "1", tuple(map(int, rest))))
    return out


def program(folder: Path, name: str, target: Path, more: Sequence[str] = ()) -> Path:
    """c_host_driver.c with a library's sources, all warnings as errors."""
    src = folder / "src"
    own = [*find_compiler(), *STRICT, *(more or SANITIZERS), f"-I{folder / 'include'}"]
    own += [f"-DNAME={name}", f'-DHEADER="{name}.h"', f"-DPLACES={name.upper()}"]
    own += [f'-D{p.upper()}_FILE="{src / name}.{p}"' for p in ("weights", "cubins")]
    units = [src / "context.c", src / "weights.c", src / "cubins.c", PROGRAM]
    subprocess.run([*own, *map(str, units), "-o", str(target), "-pthread", "-ldl"], check=True)
    return target


def run(command: Path, folder: Path, given: Sequence[Any], runs: int, env: dict[str, str]) -> None:
    """Inputs to files, the program, which writes its outputs beside them."""
    folder.mkdir(exist_ok=True)
    for i, x in enumerate(given):
        head = np.array([x.ndim, *x.shape], np.int64).tobytes()
        (folder / f"in{i}").write_bytes(head + np.ascontiguousarray(x).tobytes())
    call = [str(command), "1", str(runs), str(folder)]
    done = subprocess.run(call, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
