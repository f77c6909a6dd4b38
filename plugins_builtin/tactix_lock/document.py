"""The file ``plan.lock``: JSON, described in docs/builds.md. Equal locks are equal files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tactix.base.errors import LockError, PlanFormatError
from tactix.base.files import EMPTY, read_regular, replacing
from tactix.plan.reader import Reader

VERSION = 1
SIZE_LIMIT = 256 << 20


@dataclass(frozen=True)
class LockedChoice:
    """Of one node of the fused network. ``id``: of the variant; ``digest``: of the artifact, kernel
    source included.

    ``seconds``: what was measured or estimated; ``precision``: the narrowest element type that it
    computes with, empty where nothing is computed.
    """

    tactic: str
    variant: str
    id: str
    digest: str
    seconds: float
    precision: str


@dataclass(frozen=True)
class Choices:
    """Of one network. ``wide``: nodes that keep their precision where a rule could lower it;
    ``bodies``: those of branches and loops, in the order of the steps. ``split``: groups that were
    fused in vain. ``sets``: for each profile the body that has its kernels, where there are
    several sets of them: ``nodes`` is empty then. ``outrun``: nodes that other forms took the
    place of.
    """

    nodes: Mapping[str, LockedChoice]
    wide: tuple[str, ...] = ()
    bodies: tuple[Choices, ...] = ()
    split: tuple[str, ...] = ()
    sets: tuple[int, ...] = ()
    outrun: tuple[str, ...] = ()

    def networks(self) -> Iterator[Choices]:
        """Itself, then its bodies with those inside them, in the order in which they are built."""
        yield self
        for body in self.bodies:
            yield from body.networks()


@dataclass(frozen=True)
class Lock:
    """``model``: ``name``, ``layers`` and ``digest``; ``weights``, ``calibration``: sha256 of
    constants by name, the latter of scales and zero points. ``options``: those of the build.
    ``device``: facts of the target. ``toolchain``: identities of compilers by key.
    ``distributions``: version and sha256 of the files, by name. ``made_with``: versions that are
    told where the plan comes out different, and not asked for. ``plan``: sha256 of the header of
    the plan that a frozen build gives.
    """

    tactix: str
    model: Mapping[str, Any]
    weights: Mapping[str, str]
    calibration: Mapping[str, str]
    options: Mapping[str, Any]
    device: Mapping[str, Any]
    toolchain: Mapping[str, str]
    distributions: Mapping[str, tuple[str, str]]
    made_with: Mapping[str, str]
    choices: Choices
    plan: str = ""

    def write(self, path: str | Path) -> None:
        """Readers see the old file or the whole new one. Raises OSError."""
        with replacing(path) as f:
            f.write(self.text().encode("ascii"))

    def text(self) -> str:
        """The file's content."""
        return (
            json.dumps({"lock": VERSION, **asdict(self)}, sort_keys=True, indent=1, allow_nan=False)
            + "\n"
        )


def read(path: str | Path) -> Lock:
    """The lock in a file. Raises LockError for one that is none, OSError."""
    if os.path.getsize(path) > SIZE_LIMIT:
        raise LockError(
            "not a lock file", who=str(path), why=f"it has more than {SIZE_LIMIT} bytes"
        )
    try:
        content = read_regular(Path(path))
        if not content:
            raise ValueError(EMPTY)
        return _lock(Reader(json.loads(content), "lock"))
    except (PlanFormatError, ValueError, RecursionError) as e:
        do = "Write it anew with `tactix lock`"
        raise LockError("not a lock file", who=str(path), why=str(e)[:200], do=do) from None


def _lock(r: Reader) -> Lock:
    version = r.at("lock").integer()
    if version != VERSION:
        raise PlanFormatError(f"version {version}, this tactix reads {VERSION}", who="lock")
    r.only("lock", *Lock.__dataclass_fields__)
    distributions = {k: v.row(2) for k, v in r.at("distributions").fields().items()}
    return Lock(
        r.at("tactix").text(),
        _model(r.at("model")),
        _texts(r.at("weights")),
        _texts(r.at("calibration")),
        r.at("options").mapping(),
        _device(r.at("device")),
        _texts(r.at("toolchain")),
        {k: (version.text(), digest.text()) for k, (version, digest) in distributions.items()},
        _texts(r.at("made_with")),
        _choices(r.at("choices")),
        r.at("plan").text(),
    )


def _model(r: Reader) -> dict[str, Any]:
    r.only("name", "layers", "digest")
    return {
        "name": r.at("name").text(),
        "layers": r.at("layers").integer(),
        "digest": r.at("digest").text(),
    }


def _device(r: Reader) -> dict[str, Any]:
    r.only("key", "kind", "name", "features", "vector_bits", "cores", "memory", "facts")
    texts = {f: r.at(f).text() for f in ("key", "kind", "name")}
    numbers = {f: r.at(f).integer() for f in ("vector_bits", "cores", "memory")}
    features = [f.text() for f in r.at("features").items()]
    return {**texts, **numbers, "features": features, "facts": r.at("facts").mapping()}


def _texts(r: Reader) -> dict[str, str]:
    return {k: v.text() for k, v in r.fields().items()}


def _choices(r: Reader) -> Choices:
    later = {"sets", "outrun"} - r.fields().keys()  # of which locks of earlier versions know none
    r.only(*Choices.__dataclass_fields__.keys() - later)
    nodes = {name: _choice(c) for name, c in r.at("nodes").fields().items()}
    wide, split = (tuple(x.text() for x in r.at(f).items()) for f in ("wide", "split"))
    bodies = tuple(map(_choices, r.at("bodies").items()))
    sets = () if "sets" in later else tuple(i.integer() for i in r.at("sets").items())
    outrun = () if "outrun" in later else tuple(x.text() for x in r.at("outrun").items())
    if sets and (nodes or [*dict.fromkeys(sets)] != [*range(len(bodies))]):
        r.at("sets").fail("the bodies in their order")
    return Choices(nodes, wide, bodies, split, sets, outrun)


def _choice(r: Reader) -> LockedChoice:
    r.only(*LockedChoice.__dataclass_fields__)
    texts = {f: r.at(f).text() for f in ("tactic", "variant", "id", "digest", "precision")}
    return LockedChoice(**texts, seconds=r.at("seconds").parse(float, "seconds"))
