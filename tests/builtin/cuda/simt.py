"""Runs CUDA kernels on the host, a fiber for each thread, and compares them with the layers' numpy
references.

The text that the device would get is compiled as C++ with ``HEADERS`` in place of the preludes that
are assembly: the layouts of fragments, addresses, bounds, alignment, barriers and clusters are
checked; speed and the assembly are not.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import asked
import harness as h
import pytest

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact, Launch, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.select.bench import Expected
from tactix_codegen.cuda import text
from tactix_codegen.cuda.target import target
from tactix_cuda.tensor_maps import TensorMap, maps_of

HERE = Path(__file__).parent
DEVICE = target("sm_90")
HEADERS = ("simt.h", "simt_hopper.h")
ASSEMBLY = (
    "ptx.cuh",
    "half.cuh",
    "pairs.cuh",
    "dp4a.cuh",
    "largest.cuh",
    "hopper.cuh",
    "wide.cuh",
    "fp8_convert.cuh",
)
PRODUCT = re.compile(
    r'asm volatile\(\s*"\{[^"]*"\s*"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k\d+\.\w+\.(\w+)\..*?\);(?=\n)',
    re.DOTALL,
)
HOST_PRODUCT = r"simt_multiply<\1, simt_\2>(d, a, b, add);"
"""What stands in the text itself, as hopper.multiply has it, and what stands for that."""
FLAGS = ("-std=c++17", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-fsanitize=alignment",
         "-U_FORTIFY_SOURCE")  # fmt: skip
LONG, SHORT = "-O1", "-O0"
"""For kernels that run long, as products do; and for such where the compiler takes longer. Four
tables of tactics took 20 seconds in place of 31 so, two of products 74 in place of 61.
"""


@dataclass
class Case:
    """A node, a tactic, inputs (random ones if None). ``only``: which variants, all if None.
    ``device``: a target.
    """

    node: Node
    tactic: Tactic
    arrays: Sequence[Any] | None = None
    env: Mapping[str, int] = field(default_factory=dict)
    only: Sequence[Variant] | None = None
    budget: float = 1.0
    device: DeviceProperties = DEVICE


def check_all(cases: Sequence[Case], cache: Path, optimization: str = LONG) -> None:
    """Compile all variants of all cases as one library, each text once, run each variant twice, and
    assert that results are right.
    """
    made = [(c, _artifacts(c)) for c in cases]
    kernels = _kernels([a for _, own in made for _, a in own])
    found = library_of(list(kernels.values()), cache, optimization=optimization)
    library = ctypes.CDLL(str(found))
    for case, own in made:
        arrays = list(case.arrays) if case.arrays is not None else _sample(case)
        want = Expected(case.node, arrays, case.env)
        for (variant, artifact), eager in product(own, (0, 1)):
            assert isinstance(artifact.code, Source)
            name = kernels[artifact.code].entry
            where = f"{case.node.name} [{variant}] eager={eager}"
            got = _run(library, name, case, variant, artifact, arrays, eager, where)
            for j, g in enumerate(got):
                far = want.departure(j, g)
                assert far <= case.budget, f"{where}: {far} times the budget"


def _artifacts(case: Case) -> list[tuple[Variant, KernelArtifact]]:
    context = CompileContext(case.device, dict(case.env))
    return [(v, asked.artifact(case.tactic, case.node, v, context)) for v in _variants(case)]


def _kernels(artifacts: Sequence[KernelArtifact]) -> dict[Source, Emulated]:
    """By code: sizes that only running tells, and parts of k, are other launches of one text."""
    launches: dict[Source, list[Launch]] = {}
    for a in artifacts:
        assert isinstance(a.code, Source)
        launches.setdefault(a.code, []).extend(a.launches)
    return {code: Emulated(f"k{i}", code, own) for i, (code, own) in enumerate(launches.items())}


def _variants(case: Case) -> Sequence[Variant]:
    offered = case.only or asked.variants(case.tactic, case.node, case.device)
    assert not isinstance(offered, Reject), offered.reason
    assert offered
    return offered


def _sample(case: Case) -> list[Any]:
    return h.arrays_of(h.Case(case.node, case.tactic, env=case.env))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Emulated:
    """A kernel's text, the name that it gets for TX_ENTRY, and its launches."""

    entry: str
    code: object
    launches: Sequence[Launch]


