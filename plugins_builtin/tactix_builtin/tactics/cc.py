"""The C compiler: kernel texts to one shared object, by whatever C compiler is there.

Found in this order: ``$CC``, ``cc``, ``gcc``, ``clang``, ``python -m ziglang cc``. Sources are gathered in as many
translation units as there are cores, compiled side by side, and linked with the executor. Objects are cached by content
under the user's cache folder (``TACTIX_CACHE_DIR`` sets another one); equal sources give equal bytes.

In a translation unit every kernel has its own ``TX_ENTRY`` (``k_`` and 16 digits of its digest) and ``TX_NAME(x)``
(that name, ``_``, ``x``); preludes stand in front, each once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix.words.errors import CompilerError
from tactix_builtin.tactics.c_process import Outcome, run_all
from tactix_builtin.tactics.c_target import required_features, target_flags, zig_flags

__all__ = ["CCompiler", "compilers", "required_features", "target_flags"]

FLAGS = (
    "-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv", "-fPIC",
    "-fvisibility=hidden", "-fno-ident", "-w",
)  # fmt: skip
LINK_FLAGS = ("-shared", "-s", "-pthread", "-lm")
_CACHE_LIMIT = 1 << 30


def compilers() -> list[Compiler]:
    """The compilers that this module gives."""
    return [CCompiler()]


@dataclass(frozen=True)
class Unit:
    """A translation unit: its text, and the options that its sources ask for."""

    text: str
    flags: tuple[str, ...]

    def key(self, identity: str) -> str:
        return hashlib.sha256("\0".join((identity, *self.flags, self.text)).encode()).hexdigest()


class CCompiler(Compiler):
    """``command``: the compiler to call, else the first found. ``timeout``: seconds for one process.

    ``cancel()`` from another thread stops a running ``compile`` with BuildCancelled.
    """

    key = "tactix.cc@1"
    language = "c"
    launcher = "tactix.cpu.elf@1"

    def __init__(self, command: Sequence[str] | None = None, timeout: float = 300.0) -> None:
        self._command = tuple(command) if command else None
        self.timeout = timeout
        self._cancelled = threading.Event()

    @property
    def command(self) -> tuple[str, ...]:
        """The words that call the compiler; empty if there is none."""
        return self._command or find_compiler()

    def available(self) -> str:
        if self.command:
            return ""
        return "no C compiler was found (CC, cc, gcc, clang, ziglang); `pip install tactix[compiler]` installs one"

    def identity(self) -> str:
        return " ".join((version(self.command), *FLAGS, *LINK_FLAGS, executor_digest()[:16]))

    def cancel(self) -> None:
        """Stop every compilation of this compiler, now and until ``resume``."""
        self._cancelled.set()

    def resume(self) -> None:
        """Allow compilations again."""
        self._cancelled.clear()

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """Binaries with one common blob, symbols ``k_...``. Raises CompilerError, BuildCancelled."""
        reason = self.available()
        if reason:
            raise CompilerError("kernels cannot be compiled", who=self.key, why=reason)
        for s in sources:
            if s.language != self.language:
                raise CompilerError(f"it takes C, not {s.language}", who=self.key)
        unique = {s.digest: s for s in sources}
        kernels = [unique[d] for d in sorted(unique)]
        units = [*translation_units(kernels, os.cpu_count() or 1), *executor_unit()]
        try:
            blob = self._build(units, (*self._target(device), *FLAGS))
        except OSError as e:
            raise CompilerError(
                "objects cannot be kept",
                who=self.key,
                why=str(e),
                do="Set TACTIX_CACHE_DIR to a folder that can be written",
            ) from None
        return [Binary(blob, symbol(s), s.text) for s in sources]

    def _target(self, device: DeviceProperties) -> tuple[str, ...]:
        return zig_flags(device) if {"ziglang", "zig"} & set(self.command) else target_flags(device)

    def _build(self, units: Sequence[Unit], flags: Sequence[str]) -> bytes:
        base = "\0".join((self.identity(), *flags))
        keys = [u.key(base) for u in units]
        whole = cache_file(hashlib.sha256("".join(keys).encode()).hexdigest() + ".so")
        if not cached(whole):
            with tempfile.TemporaryDirectory(prefix="tactix-") as folder:
                objects = self._compile_units(units, keys, flags, folder)
                self._link(objects, folder, whole)
        return whole.read_bytes()

    def _compile_units(
        self, units: Sequence[Unit], keys: Sequence[str], flags: Sequence[str], folder: str
    ) -> list[Path]:
        paths = [cache_file(k + ".o") for k in keys]
        missing = [i for i, p in enumerate(paths) if not cached(p)]
        commands = []
        for i in missing:
            Path(folder, f"u{i}.c").write_text(units[i].text, encoding="utf-8")
            own = (*flags, *units[i].flags, f"-ffile-prefix-map={folder}=.", f"-frandom-seed={keys[i][:16]}")
            commands.append([*self.command, *own, "-c", f"u{i}.c", "-o", f"u{i}.o"])
        outcomes = run_all(commands, folder, self.timeout, self._cancelled)
        for i, outcome in zip(missing, outcomes, strict=True):
            self._check(outcome, units[i].text)
            store(Path(folder, f"u{i}.o"), paths[i])
        return paths

    def _link(self, objects: Sequence[Path], folder: str, target: Path) -> None:
        platform_flags = () if sys.platform in ("darwin", "win32") else ("-Wl,--build-id=none", "-Wl,-z,noexecstack")
        command = [*self.command, *map(str, objects), *LINK_FLAGS, *platform_flags, "-o", "kernels.so"]
        (outcome,) = run_all([command], folder, self.timeout, self._cancelled)
        self._check(outcome, "")
        store(Path(folder, "kernels.so"), target)

    def _check(self, outcome: Outcome, text: str) -> None:
        if outcome.code == 0:
            return
        why = f"no answer within {self.timeout:g} s" if outcome.code is None else first_errors(outcome.output)
        where = f"The source was kept as {keep(text)}" if text else ""
        raise CompilerError(f"{self.command[0]} failed", who=self.key, why=why, do=where)


def find_compiler() -> tuple[str, ...]:
    """The words of the first C compiler found, or none."""
    named = os.environ.get("CC")
    if named:
        return tuple(shlex.split(named))
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return (path,)
    return (sys.executable, "-m", "ziglang", "cc") if _has_zig() else ()


def _has_zig() -> bool:
    from importlib.util import find_spec

    return find_spec("ziglang") is not None


@functools.cache
def version(command: tuple[str, ...]) -> str:
    """The first line that the compiler says of itself. Raises CompilerError if it cannot be run."""
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as e:
        raise CompilerError(
            f"the compiler {' '.join(command) or '(none)'} cannot be run", why=str(e), do="Check CC"
        ) from None
    return said.splitlines()[0] if said else " ".join(command)


def symbol(source: Source) -> str:
    """The entry's name in the shared object."""
    return f"k_{source.digest[:16]}"


