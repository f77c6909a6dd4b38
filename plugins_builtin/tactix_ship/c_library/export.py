"""Writes a plan as a C library: texts, weights, machine code, and what lets others find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tactix
from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing
from tactix.plan.schema import Plan
from tactix_cpu.compiler import executor_part, version
from tactix_ship.c_library import eligibility, project
from tactix_ship.c_library.build import Building, build
from tactix_ship.c_library.header import contexts, header
from tactix_ship.c_library.library_code import LibraryCode, cuda_code, processor_code
from tactix_ship.c_library.names import library_name, text_of
from tactix_ship.c_library.tables import tables
from tactix_ship.c_library.weights import WeightLayout, weights_of

SHARED, STATIC = "shared", "static"
WEIGHTS, CUBINS = "weights", "cubins"
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
    plans = eligibility.programs(plan)
    on_cuda = plan.device.get("kind") == eligibility.CUDA
    code = cuda_code(plans, name) if on_cuda else processor_code(plan, plans, name)
    weights = weights_of(plan, code.launches.programs)
    if embedded and weights.nbytes > MOST_EMBEDDED:
        why = f"they have {weights.nbytes} bytes, code reaches {MOST_EMBEDDED}"
        raise InvalidArgument("the weights do not fit into the library", why=why,
                              do="Give --weights file")  # fmt: skip
    writer = _Writer(folder)
    description = _description(plan, name)
    writer.text(f"include/{name}.h", header(plan, description, name, on_cuda))
    _sources(writer, plan, code, name, on_cuda)
    writer.text("src/tables.h", tables(plan, code.launches, weights, description, name))
    _weights(writer, weights, name, embedded)
    if code.cubins:
        _embedded(writer, CUBINS, name)
        with replacing(writer.place(f"src/{name}.{CUBINS}")) as f:
            f.write(code.cubins)
    parts = [*([WEIGHTS] if embedded else []), *([CUBINS] if code.cubins else [])]
    facts = {"name": name, "target": str(plan.device.get("name") or "its target")}
    facts["compiler"] = code.identity
    writer.text("src/CMakeLists.txt", project.lists(code.units, code.flags, facts, parts))
    building = Building(name, folder, forms, code.units, code.flags, parts)
    libraries = build(building, code.compiler)
    writer.text(f"lib/cmake/{name}/{name}Config.cmake", project.config(name, forms))
    writer.text(f"lib/pkgconfig/{name}.pc", project.pkg_config(name, description, forms))
    files = [*writer.files, *(f"lib/{path.name}" for path in libraries)]
    told = version(code.compiler.command)
    return Library(name, folder, files, libraries, weights.nbytes, code.kernels, code.same, told)


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


def _sources(writer: _Writer, plan: Plan, code: LibraryCode, name: str, on_cuda: bool) -> None:
    """What is not special to the plan's sizes."""
    writer.text("src/context.c", contexts(plan, name, on_cuda))
    writer.text("src/program.h", text_of("program.h", name))
    for part in ("threads", "executor"):
        writer.text(f"src/executor/{part}.c", executor_part(part))
    for file, text in code.texts.items():
        writer.text(f"src/{file}", text)


def _weights(writer: _Writer, weights: WeightLayout, name: str, embedded: bool) -> None:
    path = f"src/{name}.{WEIGHTS}" if embedded else f"lib/{name}.{WEIGHTS}"
    digest = weights.write(writer.place(path))
    if embedded:
        writer.text("src/weights.h", text_of("weights_embedded.h", name))
        _embedded(writer, WEIGHTS, name)
        return
    content = ", ".join(f"0x{digest[i : i + 2]}" for i in range(0, 64, 2))
    facts = [f'#define WEIGHTS_NAME "{name}.weights"', f"#define WEIGHTS_SHA256 {{{content}}}"]
    writer.text("src/weights.h", "\n".join([*facts, "", text_of("weights_file.h", name)]))
    writer.text("src/sha256.h", text_of("sha256.h", name))


def _embedded(writer: _Writer, part: str, name: str) -> None:
    """The unit that has the content of a file."""
    text = text_of("embedded.c", name).replace("@part@", part).replace("@PART@", part.upper())
    writer.text(f"src/{part}.c", text)
