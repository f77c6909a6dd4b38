"""Kernels for 64-bit ARM on another machine: compiled by a cross compiler, and run by QEMU where
that is found.

All kernels and a small driver become one static program. It reads a program of calls and an image
of the memory that they work on, makes the calls, and writes the image back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness as h
import numpy as np

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Variant
from tactix_codegen.compiling import symbol
from tactix_cpu.compiler import FLAGS, CCompiler, cross_compiler, translation_units

Artifacts = Sequence[tuple[Variant, KernelArtifact]]
DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void kernel(const int64_t*, int, int);
@declarations@
static kernel* const kernels[] = {@names@};
/* argv: calls, memory. A call: kernel, threads, n, and n arguments, each of whether it is an address, and its value. */
int main(int argc, char** argv) {
    FILE* f = fopen(argv[1], "rb");
    fseek(f, 0, SEEK_END);
    const long words = ftell(f) / 8;
    rewind(f);
    int64_t* p = malloc(words * 8 + 8);
    if (fread(p, 8, words, f) != (size_t)words) return 2;
    f = fopen(argv[2], "r+b");
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    char* memory = aligned_alloc(4096, size);
    if (fread(memory, 1, size, f) != (size_t)size) return 2;
    for (const int64_t* const end = p + words; p < end;) {
        int64_t a[256];
        const int64_t k = p[0], threads = p[1], n = p[2];
        p += 3;
        for (int i = 0; i < n; i++, p += 2) a[i] = p[0] ? (int64_t)memory + p[1] : p[1];
        for (int t = threads - 1; t >= 0; t--) kernels[k](a, t, threads);
    }
    rewind(f);
    if (fwrite(memory, 1, size, f) != (size_t)size) return 2;
    return fclose(f);
}
"""


def compiler() -> tuple[str, ...]:
    """The words that call a C compiler for 64-bit ARM under Linux and link statically, or none."""
    return cross_compiler("aarch64", "musl")


def emulator() -> str | None:
    """QEMU for programs of 64-bit ARM."""
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


@dataclass
class Job:
    """One run of an artifact, with its buffers filled."""

    case: h.Case
    run: h.Run
    arrays: Sequence[Any]
    nt: int
    where: str


def objects(
    artifacts: Sequence[KernelArtifact], device: DeviceProperties, folder: Path
) -> list[Path]:
    """Object files of the kernels in ``folder``, for that device. Raises CompilerError."""
    cc = CCompiler(compiler())
    kernels = list({a.code.digest: a.code for a in artifacts if a.code is not None}.values())
    units = translation_units(kernels, os.cpu_count() or 1)  # type: ignore[arg-type]
    flags = (*cc._target(device), *FLAGS)
    base = "\0".join((cc.identity(), *cc.command, *flags))
    cc._compile_units(units, [u.key(base) for u in units], flags, str(folder))
    return sorted(folder.glob("u*.o"))


def check_all(items: Sequence[tuple[h.Case, Artifacts]], device: DeviceProperties) -> None:
    """Run every artifact in one process of QEMU, and compare with the references as
    ``harness.check_all`` does.
    """
    artifacts = [a for _, own in items for _, a in own if a.code is not None]
    kernels = sorted({symbol(a.code) for a in artifacts})  # type: ignore[arg-type]
    jobs = [job for c, own in items for job in _jobs(c, own)]
    calls, place, images = [], 0, []
    for job in jobs:
        places = {}
        for b in job.run.buffers().values():
            image, start = b.image()
            places[id(b)] = place + start
            images.append(image)
            place += image.nbytes
        calls += _calls(job, kernels, places)
    with tempfile.TemporaryDirectory() as folder:
        _execute(
            kernels, objects(artifacts, device, Path(folder)), np.array(calls, np.int64), images
        )
    for job in jobs:
        got = job.run.results(job.arrays, job.where)
        expected = h.reference(job.case.node, job.arrays, job.case.env)
        for j, (g, e) in enumerate(zip(got, expected, strict=True)):
            h.compare(g, np.asarray(e), job.case.budget, f"{job.where} output {j}")


def _jobs(case: h.Case, items: Artifacts) -> list[Job]:
    out, arrays = [], h.arrays_of(case)
    for variant, artifact in items:
        for nt in case.nt:
            run = h.Run(case.node, variant, artifact, case.env)
            run.fill(arrays)
            where = f"{case.tactic.key} {case.node.name} {variant} nt={nt} {case.device.name}"
            out.append(Job(case, run, arrays, nt, where))
    return out


def _calls(job: Job, kernels: Sequence[str], places: dict[int, int]) -> list[int]:
    out = []
    for launch in job.run.artifact.launches:
        values = job.run.arguments(launch, lambda b: places[id(b)])
        out += [kernels.index(symbol(job.run.artifact.code)), job.nt, len(values)]  # type: ignore[arg-type]
        for a, value in zip(launch.args, values, strict=True):
            out += [a.kind != "scalar", value]
    return out


def _execute(
    kernels: Sequence[str], made: Sequence[Path], calls: Any, images: Sequence[Any]
) -> None:
    """Link, run, and put the memory back into ``images``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        declarations = "\n".join(f"kernel {k};" for k in kernels)
        text = DRIVER.replace("@declarations@", declarations).replace("@names@", ", ".join(kernels))
        folder.joinpath("driver.c").write_text(text)
        link = [*compiler(), "-static", "-O1", "driver.c", *map(str, made), "-lm", "-o", "program"]
        subprocess.run(link, cwd=folder, check=True, timeout=300)
        calls.tofile(folder / "calls")
        np.concatenate(images).tofile(folder / "memory")
        subprocess.run(
            [str(emulator()), "./program", "calls", "memory"], cwd=folder, check=True, timeout=300
        )
        memory, place = np.fromfile(folder / "memory", np.uint8), 0
        for image in images:
            image[:] = memory[place : place + image.nbytes]
            place += image.nbytes