def translation_units(sources: Sequence[Source], count: int) -> list[Unit]:
    """At most ``count`` units for each set of options, of about equal length of text; depends on the sources alone."""
    by_flags: dict[tuple[str, ...], list[Source]] = {}
    for s in sources:
        by_flags.setdefault(s.flags, []).append(s)
    out = []
    for flags, group in sorted(by_flags.items()):
        bins: list[list[Source]] = [[] for _ in range(min(count, len(group)))]
        loads = [0] * len(bins)
        for s in sorted(group, key=lambda s: (-len(s.text), s.digest)):
            lightest = loads.index(min(loads))
            bins[lightest].append(s)
            loads[lightest] += len(s.text) + 200
        out += [Unit(unit_text(b), flags) for b in bins]
    return out


def unit_text(sources: Sequence[Source]) -> str:
    """Preludes in order of first use, then each kernel between its own macros."""
    preludes = dict.fromkeys(p for s in sources for p in s.preludes)
    parts = [f'#line 1 "prelude{i}.h"\n{p}' for i, p in enumerate(preludes)] or ["#include <stdint.h>\n"]
    for s in sources:
        name = symbol(s)
        parts.append(
            f"#define TX_ENTRY {name}\n#define TX_NAME(x) {name}_##x\n"
            f'__attribute__((visibility("default"))) void {name}(const int64_t*, int, int);\n'
            f'#line 1 "{name}.c"\n{s.text}\n#undef TX_ENTRY\n#undef TX_NAME\n'
        )
    return "\n".join(parts)


@functools.cache
def executor_text() -> str:
    """The source of the executor that is linked into every shared object; empty if there is none."""
    file = resources.files("tactix_builtin.kernels.cpu").joinpath("executor.c")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def executor_unit() -> list[Unit]:
    return [Unit(executor_text(), ())] if executor_text() else []


@functools.cache
def executor_digest() -> str:
    return hashlib.sha256(executor_text().encode()).hexdigest()


def cache_folder() -> Path:
    """Where objects are kept."""
    named = os.environ.get("TACTIX_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tactix"))


def cache_file(name: str) -> Path:
    """The place of a cached file; folders are made when it is stored."""
    return cache_folder() / "objects" / name[:2] / name


def cached(place: Path) -> bool:
    """Whether a file is in the cache; it then counts as new, so that no other process drops it now."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def store(made: Path, place: Path) -> None:
    """Put a file into the cache: whole or not at all, whoever else writes it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent)
    os.close(handle)
    shutil.copyfile(made, name)
    os.replace(name, place)
    _prune_once()


@functools.cache
def _prune_once() -> None:
    """Once per process: drop the oldest files while the cache holds more than 1 GiB."""
    with contextlib.suppress(OSError):
        found = [(f.stat(), f) for f in (cache_folder() / "objects").glob("*/*") if f.is_file()]
        total = sum(s.st_size for s, _ in found)
        for s, f in sorted(found, key=lambda x: x[0].st_mtime):
            if total <= _CACHE_LIMIT:
                return
            f.unlink(missing_ok=True)
            total -= s.st_size


def first_errors(output: str, count: int = 6) -> str:
    """The compiler's first error lines, or the first lines at all."""
    lines = [line for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return "; ".join((errors or lines or ["it said nothing"])[:count])


def keep(text: str, suffix: str = ".c") -> Path:
    """Write a failed source into the cache folder, for the user to look at."""
    folder = cache_folder() / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}{suffix}"
    path.write_text(text, encoding="utf-8")
    return path
