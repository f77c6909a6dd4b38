"""What the built-ins offer at build time. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.compiler import Compiler
    from tactix.contracts.importer import Converter, Importer
    from tactix.contracts.rule import Rule
    from tactix.contracts.tactic import Tactic
    from tactix.contracts.tool import Tool


@hookimpl
def tactix_importers() -> list[Importer]:
    from tactix_onnx import importers

    return importers()


@hookimpl
def tactix_converters() -> list[Converter]:
    from tactix_onnx import converters

    return converters()


@hookimpl
def tactix_rules() -> list[Rule]:
    from tactix_ops.rules import all_rules, lowering_rules

    return [*all_rules(), *lowering_rules()]


@hookimpl
def tactix_tactics() -> list[Tactic]:
    from tactix_cpu.tactics import all_tactics
    from tactix_cublaslt import tactic as cublaslt
    from tactix_cuda.tactics import all_tactics as cuda_tactics
    from tactix_cudnn import tactic as cudnn
    from tactix_ops.tactics import all_tactics as reference_tactics

    return [*reference_tactics(), *all_tactics(), *cuda_tactics(), *cublaslt.tactics(), *cudnn.tactics()]


@hookimpl
def tactix_compilers() -> list[Compiler]:
    import tactix_cuda as cuda
    import tactix_cudnn as cudnn
    from tactix_cpu.compiler import compilers

    return [*compilers(), *cuda.compilers(), *cudnn.compilers()]


@hookimpl
def tactix_tools() -> list[Tool]:
    from tactix_tools import tools

    return tools()
