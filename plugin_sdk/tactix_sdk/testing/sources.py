"""Importers and converters: what is claimed, and that no file, however damaged, ends in anything
but a network or a typed error.
"""

from __future__ import annotations

import inspect
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tactix import Builder
from tactix.base.errors import TactixError
from tactix.contracts.importer import Converter, Importer
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_sdk.show import show
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject
from tactix_sdk.testing.watching import Watch

LARGE = 64 << 20
"""Bytes of a source that is no model: claiming it needs none of them but the first."""
READ = 4 << 20
"""Bytes of memory that claiming may take."""
CUTS, CHANGES = 24, 96
"""Damaged files of each example: cut off, and with a byte that is another one."""
EXAMPLES = "give it ``examples``, a list of small models: (file name, bytes), or objects"


@check("importer")
def importer(subject: Subject) -> str:
    """Importers claim nothing but by looking, read their examples, and refuse damaged ones by
    ModelImportError.
    """
    looks = (_claims, _reads, _refuses)
    return check_parts("importer", subject, "importers", subject.objects("importers"), looks)


@check("converter")
def converter(subject: Subject) -> str:
    """Converters can be called, and are of a format that an importer in use reads."""
    return check_parts(
        "converter", subject, "converters", subject.objects("converters"), (_called,)
    )


def _called(subject: Subject, one: Converter) -> Iterator[str]:
    """It can be called by an importer."""
    formats = {i.format for i in subject.session.importers.values()}
    if one.format not in formats:
        yield f"no importer reads {one.format!r}, there are: {', '.join(sorted(formats))}"
    if not callable(one.convert):
        yield f"its convert is {one.convert!r}, which cannot be called"
    elif not _takes(one.convert, 2):
        yield f"its convert takes {inspect.signature(one.convert)}; it is called with (ctx, node)"


def _takes(function: Callable[..., object], given: int) -> bool:
    """Whether a function can be called with so many arguments; one that tells nothing can."""
    try:
        inspect.signature(function).bind(*range(given))
    except TypeError:
        return False
    except ValueError:  # of C
        return True
    return True


def _claims(subject: Subject, one: Importer) -> Iterator[str]:
    """What is no model is asked about."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in _junk(Path(folder)).items():
            yield from _claimed(one, name, source)
        for name, source in _large(Path(folder)).items():
            tracemalloc.start()
            yield from _claimed(one, name, source)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if most > READ:
                yield (
                    f"claims({name}) takes {most >> 20} MiB of memory: "
                    "look at the first bytes alone"
                )


def _junk(folder: Path) -> dict[str, Any]:
    """What any caller may hand over, by a name."""
    (folder / "nothing").write_bytes(b"")
    (folder / "text.txt").write_text("no model\n")
    (folder / "folder").mkdir()
    return {
        "None": None,
        "3": 3,
        "object()": object(),
        "[]": [],
        "''": "",
        "b''": b"",
        "b'\\0'": b"\0",
        "bytearray": bytearray(b"\x08"),
        "memoryview": memoryview(b"\xff" * 9),
        "bytes": bytes(range(256)),
        "'a\\0b'": "a\0b",
        "a name of 5000 letters": "x" * 5000,
        "a surrogate": "\udcff",
        "no file": folder / "none",
        "an empty file": folder / "nothing",
        "a text": str(folder / "text.txt"),
        "a folder": folder / "folder",
    }


def _large(folder: Path) -> dict[str, Any]:
    with open(folder / "large", "wb") as f:
        f.truncate(LARGE)
    return {"64 MiB": bytes(LARGE), "a file of 64 MiB": folder / "large"}


def _claimed(one: Importer, name: str, source: Any) -> Iterator[str]:
    with Watch() as watch:
        try:
            said: object = one.claims(source)
        except Exception as e:
            said = e
    if isinstance(said, Exception):
        yield f"claims({name}) raises {type(said).__name__}: {str(said)[:200]}"
    elif not isinstance(said, bool):
        yield f"claims({name}) gives {said!r:.80}, not True or False"
    yield from (f"claims({name}) {what}" for what in watch.seen)


@dataclass(frozen=True)
class ExampleModel:
    """An example of an importer: a ``source`` that it reads, in a ``folder`` of its own."""

    name: str
    source: Any
    folder: Path

    def content(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in sorted(self.folder.iterdir())}


def _models(one: Importer, folder: Path) -> Iterator[ExampleModel]:
    """Its examples; files are written into the folder."""
    for i, example in enumerate(one.examples):
        own = folder / str(i)
        own.mkdir()
        if isinstance(example, tuple):
            name, content = example
            (own / name).write_bytes(content)
            yield ExampleModel(name, own / name, own)
        else:
            yield ExampleModel(type(example).__name__, example, own)


def _reads(subject: Subject, one: Importer) -> Iterator[str]:
    """Its examples become networks."""
    if not len(one.examples):
        yield f"it has no example: {EXAMPLES}"
    with tempfile.TemporaryDirectory() as folder:
        for model in _models(one, Path(folder)):
            yield from (f"{model.name}: {what}" for what in _read(subject, one, model))


def _read(subject: Subject, one: Importer, model: ExampleModel) -> Iterator[str]:
    before = model.content()
    if one.claims(model.source) is not True:
        yield "it does not claim that"
    first, second = (_loaded(subject, one, model.source) for _ in range(2))
    if not first.outputs:
        yield "its network has no output"
    if show(first) != show(second):
        yield f"it becomes\n{show(first)}\nand the second time\n{show(second)}"
    verify(first, deep=True)
    if model.content() != before:
        yield "reading it changes what is in its folder"
    files = getattr(one, "files", None)
    lacking = [str(p) for p in (files(model.source) if files else ()) if not Path(p).is_file()]
    if lacking:
        yield f"files() names {', '.join(lacking)}, which are not there"


def _loaded(subject: Subject, one: Importer, source: Any) -> NetworkDefinition:
    """Raises what the importer does."""
    net = Builder(session=subject.session).create_network("example")
    one.load(source, net, subject.session.active_converters())
    return net


def _refuses(subject: Subject, one: Importer) -> Iterator[str]:
    """Damaged examples are read, or refused by a typed error."""
    with tempfile.TemporaryDirectory() as folder:
        for model in _models(one, Path(folder)):
            if isinstance(model.source, Path):
                yield from _damaged(subject, one, model)


def _damaged(subject: Subject, one: Importer, model: ExampleModel) -> Iterator[str]:
    """Each kind of untyped error once."""
    known = set[type[Exception]]()
    for about, content in _damages(model.source.read_bytes()).items():
        model.source.write_bytes(content)
        try:
            verify(_loaded(subject, one, model.source))
        except TactixError:
            continue
        except Exception as e:
            found = list(wrong_type(e, f"load, of {model.name} {about},"))
            yield from found if type(e) not in known else ()
            known.add(type(e))


def _damages(content: bytes) -> Mapping[str, bytes]:
    """Damaged contents by what was done."""
    rng = random.Random(len(content))
    cuts = {i * len(content) // CUTS for i in range(CUTS)}
    out = {f"cut off after {n} bytes": content[:n] for n in sorted(cuts)}
    for _ in range(CHANGES if content else 0):
        at, value = rng.randrange(len(content)), rng.randrange(256)
        out[f"with byte {at} = {value}"] = content[:at] + bytes([value]) + content[at + 1 :]
    return out
