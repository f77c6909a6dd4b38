"""Turn source artifacts into binary ones with the compiler plugins; a candidate that does not
compile is rejected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tactix.base.errors import CompilerError, ToolchainError
from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix.select.enumerate import Candidate, reject

COMPILED = "compiled"
"""The entry of a plan's ledger that ``compiled`` makes."""


class Toolchain:
    """The compilers that work here: the first that is given for each language. ``stopped``: whether
    to give up; ``told``: how many are done, where a call says nothing else; ``hurries``: whether
    the quick ones are used for want of time.
    """

    stopped: Callable[[], bool] = staticmethod(lambda: False)
    told: Callable[[int], None] = staticmethod(lambda done: None)

    def __init__(self, compilers: Iterable[Compiler]) -> None:
        self.hurries = False
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

    def begin(self, device: DeviceProperties) -> None:
        """Let the compilers begin what kernels of any kind take, while these are being chosen."""
        for c in self.by_language.values():
            c.begin(device)

    def identity(self, artifact: KernelArtifact) -> str:
        """The toolchain of an artifact's code, for cache keys."""
        return (
            self.by_language[artifact.code.language].identity()
            if isinstance(artifact.code, Source)
            else ""
        )

    def hurry(self, artifacts: Iterable[KernelArtifact], left: float) -> None:
        """Use the quick compilers from now on, if what they compile would take longer than the time
        that is ``left``, in seconds.
        """
        sources: dict[str, dict[str, Source]] = {}
        for a in artifacts:
            if isinstance(a.code, Source):
                sources.setdefault(a.code.language, {})[a.code.digest] = a.code
        needed = sum(self.by_language[k].seconds([*s.values()]) for k, s in sources.items())
        if needed > left:
            self.hurries = True
            self.by_language = {k: c.quick() for k, c in self.by_language.items()}

    def compile(
        self,
        artifacts: Iterable[KernelArtifact],
        device: DeviceProperties,
        told: Callable[[int], None] | None = None,
    ) -> Mapping[str, Binary]:
        """Binaries by source digest; one compiler call for each language. ``told``: how many are
        done, now and then. Raises CompilerError, BuildCancelled.
        """
        sources: dict[str, dict[str, Source]] = {}
        for a in artifacts:
            if isinstance(a.code, Source):
                if why := self.lacks(a):
                    raise ToolchainError(f"cannot compile {a.code.language}", why=why)
                sources.setdefault(a.code.language, {})[a.code.digest] = a.code
        out: dict[str, Binary] = {}
        for language, found in sorted(sources.items()):
            wanted = [found[d] for d in sorted(found)]
            made = self._compiled(
                self.by_language[language],
                wanted,
                device,
                partial(_beyond, told or self.told, len(out)),
            )
            out.update({s.digest: b for s, b in zip(wanted, made, strict=True)})
        return out

    def _compiled(
        self,
        compiler: Compiler,
        wanted: Sequence[Source],
        device: DeviceProperties,
        told: Callable[[int], None],
    ) -> list[Binary]:
        compiler.stopped, compiler.told = self.stopped, told
        try:
            return compiler.compile(wanted, device)
        finally:
            vars(compiler).pop("stopped", None)
            vars(compiler).pop("told", None)


def _beyond(told: Callable[[int], None], before: int, done: int) -> None:
    told(before + done)


def joined(
    toolchain: Toolchain,
    fine: Sequence[KernelArtifact],
    added: Sequence[Candidate],
    device: DeviceProperties,
    who: Callable[[Candidate], str],
) -> Mapping[str, Binary]:
    """Binaries of those that compile beside what is fine and beside each other; the others are
    rejected.

    ``who``: says whose a candidate is. Raises ToolchainError.
    """
    if not added:
        return {}
    try:
        return toolchain.compile([*fine, *(c.artifact for c in added)], device)
    except ToolchainError:
        raise
    except CompilerError as e:
        for c, why in _blamed(added, e):
            reject(c, f"{who(c)} does not compile: {why}")
    rest = [c for c in added if c.status != "rejected"]
    if len(rest) < len(added):
        return joined(toolchain, fine, rest, device, who)
    half = len(added) // 2
    first = joined(toolchain, fine, added[:half], device, who)
    more = [c.artifact for c in added[:half] if c.status != "rejected"]
    return {**first, **joined(toolchain, [*fine, *more], added[half:], device, who)}


def _blamed(added: Sequence[Candidate], e: CompilerError) -> Iterator[tuple[Candidate, str]]:
    """Those that the compiler names, with what it says of each; or the only one."""
    for c in added:
        digest = c.artifact.code.digest if isinstance(c.artifact.code, Source) else ""
        if digest in e.failed:
            yield c, e.failed[digest]
        elif len(added) == 1:
            yield c, str(e)


def with_binary(artifact: KernelArtifact, binaries: Mapping[str, Binary]) -> KernelArtifact:
    """The artifact with its source replaced by machine code."""
    return (
        replace(artifact, code=binaries[artifact.code.digest])
        if isinstance(artifact.code, Source)
        else artifact
    )


def prelude_name(text: str) -> str:
    """What a plan calls a prelude by: 16 digits of its sha256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compiled(
    artifacts: Iterable[KernelArtifact], binaries: Mapping[str, Binary], toolchain: Toolchain
) -> dict[str, Any]:
    """What beside its text a kernel was compiled from, as JSON for people, by the name of its
    entry.

    ``language``, ``compiler`` (its identity), ``flags`` of the source, and names of its
    ``preludes``, in order.
    """
    sources = {a.code.digest: a for a in artifacts if isinstance(a.code, Source)}
    return {
        binaries[digest].symbol: _compiled_from(sources[digest], toolchain)
        for digest in sorted(sources)
    }


def _compiled_from(artifact: KernelArtifact, toolchain: Toolchain) -> dict[str, Any]:
    assert isinstance(artifact.code, Source)
    return {
        "language": artifact.code.language,
        "compiler": toolchain.identity(artifact),
        "flags": list(artifact.code.flags),
        "preludes": [prelude_name(p) for p in artifact.code.preludes],
    }
