"""Compilers: a binary for each source, the same ones in every process, and the compiler's own words
for what is none.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tactix.base.errors import BuildCancelled, CompilerError, ToolchainError
from tactix.contracts.artifact import Binary, Source
from tactix.contracts.compiler import Compiler
from tactix.contracts.device import Device, DeviceProperties
from tactix_sdk.testing import bids
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import NotHere, check, child
from tactix_sdk.testing.subject import Subject

TRIVIAL = {
    "c": "void TX_ENTRY(const int64_t* a, int tid, int nt) { (void)a; (void)tid; (void)nt; }\n",
    "cuda_c": 'extern "C" __global__ void TX_ENTRY(float* x) { x[threadIdx.x] = 0; }\n',
}
"""By language, a kernel that does next to nothing."""
FAULT = "\n)}] this is no program of any language [{(\n"
EXAMPLES = "give it ``examples``, a list of small sources"
AGAIN = """\
from tactix_sdk.testing import Subject, compiling
print(compiling.digest(Subject({dist!r}), {key!r}))
"""


@check("compiler")
def compiler(subject: Subject) -> str:
    """Compilers give a binary for each source, the same in every process, and CompilerErrors with
    the compiler's words.
    """
    looks = (_known, _compiles, _refuses, _stops, _again)
    return check_parts("compiler", subject, "compilers", subject.objects("compilers"), looks)


def digest(subject: Subject, key: str) -> str:
    """Of what a compiler makes of its examples, as JSON."""
    one = subject.session.compilers[key]
    made = one.compile(_sources(one), _target(subject, one))
    return json.dumps([[hashlib.sha256(b.blob).hexdigest(), b.symbol] for b in made])


def _known(subject: Subject, one: Compiler) -> Iterator[str]:
    """Whether it is here, and what runs its binaries."""
    if one.launcher not in subject.session.launchers:
        yield f"there is no launcher {one.launcher!r}, which is to run what it makes"
        return
    said = one.available()
    if not isinstance(said, str):
        yield f"available() gives {said!r}: give an empty text, or why not and what to install"
    if not _sources(one):
        yield f"it has no example: {EXAMPLES}"
    if said:
        raise NotHere(str(said))


def _sources(one: Compiler) -> list[Source]:
    """Its own examples, or one that every compiler of the language takes."""
    known = TRIVIAL.get(one.language)
    return list(getattr(one, "examples", ())) or ([Source(one.language, known)] if known else [])


def _followed_by(text: str, one: Compiler) -> list[Source]:
    """The first example with more text, which nothing has compiled yet."""
    return [replace(s, text=s.text + text) for s in _sources(one)[:1]]


def _device(subject: Subject, one: Compiler) -> Device:
    kind = subject.session.launchers[one.launcher].device
    return next(d for d in subject.session.devices.values() if d.kind == kind)


def _target(subject: Subject, one: Compiler) -> DeviceProperties:
    return bids.target_of(_device(subject, one))


def _compiles(subject: Subject, one: Compiler) -> Iterator[str]:
    """Its examples are compiled, the first of them twice in one call."""
    try:
        said = [one.identity() for _ in range(2)]
    except ToolchainError as e:
        raise NotHere(str(e)) from None
    if not isinstance(said[0], str) or not said[0] or said[0] != said[1]:
        yield f"identity() gives {said[0]!r}, then {said[1]!r}: give name, version and options"
    if sources := _sources(one):
        made = one.compile([*sources, *sources[:1]], _target(subject, one))
        yield from _wrong(sources, made)


def _wrong(sources: Sequence[Source], made: Sequence[Binary]) -> Iterator[str]:
    """What is wrong with the binaries of sources and the first of them again."""
    if len(made) != len(sources) + 1:
        yield f"{len(sources) + 1} sources give {len(made)} binaries"
        return
    if len({b.blob for b in made}) > 1:
        yield "the binaries of one call have several blobs"
    if not all(b.blob for b in made):
        yield "a binary is empty"
    if made[0].symbol != made[-1].symbol:
        yield f"the same source is called {made[0].symbol!r} and {made[-1].symbol!r}"
    if len({b.symbol for b in made}) != len({s.digest for s in sources}):
        yield "kernels of different sources have the same symbol"


def _refuses(subject: Subject, one: Compiler) -> Iterator[str]:
    """A source with a fault is compiled."""
    try:
        one.compile(_followed_by(FAULT, one), _target(subject, one))
    except CompilerError as e:
        if not e.why and not e.failed:
            yield (
                f"of a source with a fault it says {str(e)!r}: "
                "give the compiler's own words as ``why``"
            )
    except Exception as e:
        yield from wrong_type(e, "compile, of a source with a fault,", CompilerError)
    else:
        if one.language in TRIVIAL:  # others may take any text
            yield "it compiles a source with a fault"


def _stops(subject: Subject, one: Compiler) -> Iterator[str]:
    """A build that was stopped compiles."""
    one.stopped = lambda: True
    try:
        one.compile(_followed_by("\n", one), _target(subject, one))
    except Exception as e:
        yield from wrong_type(e, "compile, of a build that was stopped,", BuildCancelled)
    finally:
        vars(one).pop("stopped", None)


def _again(subject: Subject, one: Compiler) -> Iterator[str]:
    """Its examples are compiled in other processes, without what was kept of earlier ones."""
    code = AGAIN.format(dist=subject.dist, key=one.key)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        pairs = (("1", first), ("4242", second))
        made = [child(code, PYTHONHASHSEED=s, TACTIX_CACHE_DIR=folder) for s, folder in pairs]
    if made[0] != made[1]:
        yield "another process makes other binaries of the same sources"
