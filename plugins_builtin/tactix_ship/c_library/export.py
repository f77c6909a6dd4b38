"""Writes a plan as a C library: texts, weights, machine code, and what lets others find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tactix
from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.plan.schema import Plan
from tactix_codegen.c.target import other_architecture
from tactix_cpu.compiler import executor_part, version
from tactix_ship.c_library import eligibility, project
from tactix_ship.c_library.build import Building, build, compiler_for
from tactix_ship.c_library.header import STATE_DEFINITION, filled, header
from tactix_ship.c_library.kernels import (
    Kernels,
    device_of,
    kernel_files,
    kernels_of,
    options,
    same_compiler,
    units,
)
from tactix_ship.c_library.names import library_name, named, text_of
from tactix_ship.c_library.tables import program_of, tables
from tactix_ship.c_library.weights import WeightLayout, weights_of

SHARED, STATIC = "shared", "static"
MOST_EMBEDDED = 1 << 30
"""Bytes of weights that a library takes: code reaches no more than 2 GiB around it (System V ABI
for x86-64, the small code model).
"""


@dataclass(frozen=True)
class Library:
    """What was written. ``files``: paths in the folder. ``libraries``: with machine code.
    ``weights``: bytes of them. ``same_compiler``: whether the machine code is what the plan has;
    else results may differ in their last bits. ``compiler``: what it says of itself.
    """

    name: str
    folder: Path
    files: Sequence[str]
    libraries: Sequence[Path]
    weights: int
    kernels: int
    same_compiler: bool
    compiler: str


def export(
    plan: Plan,
    folder: Path,
    name: str,
    *,
    forms: Sequence[str] = (SHARED, STATIC),
    embedded: bool = True,
) -> Library:
    """Writes ``include``, ``lib`` and ``src`` into the folder. The plan's code is not run.

    Raises PlanCompatibilityError for what no C library can run, InvalidArgument, ToolchainError,
    CompilerError, OSError.
    """
    library_name(name)
    eligibility.check(plan)
    programs = [program_of(p) for p in eligibility.programs(plan)]
    kernels = kernels_of([p.plan for p in programs], plan.ledger)
    weights = weights_of(plan, [(p.plan, p.slots) for p in programs])
    if embedded and weights.nbytes > MOST_EMBEDDED:
        why = f"they have {weights.nbytes} bytes, code reaches {MOST_EMBEDDED}"
        raise InvalidArgument("the weights do not fit into the library", why=why,
                              do="Give --weights file")  # fmt: skip
    device = device_of(plan)
    compiler = compiler_for(device, kernels.effort)
    made = units(kernels, compiler, name)
    flags = options(kernels, compiler, device)
    writer = _Writer(folder)
    description = _description(plan, name)
    writer.text(f"include/{name}.h", header(plan, description, name))
    _sources(writer, plan, kernels, name)
    writer.text("src/tables.h", tables(plan, programs, weights, description, name))
    for u in made:
        writer.text(f"src/kernels/{u.file}", u.text)
    _weights(writer, weights, name, embedded)
    facts = {"name": name, "target": device.name or "its target", "compiler": kernels.identity}
    writer.text("src/CMakeLists.txt", project.lists(made, flags, facts, embedded))
    building = Building(name, folder, forms, made, flags, embedded)
    libraries = build(building, compiler)
    writer.text(f"lib/cmake/{name}/{name}Config.cmake", project.config(name, forms))
    writer.text(f"lib/pkgconfig/{name}.pc", project.pkg_config(name, description, forms))
    files = [*writer.files, *(f"lib/{path.name}" for path in libraries)]
    same = same_compiler(compiler, kernels) or bool(other_architecture(device))
    told = version(compiler.command)
    return Library(name, folder, files, libraries, weights.nbytes, len(kernels.sources), same, told)


def _description(plan: Plan, name: str) -> str:
    """``mlp, plan 0123456789abcdef for AMD EPYC, tactix 0.1.0``."""
    digest = f", plan {plan.seal.digest.hex()[:16]}" if plan.seal else ""
    target = f" for {plan.device['name']}" if plan.device.get("name") else ""
    return f"{name}{digest}{target}, tactix {tactix.__version__}"


class _Writer:
    """Text files of a folder, and their paths in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[str] = []

    def place(self, path: str) -> Path:
        """Where a file goes, whose folders are made. Raises OSError."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files.append(path)
        return target

    def text(self, path: str, text: str) -> None:
        with replacing(self.place(path)) as f:
            f.write(text.encode())


def _sources(writer: _Writer, plan: Plan, kernels: Kernels, name: str) -> None:
    """What is not special to the plan's sizes."""
    states = [named(line, name) for line in STATE_DEFINITION if plan.states]
    writer.text("src/context.c", filled(text_of("context.c", name), {"states": states}))
    for file in ("program.h", "processor.h"):
        writer.text(f"src/{file}", text_of(file, name))
    for part in ("threads", "executor"):
        writer.text(f"src/executor/{part}.c", executor_part(part))
    for prelude in kernels.preludes:
        writer.text(f"src/kernels/preludes/{prelude.file}", prelude.text)
    for file, text in kernel_files(kernels, name).items():
        writer.text(f"src/kernels/{file}", text)


def _weights(writer: _Writer, weights: WeightLayout, name: str, embedded: bool) -> None:
    path = f"src/{name}.weights" if embedded else f"lib/{name}.weights"
    digest = weights.write(writer.place(path))
    if embedded:
        writer.text("src/weights.h", text_of("weights_embedded.h", name))
        writer.text("src/weights.c", text_of("weights_embedded.c", name))
        return
    content = ", ".join(f"0x{digest[i : i + 2]}" for i in range(0, 64, 2))
    facts = [
        f'#define WEIGHTS_NAME "{name}.weights"',
        f"#define WEIGHTS_BYTES {weights.nbytes}",
        f"#define WEIGHTS_SHA256 {{{content}}}",
    ]
    writer.text("src/weights.h", "\n".join([*facts, "", text_of("weights_file.h", name)]))
    writer.text("src/sha256.h", text_of("sha256.h", name))
