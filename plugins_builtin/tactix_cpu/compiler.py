"""The C compiler: kernel texts to one shared object, by whatever C compiler is there.

Found in this order: ``$CC``, ``cc``, ``gcc``, ``clang``, ``python -m ziglang cc``; for a device of
another architecture ``<architecture>-linux-gnu-gcc``, else ziglang, unless ``$CC`` is set. Objects
are compiled side by side and linked with the executor; they are cached by content under the user's
cache folder (``TACTIX_CACHE_DIR`` sets another one); equal sources give equal bytes. With GCC every
kernel is a translation unit of its own, so that builds share objects kernel by kernel. It reads no
more intrinsics than they use (``intrinsics``); preludes without these are precompiled. Other
compilers would read all anew for each kernel: they get a few units, the same number on every
machine, as the bytes depend on it. So does GCC in builds that measure nothing (``quick``), with
fewer optimizations.

In a translation unit every kernel has its own ``TX_ENTRY`` (``k_`` and 16 digits of its digest) and
``TX_NAME(x)`` (that name, ``_``, ``x``); preludes stand in front, each once.
"""

from __future__ import annotations

import atexit
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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path

from tactix.base.errors import CompilerError, ConfigError, TactixError, ToolchainError
from tactix.base.scratch import ScratchFolder
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix_codegen.c.target import is_arm, other_architecture, target_flags, zig_flags
from tactix_codegen.compiler_process import ASKED, CommandResult, run_all
from tactix_codegen.compiling import first_errors, symbol
from tactix_cpu import intrinsics
from tactix_trust import object_cache

_LANGUAGE = "-std=gnu11"
_CODE = (
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fwrapv",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-ident",
    "-w",
)
FLAGS = (_LANGUAGE, "-O3", *_CODE)
LINK_FLAGS = ("-shared", "-s", "-pthread", "-lm")
PROBE = "#include <math.h>\n#include <pthread.h>\n#include <stdint.h>\nint tx_probe;\n"
"""What any compiler for kernels takes."""
PATIENCE = 60.0
"""Seconds for that."""
MISSING = (
    "no C compiler was found (CC, cc, gcc, clang, ziglang); "
    "`pip install tactix[compiler]` installs one"
)
_HEADERS = intrinsics.Headers()
"""By what the compiler says of itself, its command and options."""
_UNITS = 8
"""Translation units of a build by a compiler that precompiles no headers. Each reads the preludes
anew, so there are few; the bytes depend on it, so it is no machine's number of cores. No
measurement of it is on record.
"""
_SHARED_BY = 4
"""Units that must begin alike before a header is precompiled for them: it costs about as much as
reading it twice. That has been said since the first version; no figures are on record.
"""
_UNIT_TEXT = 56_000
"""Characters that a kernel counts more than its text has, where units are made that take about
equally long: with the options of ``QUICK`` GCC 12 took 0.09 s and 1.6 us a character for each of 26
kernels of 3,000 to 95,000 characters.
"""
_STRAIGHT = 8
"""Straight kernels from which on they get units of their own. Two units more read preludes for 0.16
s, and 17 such kernels took 1 s less; with the few of a network of matrix products it was 0.1 to 0.2
s more.
"""
_EXECUTOR = 110_000
"""Characters, counted so, that compiling the executor is worth, which takes 0.22 s there: of few
units the one that is compiled beside it gets so much less.
"""


@dataclass(frozen=True)
class Effort:
    """What kernels are worth to the compiler. ``flags``: of every unit; ``units``: how many, 0 for
    as many as suit the compiler; ``text``: what stands before a unit's first kernel; ``straight``:
    options of units of straight kernels (``Source.straight``), behind the others.
    """

    flags: tuple[str, ...]
    units: int = 0
    text: str = ""
    straight: tuple[str, ...] = ()
    seconds: tuple[float, float, float] = (0.2, 0.06, 5e-6)
    """Of a processor: that a build takes, each kernel, and each character of their texts. For 26
    kernels of 675,000 characters GCC 12 took 4.9 on a Zen 4, for 13 of 238,000 2.7.
    """