def library_of(
    kernels: Sequence[Emulated], cache: Path, more: str = "", optimization: str = LONG
) -> Path:
    """A shared object with a function ``run_NAME`` for each; ``more``: text behind them."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    source = f"{_source(kernels)}\n{more}"
    whole = source + "".join((HERE / name).read_text() for name in HEADERS)
    path = cache / f"{hashlib.sha256(whole.encode()).hexdigest()[:24]}.so"
    if not path.exists():
        cpp = path.with_suffix(".cpp")
        cpp.write_text(source)
        done = subprocess.run(
            [compiler, *FLAGS, optimization, "-I", HERE, cpp, "-o", path],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[:4000]
    return path


def _source(kernels: Sequence[Emulated]) -> str:
    assembly = {text.prelude(n) for n in ASSEMBLY}
    preludes: dict[str, None] = {}
    bodies = []
    for k in kernels:
        assert isinstance(k.code, Source)
        preludes |= dict.fromkeys(p for p in k.code.preludes if p not in assembly)
        called = dict.fromkeys(_name(k.entry, launch) for launch in k.launches)
        names = "\n".join(f"SIMT_KERNEL({name})" for name in called)
        macros = (
            f"#undef TX_ENTRY\n#undef TX_NAME\n"
            f"#define TX_ENTRY {k.entry}\n#define TX_NAME(x) {k.entry}_##x"
        )
        bodies.append(f"{macros}\n{PRODUCT.sub(HOST_PRODUCT, k.code.text)}\n{names}")
    return "\n".join([*(f'#include "{name}"' for name in HEADERS), *preludes, *bodies])


def _name(entry: str, launch: Launch) -> str:
    return f"{entry}_{launch.symbol}" if launch.symbol else entry


def _numbers(m: TensorMap, address: int, env: Mapping[str, int]) -> Any:
    """A map as ``tx_map`` of simt_hopper.h has it."""
    found = [
        address + m.offset,
        *(dims.evaluate(d, env) for d in m.dims),
        *m.box,
        *m.steps,
        *chain(*m.corners),
    ]
    return (ctypes.c_int64 * len(found))(*found)


def _run(
    library: Any,
    name: str,
    case: Case,
    variant: Variant,
    artifact: KernelArtifact,
    arrays: Sequence[Any],
    eager: int,
    where: str,
) -> list[Any]:
    run = h.Run(case.node, variant, artifact, case.env)
    run.fill(arrays)
    maps = maps_of(artifact)
    for i, launch in enumerate(artifact.launches):
        function = library[f"run_{_name(name, launch)}"]
        function.restype = ctypes.c_char_p
        function.argtypes = (ctypes.c_void_p, *(ctypes.c_int,) * 3, ctypes.c_long, ctypes.c_int)
        sizes = (launch.grid, launch.block, launch.cluster or (1,))
        (grid,), (block,), (cluster,) = (
            tuple(dims.evaluate(d, case.env) for d in s) for s in sizes
        )
        shared = dims.evaluate(launch.shared_bytes, case.env)
        numbers = list(run.arguments(launch))
        laid = [
            _numbers(m, at, case.env)
            for m, at in zip(maps[i] if maps else (), numbers, strict=False)
        ]
        numbers[: len(laid)] = [ctypes.addressof(x) for x in laid]
        arguments = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
        problem = function(ctypes.addressof(arguments), grid, block, cluster, shared, eager)
        assert not problem, f"{where}: {problem.decode()}"
    for what, b in run.buffers().items():
        assert b.intact(), f"{where}: wrote outside {what}"
    return [run.output(j, where) for j in range(len(run.outputs))]
