"""Plans of many small models whose kernels are compiled together: a call of the compiler costs more
than a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import tactix
from tactix.builder import planned
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.finish import finish
from tactix.pipeline.prepare import prepare
from tactix.plan.schema import Plan
from tactix_codegen.compiling import symbol
from tactix_cpu.compiler import CCompiler, Unit


class FewUnits(CCompiler):
    """A C compiler in a hurry: a few translation units for all kernels. Their speed is not what is
    looked at.
    """

    _precompiles = False

    def _build(self, units: Sequence[Unit], flags: Sequence[str]) -> bytes:
        return super()._build(units, [*flags, "-O1"])


class Later(Compiler):
    """Takes sources and gives empty binaries, which ``finished`` fills."""

    key, language, launcher = "tactix.later@1", "c", CCompiler.launcher

    def __init__(self) -> None:
        self._compiler = FewUnits()
        self._sources: dict[str, Source] = {}
        self._device: DeviceProperties | None = None

    def available(self) -> str:
        return self._compiler.available()

    def identity(self) -> str:
        return self._compiler.identity()

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        self._device = device
        self._sources |= {symbol(s): s for s in sources}
        return [Binary(b"", symbol(s), s.text) for s in sources]

    def finished(self) -> Mapping[str, Binary]:
        """Machine code by symbol, of all sources that came. Raises CompilerError."""
        if self._device is None:
            return {}
        made = self._compiler.compile(list(self._sources.values()), self._device)
        return dict(zip(self._sources, made, strict=True))


class BatchBuilder(tactix.Builder):
    """A builder whose plans lack the machine code of their C kernels until ``finish``."""

    def __init__(self) -> None:
        super().__init__(tactix.Logger(tactix.Severity.INTERNAL_ERROR))
        self._later = Later()

    def build_plan(
        self, network: NetworkDefinition, config: tactix.BuilderConfig | None = None
    ) -> Plan:
        asked = config or tactix.BuilderConfig()
        prepared = prepare(self.session, network, asked, self.logger, self._load)
        compilers = prepared.state.toolchain.by_language
        if Later.language in compilers:
            compilers[Later.language] = self._later
        with closing(prepared.state.bench):
            plan = planned(prepared.network, prepared.state)
        return finish(plan, prepared.state)

    def finish(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans with machine code, those of their bodies included. Raises CompilerError."""
        made = self._later.finished()
        return [_filled(p, made) for p in plans]


def _filled(plan: Plan, made: Mapping[str, Binary]) -> Plan:
    steps = []
    for s in plan.steps:
        code = s.artifact.code
        if isinstance(code, Binary) and not code.blob:
            s = replace(s, artifact=replace(s.artifact, code=made[code.symbol]))
        steps.append(replace(s, plans=tuple(_filled(p, made) for p in s.plans)))
    return replace(plan, steps=tuple(steps))