BEST = Effort(FLAGS)
QUICK = Effort(
    (
        _LANGUAGE,
        "-O1",
        "-ftree-vectorize",
        "-fexpensive-optimizations",  # without it GCC fuses no multiplication with an addition
        "-fno-ivopts",
        "--param=max-inline-insns-single=20",
        *_CODE,
    ),
    2,
    "#undef TX_INLINE\n#define TX_INLINE static inline __attribute__((unused))\n",
    ("-Og",),
    (0.4, 0.0, 2.5e-6),
)
"""For builds that measure nothing: the compiler may leave a kernel's own functions as calls, those
of preludes stay inline. There are two units, as many as the least machines have cores.
For resnet50's kernels GCC 12 took 2.6 s of the processor in place of 3.3 in four units at ``-O1``
and vectors alone (medians of three builds of each in turns); a call took 58.6 ms in place of 76.2,
and 58.7 where the same kernels were compiled with ``FLAGS``.
``-Og`` for resnet50's 17 kernels on the matrix unit takes a third of the compiler's time, 1.98 s in
place of 2.98, and nothing of a call, 40.3 ms with either; for all kernels a call took 48.
"""


class Begun:
    """Work that threads of their own have begun, each once, by what it is made with. Who needs what
    failed does it again, and tells. They are daemons, and end before the process does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: dict[tuple[str, ...], threading.Thread] = {}

    def begin(self, key: tuple[str, ...], work: Callable[[], None]) -> None:
        with self._lock:
            if key not in self._threads:
                if not self._threads:
                    atexit.register(self.end)
                thread = threading.Thread(target=self._run, args=(work,), daemon=True)
                with contextlib.suppress(RuntimeError):  # the system has no thread to give
                    thread.start()
                    self._threads[key] = thread

    def is_over(self) -> bool:
        """Whether the work is to stop."""
        return self._over.is_set()

    def end(self) -> None:
        """Stop all of it, so that no compiler outlives the process."""
        self._over.set()
        for thread in self._threads.values():
            thread.join()

    def wait(self, key: tuple[str, ...], stopped: Callable[[], bool]) -> None:
        """Until that work is over, if it was begun, or until ``stopped`` says so."""
        with self._lock:
            thread = self._threads.get(key)
        while thread is not None and thread.is_alive() and not stopped():
            thread.join(ASKED)

    @staticmethod
    def _run(work: Callable[[], None]) -> None:
        with contextlib.suppress(TactixError, OSError):
            work()


_BEGUN = Begun()


def compilers() -> list[Compiler]:
    """The compilers that this module gives."""
    return [CCompiler()]


Head = tuple[tuple[str, ...], str]
"""Options and text of a header."""


@dataclass(frozen=True)
class Unit:
    """A translation unit: its text, the options that its sources ask for, and the preludes that it
    begins with.

    ``sources``: their digests.
    """

    text: str
    flags: tuple[str, ...]
    head: str = ""
    sources: tuple[str, ...] = ()

    def key(self, identity: str) -> str:
        return hashlib.sha256("\0".join((identity, *self.flags, self.text)).encode()).hexdigest()


class CCompiler(Compiler):
    """``command``: the compiler to call, else the first found. ``timeout``: seconds for one
    process.

    ``cancel()`` from another thread stops a running ``compile`` with BuildCancelled.
    """

    key = "tactix.cc@1"
    language = "c"
    launcher = "tactix.cpu.elf@1"

    def __init__(
        self, command: Sequence[str] | None = None, timeout: float = 300.0, effort: Effort = BEST
    ) -> None:
        self._command = tuple(command) if command else None
        self.timeout, self._effort = timeout, effort
        self._cancelled = threading.Event()

    @property
    def command(self) -> tuple[str, ...]:
        """The words that call the compiler; empty if there is none."""
        return self._command or find_compiler()

    def available(self) -> str:
        return why_useless(self.command) if self.command else MISSING

    def identity(self) -> str:
        own = (*self._effort.flags, *self._effort.straight, *LINK_FLAGS, executor_digest()[:16])
        return " ".join((version(self.command), *own))

    def quick(self) -> CCompiler:
        return self._like(self._command, QUICK)

    def seconds(self, sources: Sequence[Source]) -> float:
        """By the length of their texts, and by what else wants the machine's cores now."""
        texts = {s.digest: s.text for s in sources}
        build, kernel, character = self._effort.seconds
        work = build + kernel * len(texts) + character * sum(map(len, texts.values()))
        cores = os.cpu_count() or 1
        others = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return work * (cores + others) / cores**2

    def cancel(self) -> None:
        """Stop every compilation of this compiler, now and until ``resume``."""
        self._cancelled.set()

    def resume(self) -> None:
        """Allow compilations again."""
        self._cancelled.clear()

    def begin(self, device: DeviceProperties) -> None:
        """The executor's object and the compiler's intrinsics, once in a process for a set of
        options. A cache that has that object has been built with: then nothing is begun.
        """
        if other_architecture(device) or not self.command:
            return
        with contextlib.suppress(ToolchainError):
            beside = self._like(self._command, self._effort)
            beside.stopped = _BEGUN.is_over
            _BEGUN.begin(self._made_by(device), partial(beside._begin, device))

    def _begin(self, device: DeviceProperties) -> None:
        flags = self.options(device)
        unit = Unit(executor_text(), ())
        key = unit.key("\0".join((self.identity(), *flags)))
        if object_cache.find(f"{key}.o") is not None:
            return
        with ScratchFolder() as folder:
            if self._is_gcc and not is_arm(device):
                self._intrinsics([flags], folder)
            self._compile_units([unit], [key], flags, folder)

    def _made_by(self, device: DeviceProperties) -> tuple[str, ...]:
        return (*self.command, self.identity(), *self.options(device))

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """Binaries with one common blob, symbols ``k_...``. Raises CompilerError, ToolchainError,
        BuildCancelled.
        """
        arch = other_architecture(device)
        if arch and not self._command and "CC" not in os.environ:
            return self._cross(arch).compile(sources, device)
        if not self.command:
            raise ToolchainError("kernels cannot be compiled", who=self.key, why=MISSING)
        for s in sources:
            if s.language != self.language:
                raise CompilerError(f"it takes C, not {s.language}", who=self.key)
        _BEGUN.wait(self._made_by(device), self.stopped)
        units = [*self.units(sources), Unit(executor_text(), ())]
        try:
            blob = self._build(units, self.options(device))
        except OSError as e:  # most say no name: writing fails, not opening
            what = f"the compiler's files in {tempfile.gettempdir()} cannot be written or read"
            do = "Make room there, raise `ulimit -f`, or name another folder with TMPDIR"
            raise ToolchainError(what, who=self.key, why=str(e), do=do) from e
        return [Binary(blob, symbol(s), s.text) for s in sources]

    def _cross(self, arch: str) -> CCompiler:
        """The one for another architecture. Raises ToolchainError."""
        command = cross_compiler(arch)
        if not command:
            why, do = (
                f"no C compiler for {arch} was found",
                "`pip install tactix[compiler]` installs one",
            )
            raise ToolchainError("kernels cannot be compiled", who=self.key, why=why, do=do)
        other = self._like(command, self._effort)
        other.stopped, other.told = self.stopped, self.told
        return other

    def _like(self, command: Sequence[str] | None, effort: Effort) -> CCompiler:
        """One that is cancelled together with this one."""
        other = CCompiler(command, self.timeout, effort)
        other._cancelled = self._cancelled
        return other

    def units(self, sources: Sequence[Source]) -> list[Unit]:
        """What it compiles these kernels as: their code may depend on what is beside them."""
        unique = {s.digest: s for s in sources}
        kernels = [unique[d] for d in sorted(unique)]
        few, between = self._effort.units, self._effort.text
        if not few:
            return translation_units(kernels, len(kernels) if self._precompiles else _UNITS)
        straight = [s for s in kernels if s.straight and self._is_gcc]
        if len(straight) < _STRAIGHT:
            return translation_units(kernels, few, between, _EXECUTOR)
        others = [s for s in kernels if s not in straight]
        units = translation_units(straight, few, between)
        return [
            *translation_units(others, few, between, _EXECUTOR),
            *(replace(u, flags=(*u.flags, *self._effort.straight)) for u in units),
        ]

    def options(self, device: DeviceProperties) -> tuple[str, ...]:
        """Of every unit."""
        return (*self._target(device), *self._effort.flags)

    @property
    def _precompiles(self) -> bool:
        """Whether headers compiled beforehand leave the code that comes out as it is (GCC's do),
        and are worth their time.
        """
        return not self._effort.units and self._is_gcc

    @property
    def _is_gcc(self) -> bool:
        return "Free Software Foundation" in told(self.command)

    def _target(self, device: DeviceProperties) -> tuple[str, ...]:
        return zig_flags(device) if {"ziglang", "zig"} & set(self.command) else target_flags(device)

    def _build(self, units: Sequence[Unit], flags: Sequence[str]) -> bytes:
        base = "\0".join((self.identity(), *flags))
        keys = [u.key(base) for u in units]
        name = hashlib.sha256("".join(keys).encode()).hexdigest() + ".so"
        whole = object_cache.find(name)
        if whole is None:
            with ScratchFolder() as folder:
                self._compile_units(units, keys, flags, folder)
                whole = self._link([f"u{i}.o" for i in range(len(units))], folder)
            object_cache.put(name, whole)
        return whole

    def _compile_units(
        self, units: Sequence[Unit], keys: Sequence[str], flags: Sequence[str], folder: str
    ) -> None:
        """Objects ``u0.o``, ``u1.o``... in the folder, from the cache or made anew.

        What is made is in the cache even if the rest fails or is stopped.
        """
        missing = [
            i for i, key in enumerate(keys) if not _taken(f"{key}.o", Path(folder, f"u{i}.o"))
        ]
        cut = self._cut([units[i] for i in missing], flags, folder)
        whole = [units[i] for i in missing if units[i] not in cut]
        heads = self._heads(whole, flags, folder) if self._precompiles else {}
        commands = []
        for i in missing:
            u = units[i]
            head = None if u in cut else heads.get((u.flags, u.head))
            text = cut.get(u, u.text)
            Path(folder, f"u{i}.c").write_text(
                text.removeprefix(u.head) if head else text, encoding="utf-8"
            )
            own = [
                *flags,
                *u.flags,
                f"-ffile-prefix-map={folder}=.",
                f"-frandom-seed={keys[i][:16]}",
            ]
            own += ["-include", head] if head else []
            commands.append([*self.command, *own, "-c", f"u{i}.c", "-o", f"u{i}.o"])

        done = [len(u.sources) for i, u in enumerate(units) if i not in missing]

        def keep(index: int, outcome: CommandResult) -> None:
            made = Path(folder, f"u{missing[index]}.o")
            done.append(len(units[missing[index]].sources))
            if outcome.code == 0:
                object_cache.put(f"{keys[missing[index]]}.o", made.read_bytes())

        def told_is_stopped() -> bool:
            self.told(sum(done))
            return self.stopped()

        outcomes = run_all(
            commands, folder, self.timeout, self._cancelled, 0, told_is_stopped, keep
        )
        told_is_stopped()
        failed: list[tuple[Unit, CompilerError]] = []
        for i, outcome in zip(missing, outcomes, strict=True):
            try:
                self._check(outcome, units[i].text)
            except CompilerError as e:
                failed.append((units[i], e))
        if failed:
            first = failed[0][1]
            first.failed = {u.sources[0]: str(e) for u, e in failed if len(u.sources) == 1}
            raise first

    def _cut(self, units: Sequence[Unit], flags: Sequence[str], folder: str) -> dict[Unit, str]:
        """Texts of units that read what they use of ``<immintrin.h>`` alone, from headers in
        ``folder``; of those that may.
        """
        alike: dict[tuple[str, ...], list[Unit]] = {}
        for u in units if self._is_gcc else ():
            if intrinsics.may_be_cut(u.text):
                alike.setdefault(u.flags, []).append(u)
        headers = self._intrinsics([(*flags, *own) for own in alike], folder)
        out = {}
        for i, (found, header) in enumerate(zip(alike.values(), headers, strict=True)):
            if header:
                text = intrinsics.cut(header, [u.text for u in found])
                Path(folder, f"intrinsics{i}.h").write_text(text, encoding="utf-8")
                for u in found:
                    out[u] = u.text.replace(intrinsics.INCLUDE, f'#include "intrinsics{i}.h"\n')
        return out

    def _intrinsics(
        self, options: Sequence[tuple[str, ...]], folder: str
    ) -> list[intrinsics.Header | None]:
        """The compiler's own header for each of these sets of options; None where it cannot be
        taken apart. ``folder``: to preprocess in.
        """
        keys = [(told(self.command), *self.command, *own) for own in options]
        known = {key: header for key in keys if (header := _HEADERS.get(key))}
        missing = {key: own for key, own in zip(keys, options, strict=True) if key not in known}
        if missing:
            Path(folder, "all.c").write_text(intrinsics.SOURCE, encoding="utf-8")
        commands = [
            intrinsics.preprocessing(self.command, own, "all.c", f"all{i}.h")
            for i, own in enumerate(missing.values())
        ]
        outcomes = run_all(commands, folder, self.timeout, self._cancelled, stopped=self.stopped)
        apart = functools.cache(intrinsics.header)  # most options give the same text
        for i, (key, outcome) in enumerate(zip(missing, outcomes, strict=True)):
            text = Path(folder, f"all{i}.h").read_text(encoding="utf-8") if not outcome.code else ""
            if header := apart(text):
                known[key] = header
                _HEADERS.put(key, header)
        return [known.get(key) for key in keys]

    def _heads(self, units: Sequence[Unit], flags: Sequence[str], folder: str) -> dict[Head, str]:
        """Headers in ``folder``, by options and text, that are precompiled for units that begin
        with them.

        Only what is in the cache or pays for itself. Units that cannot use the precompiled form
        read the header itself.
        """
        base = "\0".join((self.identity(), *self.command, *flags))
        counts = Counter((u.flags, u.head) for u in units if u.head)
        kept = {k: Unit(k[1], k[0]).key(base) + ".gch" for k in counts}
        names = {k: f"head{i}.h" for i, k in enumerate(counts)}
        found = {k for k, name in names.items() if _taken(kept[k], Path(folder, f"{name}.gch"))}
        used = [k for k, n in counts.items() if k in found or n >= _SHARED_BY]
        made = [k for k in used if k not in found]
        commands = []
        for k in used:
            Path(folder, names[k]).write_text(k[1], encoding="utf-8")
            commands += (
                [[*self.command, *flags, *k[0], "-x", "c-header", names[k]]] if k in made else []
            )
        outcomes = run_all(commands, folder, self.timeout, self._cancelled, stopped=self.stopped)
        for k, outcome in zip(made, outcomes, strict=True):
            if outcome.code == 0:
                object_cache.put(kept[k], Path(folder, f"{names[k]}.gch").read_bytes())
        return {k: names[k] for k in used}

    def _link(self, objects: Sequence[str], folder: str) -> bytes:
        command = linking(self.command, objects, "kernels.so")
        (outcome,) = run_all([command], folder, self.timeout, self._cancelled, stopped=self.stopped)
        self._check(outcome, "")
        return Path(folder, "kernels.so").read_bytes()

    def _check(self, outcome: CommandResult, text: str) -> None:
        if outcome.code == 0:
            return
        why = (
            f"no answer within {self.timeout:g} s"
            if outcome.code is None
            else first_errors(outcome.output)
        )
        where = f"The source was kept as {object_cache.keep_failed(text)}" if text else ""
        raise CompilerError(f"{self.command[0]} failed", who=self.key, why=why, do=where)


