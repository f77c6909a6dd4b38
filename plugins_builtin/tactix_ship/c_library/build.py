"""Compiles and links a library by the C compiler that makes kernels."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tactix.base.errors import CompilerError, ToolchainError
from tactix.base.scratch import ScratchFolder
from tactix.contracts.device import DeviceProperties
from tactix_codegen.c.target import other_architecture
from tactix_codegen.compiler_process import CommandResult, run_all
from tactix_codegen.compiling import first_errors
from tactix_cpu.compiler import CCompiler, Effort, cross_compiler
from tactix_ship.c_library.kernels import KernelUnit

TIMEOUT = 600.0
"""Seconds for one process: more than the largest kernel has been seen to take."""
HOST = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-ident")
"""Options of the text around the kernels, which any processor of the architecture runs."""


@dataclass(frozen=True)
class Building:
    """What is built: ``name`` in ``folder``, ``forms`` of ``shared`` and ``static``. ``options``:
    of all kernels. ``embedded``: what is in the library as it is in a file of that name's end.
    """

    name: str
    folder: Path
    forms: Sequence[str]
    units: Sequence[KernelUnit]
    options: Sequence[str]
    embedded: Sequence[str]


def compiler_for(device: DeviceProperties, effort: Effort) -> CCompiler:
    """Raises ToolchainError where there is none for the device."""
    arch = other_architecture(device)
    command = cross_compiler(arch) if arch and "CC" not in os.environ else ()
    compiler = CCompiler(command or None, TIMEOUT, effort)
    why = compiler.available()
    if why or (arch and not command and "CC" not in os.environ):
        why = why or f"no C compiler for {arch} was found"
        do = "`pip install tactix[compiler]` installs one"
        raise ToolchainError("a library cannot be compiled", who=compiler.key, why=why, do=do)
    return compiler


def build(b: Building, compiler: CCompiler) -> list[Path]:
    """The libraries. Raises CompilerError, ToolchainError, OSError."""
    with ScratchFolder() as scratch:
        objects = _compiled(b, compiler.command, scratch)
        made = []
        (b.folder / "lib").mkdir(exist_ok=True)
        for form in b.forms:
            target = b.folder / "lib" / f"lib{b.name}.{'so' if form == 'shared' else 'a'}"
            link = _shared if form == "shared" else _static
            scratch_file = Path(scratch, target.name)
            _run([link(compiler.command, objects, scratch_file)], scratch)
            shutil.copyfile(scratch_file, target)
            made.append(target)
    return made


def _compiled(b: Building, command: Sequence[str], scratch: str) -> list[str]:
    src = (b.folder / "src").resolve()
    include = f"-I{(b.folder / 'include').resolve()}"
    common = (
        f"-ffile-prefix-map={src}=src",
        "-g0",
    )  # a compiler may add paths and symbols by itself
    jobs = [("context.o", [*HOST, include, str(src / "context.c")])]
    for part in b.embedded:
        where = f'-D{part.upper()}_FILE="{src / b.name}.{part}"'
        jobs.append((f"{part}.o", [*HOST, where, str(src / f"{part}.c")]))
    for u in b.units:
        own = [*b.options, *u.flags, "-w", str(src / "kernels" / u.file)]
        jobs.append((f"{u.file}.o", own))
    _run([[*command, *common, *own, "-c", "-o", made] for made, own in jobs], scratch)
    return [made for made, _ in jobs]


def _shared(command: Sequence[str], objects: Sequence[str], target: Path) -> list[str]:
    own = ["-shared", "-s", f"-Wl,-soname,{target.name}", "-Wl,--build-id=none"]
    return [*command, *own, "-Wl,-z,noexecstack", *objects, "-o", target.name, "-lm", "-pthread"]


def _static(command: Sequence[str], objects: Sequence[str], target: Path) -> list[str]:
    return [*_archiver(command), "rcsD", target.name, *objects]


def _archiver(command: Sequence[str]) -> list[str]:
    """The program that makes static libraries beside a compiler. Raises ToolchainError."""
    if "ziglang" in command:
        return [*command[: command.index("ziglang") + 1], "ar"]
    name = Path(command[0]).name
    named = name.removesuffix("gcc") + "ar" if name.endswith("-gcc") else "ar"
    found = shutil.which(named)
    if not found:
        do = "Install binutils, or give --shared"
        raise ToolchainError("no static library can be made", why=f"there is no {named}", do=do)
    return [found]


def _run(commands: Sequence[Sequence[str]], scratch: str) -> None:
    for outcome in run_all(commands, scratch, TIMEOUT, threading.Event()):
        _check(outcome)


def _check(outcome: CommandResult) -> None:
    if outcome.code != 0:
        late = f"no answer within {TIMEOUT:g} s"
        why = late if outcome.code is None else first_errors(outcome.output)
        do = "The sources are there: OUT/src has a CMakeLists.txt"
        raise CompilerError("the library cannot be compiled", why=why, do=do)
