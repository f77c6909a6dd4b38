"""What runs the launches of a library: kernels and their texts, by the device of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tactix.contracts.device import DeviceProperties
from tactix.plan.schema import Plan
from tactix_codegen.c.target import other_architecture
from tactix_cpu.compiler import BEST, CCompiler
from tactix_ship.c_library.build import compiler_for
from tactix_ship.c_library.cuda_tables import CudaTables
from tactix_ship.c_library.kernels import (
    Kernels,
    KernelUnit,
    device_of,
    kernel_files,
    kernels_of,
    options,
    same_compiler,
    units,
)
from tactix_ship.c_library.launch_tables import LaunchTables
from tactix_ship.c_library.names import text_of
from tactix_ship.c_library.processor_tables import ProcessorTables

HOST = DeviceProperties("cpu", "this processor", frozenset(), 128)
"""What is around kernels of a GPU is for any processor of the architecture that this one has."""


@dataclass(frozen=True)
class LibraryCode:
    """``texts``: by path in the folder of sources. ``units``: what is compiled with ``flags``.
    ``kernels``: how many there are. ``identity``: of the compiler that the plan has its machine
    code from, and ``same`` whether ``compiler`` makes the same; ``cubins``: machine code that is
    the plan's own, empty if there is none.
    """

    launches: LaunchTables
    texts: Mapping[str, str]
    compiler: CCompiler
    units: Sequence[KernelUnit]
    flags: Sequence[str]
    kernels: int
    identity: str
    same: bool
    cubins: bytes = b""


def processor_code(plan: Plan, plans: Sequence[Plan], name: str) -> LibraryCode:
    """Kernels in C, compiled again. ``plans``: those in the place of ``plan``. Raises
    PlanCompatibilityError, ToolchainError.
    """
    launches = ProcessorTables(plans, name)
    kernels = kernels_of(plans, plan.ledger)
    device = device_of(plan)
    compiler = compiler_for(device, kernels.effort)
    made = units(kernels, compiler, name)
    texts = {
        "launches.h": text_of("processor_launches.h", name),
        "running.h": text_of("processor_running.h", name),
        "processor.h": text_of("processor.h", name),
        **{f"kernels/{file}": text for file, text in _kernel_texts(kernels, name).items()},
        **{f"kernels/{u.file}": u.text for u in made},
    }
    flags = options(kernels, compiler, device)
    same = same_compiler(compiler, kernels) or bool(other_architecture(device))
    count = len(kernels.sources)
    return LibraryCode(launches, texts, compiler, made, flags, count, kernels.identity, same)


def _kernel_texts(kernels: Kernels, name: str) -> dict[str, str]:
    """Of kernels, and of what they include."""
    preludes = {f"preludes/{p.file}": p.text for p in kernels.preludes}
    return {**preludes, **kernel_files(kernels, name)}


def cuda_code(plans: Sequence[Plan], name: str) -> LibraryCode:
    """Machine code of the plans, over the driver. Raises PlanCompatibilityError, ToolchainError."""
    launches = CudaTables(plans)
    texts = {
        "launches.h": text_of("cuda_launches.h", name),
        "running.h": text_of("cuda_running.h", name),
        "driver.h": text_of("cuda_driver.h", name),
        "calls.h": text_of("cuda_calls.h", name),
        "cubins.h": text_of("cubins.h", name),
    }
    compiler = compiler_for(HOST, BEST)
    count, cubins = launches.kernels, launches.code()
    return LibraryCode(launches, texts, compiler, (), (), count, "", True, cubins)