def _taken(name: str, place: Path) -> bool:
    """Whether that was in the cache; then it lies at the place."""
    content = object_cache.find(name)
    if content is not None:
        place.write_bytes(content)
    return content is not None


def find_compiler() -> tuple[str, ...]:
    """The words of the first C compiler found, or none."""
    named = os.environ.get("CC")
    if named:
        try:
            return tuple(shlex.split(named))
        except ValueError as e:
            raise ConfigError(
                f"CC is {named!r}", why=str(e), do="Write it as a shell would take it"
            ) from None
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return (path,)
    return (sys.executable, "-m", "ziglang", "cc") if _has_zig() else ()


def cross_compiler(arch: str, libc: str = "gnu") -> tuple[str, ...]:
    """The words of a C compiler for another architecture (``aarch64``, ``x86_64``) under Linux, or
    none.
    """
    path = shutil.which(f"{arch}-linux-gnu-gcc")
    if path:
        return (path,)
    return (
        (sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-{libc}")
        if _has_zig()
        else ()
    )


def _has_zig() -> bool:
    from importlib.util import find_spec

    return find_spec("ziglang") is not None


def version(command: tuple[str, ...]) -> str:
    """The first line that the compiler says of itself. Raises CompilerError if it cannot be run."""
    lines = told(command).splitlines()
    return lines[0] if lines else " ".join(command)


@functools.cache
def told(command: tuple[str, ...]) -> str:
    """What the compiler says of itself. Raises CompilerError if it cannot be run."""
    try:
        return subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as e:
        raise ToolchainError(
            f"the compiler {' '.join(command) or '(none)'} cannot be run", why=str(e), do="Check CC"
        ) from None


@functools.cache
def why_useless(command: tuple[str, ...]) -> str:
    """Why a compiler makes no library here, whatever the source; empty if it does, which is tried
    where the cache does not tell that it did before.
    """
    try:
        said = told(command)
    except ToolchainError as e:
        return str(e)
    name = hashlib.sha256("\0".join((said, *command, PROBE)).encode()).hexdigest() + ".probe"
    if object_cache.find(name) is not None:
        return ""
    with ScratchFolder() as folder:
        Path(folder, "probe.c").write_text(PROBE, encoding="utf-8")
        call = linking(command, ("-fPIC", "probe.c"), "probe.so")
        (outcome,) = run_all([call], folder, PATIENCE, threading.Event())
        if outcome.code == 0 and Path(folder, "probe.so").exists():
            object_cache.put(name, b"works")
            return ""
    late = f"no answer within {PATIENCE:g} s"
    why = late if outcome.code is None else first_errors(outcome.output)
    return f"the compiler {' '.join(command)} compiles nothing: {why}"


def linking(command: Sequence[str], given: Sequence[str], out: str) -> list[str]:
    """The call that makes a library of objects or sources."""
    of_platform = (
        () if sys.platform in ("darwin", "win32") else ("-Wl,--build-id=none", "-Wl,-z,noexecstack")
    )
    return [*command, *given, *LINK_FLAGS, *of_platform, "-o", out]


def translation_units(
    sources: Sequence[Source], count: int, between: str = "", beside: int = 0
) -> list[Unit]:
    """At most ``count`` units for each set of options, of about equal length of text; depends on
    the sources alone. ``between``: text between preludes and kernels. ``beside``: what else is
    compiled by whoever compiles the last unit of the first set, in characters.
    """
    by_flags: dict[tuple[str, ...], list[Source]] = {}
    for s in sources:
        by_flags.setdefault(s.flags, []).append(s)
    out: list[Unit] = []
    for flags, group in sorted(by_flags.items()):
        bins: list[list[Source]] = [[] for _ in range(min(count, len(group)))]
        loads = [0] * len(bins)
        loads[-1] = 0 if out else beside
        for s in sorted(group, key=lambda s: (-len(s.text), s.digest)):
            lightest = loads.index(min(loads))
            bins[lightest].append(s)
            loads[lightest] += len(s.text) + _UNIT_TEXT
        for b in filter(None, bins):
            head = unit_head(b)
            text = (head or "#include <stdint.h>\n") + between + unit_body(b)
            out.append(Unit(text, flags, head, tuple(s.digest for s in b)))
    return out


def unit_head(sources: Sequence[Source]) -> str:
    """Preludes in order of first use."""
    preludes = dict.fromkeys(p for s in sources for p in s.preludes)
    return "".join(f'#line 1 "prelude{i}.h"\n{p}\n' for i, p in enumerate(preludes))


def unit_body(sources: Sequence[Source]) -> str:
    """Each kernel between its own macros."""
    parts = []
    for s in sources:
        name = symbol(s)
        parts.append(
            f"#define TX_ENTRY {name}\n#define TX_NAME(x) {name}_##x\n"
            f'__attribute__((visibility("default"))) void {name}(const int64_t*, int, int);\n'
            f'#line 1 "{name}.c"\n{s.text}\n#undef TX_ENTRY\n#undef TX_NAME\n'
        )
    return "\n".join(parts)


@functools.cache
def executor_part(name: str) -> str:
    """A part of the executor's source: threads, executor or programs."""
    folder = resources.files("tactix_cpu.executor")
    return folder.joinpath(f"{name}.c").read_text(encoding="utf-8")


@functools.cache
def executor_text() -> str:
    """The source of the executor that is linked into every shared object."""
    return "\n".join(map(executor_part, ("threads", "executor", "programs")))


@functools.cache
def executor_digest() -> str:
    return hashlib.sha256(executor_text().encode()).hexdigest()
