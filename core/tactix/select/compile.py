"""Turn source artifacts into binary ones with the compiler plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix.words.errors import CompilerError


class Toolchain:
    """The compilers that work here: the first that is given for each language."""

    def __init__(self, compilers: Iterable[Compiler]) -> None:
        self.by_language: dict[str, Compiler] = {}
        self.missing: dict[str, str] = {}
        for c in compilers:
            why = c.available()
            if why:
                self.missing.setdefault(c.language, why)
            else:
                self.by_language.setdefault(c.language, c)

    def lacks(self, artifact: KernelArtifact) -> str:
        """Empty if the artifact's code can be compiled here, else why not."""
        if not isinstance(artifact.code, Source) or artifact.code.language in self.by_language:
            return ""
        language = artifact.code.language
        return self.missing.get(language) or f"no installed plugin compiles {language!r}"

    def identity(self, artifact: KernelArtifact) -> str:
        """The toolchain of an artifact's code, for cache keys."""
        return self.by_language[artifact.code.language].identity() if isinstance(artifact.code, Source) else ""

    def compile(self, artifacts: Iterable[KernelArtifact], device: DeviceProperties) -> Mapping[str, Binary]:
        """Binaries by source digest; one compiler call for each language. Raises CompilerError."""
        sources: dict[str, dict[str, Source]] = {}
        for a in artifacts:
            if isinstance(a.code, Source):
                if why := self.lacks(a):
                    raise CompilerError(f"cannot compile {a.code.language}", why=why)
                sources.setdefault(a.code.language, {})[a.code.digest] = a.code
        out: dict[str, Binary] = {}
        for language, found in sorted(sources.items()):
            wanted = [found[d] for d in sorted(found)]
            made = self.by_language[language].compile(wanted, device)
            out.update({s.digest: b for s, b in zip(wanted, made, strict=True)})
        return out


def with_binary(artifact: KernelArtifact, binaries: Mapping[str, Binary]) -> KernelArtifact:
    """The artifact with its source replaced by machine code."""
    return replace(artifact, code=binaries[artifact.code.digest]) if isinstance(artifact.code, Source) else artifact
