"""NVRTC: kernel texts to cubins, one for each source, or to PTX for families of devices that no
cubin fits.

It needs no GPU, no headers and no other compiler.

A kernel's entry is ``TX_ENTRY`` (``k_`` and 16 digits of its digest); ``TX_NAME(x)`` is that name,
``_``, ``x``. Preludes stand in front. Cubins are cached by content in the folder of the C
compiler's objects; equal sources give equal bytes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from tactix.base.errors import BuildCancelled, CompilerError, ToolchainError
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import DeviceProperties
from tactix_codegen.compiler_process import ASKED
from tactix_codegen.compiling import first_errors, symbol
from tactix_codegen.cuda.target import architecture, is_portable
from tactix_trust import object_cache

FLAGS = ("-default-device", "--std=c++17")
INSTALL = "`pip install tactix[cuda]` installs it"


class NvrtcCompiler(Compiler):
    """``cancel()`` from another thread stops a running ``compile`` with BuildCancelled, as
    ``stopped`` does.

    So does Ctrl-C, with KeyboardInterrupt. NVRTC runs in this process and cannot be ended: the
    sources that it is at, one on each core, are compiled to their end, and no other.
    """

    key = "tactix.nvrtc@1"
    language = "cuda_c"
    launcher = "tactix.cuda.cubin@1"

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def available(self) -> str:
        return why_missing()

    def identity(self) -> str:
        return " ".join((version(), *FLAGS))

    def cancel(self) -> None:
        """Stop every compilation of this compiler, now and until ``resume``."""
        self._cancelled.set()

    def resume(self) -> None:
        """Allow compilations again."""
        self._cancelled.clear()

    def compile(self, sources: Sequence[Source], device: DeviceProperties) -> list[Binary]:
        """One Binary per source, each with a cubin of its own. Raises CompilerError,
        ToolchainError, BuildCancelled.
        """
        if reason := self.available():
            raise ToolchainError("kernels cannot be compiled", who=self.key, why=reason)
        for s in sources:
            if s.language != self.language:
                raise CompilerError(f"it takes {self.language}, not {s.language}", who=self.key)
        unique = {s.digest: s for s in sources}
        wanted = (
            architecture(device).replace("sm_", "compute_")
            if is_portable(device)
            else architecture(device)
        )
        flags = (f"--gpu-architecture={wanted}", *FLAGS)
        cubins = self._cubins(unique, flags)
        return [Binary(cubins[s.digest], symbol(s), s.text) for s in sources]

    def _cubins(self, sources: Mapping[str, Source], flags: Sequence[str]) -> dict[str, bytes]:
        workers = ThreadPoolExecutor(max(1, min(len(sources), os.cpu_count() or 1)))
        try:
            made = {digest: workers.submit(self._cubin, s, flags) for digest, s in sources.items()}
            waiting: Collection[Future[bytes]] = made.values()
            while waiting:
                done, waiting = wait(waiting, ASKED, FIRST_EXCEPTION)
                if self._cancelled.is_set() or self.stopped():
                    raise BuildCancelled("compiling was cancelled")
                for found in done:
                    found.result()  # raises what it met
            return {digest: found.result() for digest, found in made.items()}
        finally:
            workers.shutdown(cancel_futures=True)

    def _cubin(self, source: Source, flags: Sequence[str]) -> bytes:
        text, options = unit_text(source), (*flags, *source.flags)
        key = hashlib.sha256("\0".join((version(), *options, text)).encode()).hexdigest()
        made = object_cache.find(f"{key}.cubin")
        if made is None:
            made = compile_text(text, options, symbol(source))
            object_cache.put(f"{key}.cubin", made)
        return made


def unit_text(source: Source) -> str:
    """Preludes, then the kernel under its own names; compilers count its lines as the source has
    them.
    """
    name = symbol(source)
    preludes = [f'#line 1 "prelude{i}.cuh"\n{p}\n' for i, p in enumerate(source.preludes)]
    names = f"#define TX_ENTRY {name}\n#define TX_NAME(x) {name}_##x\n"
    return "".join((*preludes, names, f'#line 1 "{name}.cu"\n', source.text, "\n"))


def compile_text(text: str, options: Sequence[str], name: str) -> bytes:
    """The cubin of one translation unit, or PTX for a virtual architecture. Raises CompilerError,
    in NVRTC's words.
    """
    from cuda.bindings import nvrtc

    program = _checked(*nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if int(status):
            why, do = (
                first_errors(_log(program)),
                f"The source was kept as {object_cache.keep_failed(text, '.cu')}",
            )
            raise CompilerError(f"NVRTC failed with {options[0]}", who=name, why=why, do=do)
        kind = "PTX" if "compute_" in options[0] else "CUBIN"
        code = bytearray(_checked(*getattr(nvrtc, f"nvrtcGet{kind}Size")(program)))
        _checked(*getattr(nvrtc, f"nvrtcGet{kind}")(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(program: Any) -> str:
    from cuda.bindings import nvrtc

    log = bytearray(_checked(*nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(*nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace")


def _checked(status: Any, *out: Any) -> Any:
    if int(status):
        raise CompilerError("NVRTC failed", why=getattr(status, "name", str(status)))
    return out[0] if out else None


@functools.cache
def why_missing() -> str:
    """Empty if NVRTC can be called, else why not."""
    try:
        version()
    except ImportError as e:
        return f"cuda-python is not installed ({e}); {INSTALL}"
    except (RuntimeError, OSError) as e:  # what the binding raises without the library
        return f"NVRTC is not installed ({str(e).splitlines()[0]}); {INSTALL}"
    except CompilerError as e:
        return str(e)
    return ""


@functools.cache
def version() -> str:
    """``nvrtc 13.0``. Raises ImportError, RuntimeError, CompilerError."""
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    _checked(status)
    return f"nvrtc {major}.{minor}"
