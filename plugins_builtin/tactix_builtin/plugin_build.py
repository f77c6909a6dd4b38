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
    from tactix_builtin.cuda.tactics import all_tactics as cuda_tactics
    from tactix_cpu.tactics import all_tactics
    from tactix_ops.tactics import all_tactics as reference_tactics

    return [*reference_tactics(), *all_tactics(), *cuda_tactics()]


@hookimpl
def tactix_compilers() -> list[Compiler]:
    from tactix_builtin import cuda
    from tactix_cpu.compiler import compilers

    return [*compilers(), *cuda.compilers()]


@hookimpl
def tactix_tools() -> list[Tool]:
    from tactix_builtin.tools import tools

    return tools()
