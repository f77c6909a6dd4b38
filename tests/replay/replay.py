#!/usr/bin/env python3
"""Shows that moving code changes no kernel: digests of everything that tactix makes of a list of
networks.

    python tests/replay/replay.py record before.json --texts before.texts.gz
    # move code
    python tests/replay/replay.py compare before.json --texts before.texts.gz

For each network, device (three processors and two GPUs, which are stated: none need be here) and
precision there are digests of the fused network, of every variant that any tactic offers for any of
its nodes (estimate, launches, packed constants, source text), of who does not bid and why, and of
the plan that estimates choose. Nothing is compiled, run or timed. --texts keeps the texts, too.

``compare`` makes them again as far as FILE has them, or takes them from a second file. It tells
what changed, by tactic and node, with the texts of FILE also how, and exits with 1 if anything did.
Keys and paths of modules are no part of digests: keys are compared by themselves.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import functools
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).parent))

import replay_threads  # noqa: F401  # before numpy
from replay_networks import QUICK, missing, networks
from replay_record import SEPARATOR, SHARED, Key, Record
from replay_targets import TARGETS, session
from replay_texts import digest

VERSION = 1
SHOWN = 20
"""Changes that are told one by one, if not said otherwise."""

Digests = dict[str, str]
Identifiers = dict[str, dict[str, int]]


@dataclass
class Sheet:
    """A record: what was recorded (``scope``), a digest by the text of each key, how often each
    identifier occurs.
    """

    scope: dict[str, Any]
    digests: Digests = field(default_factory=dict)
    identifiers: Identifiers = field(default_factory=dict)

    def add(self, made: Made) -> None:
        self.digests.update(made.digests)
        for kind, counts in made.identifiers.items():
            mine = self.identifiers.setdefault(kind, {})
            for key, count in counts.items():
                mine[key] = mine.get(key, 0) + count

    def write(self, path: Path) -> None:
        body = {
            "replay": VERSION,
            "scope": self.scope,
            "identifiers": self.identifiers,
            "digests": self.digests,
        }
        path.write_text(json.dumps(body, sort_keys=True, indent=0) + "\n")

    @classmethod
    def read(cls, path: Path) -> Sheet:
        """Ends the program for a file that is none."""
        try:
            body = json.loads(path.read_text())
        except (OSError, ValueError) as e:
            sys.exit(f"{path}: no record: {e}")
        if not isinstance(body, dict) or body.get("replay") != VERSION:
            sys.exit(f"{path}: no record of version {VERSION}; record it again")
        return cls(body["scope"], body["digests"], body["identifiers"])


@dataclass
class Texts:
    """Each text once, by its digest, in the order in which they came: neighbours are alike, and
    pack well.
    """

    out: IO[str]
    _known: set[str] = field(default_factory=set)

    def add(self, name: str, text: str) -> None:
        if name not in self._known:
            self._known.add(name)
            self.out.write(json.dumps([name, text]) + "\n")


def stored(path: Path, wanted: set[str]) -> dict[str, str]:
    """Texts of a file by their digests."""
    with gzip.open(path, "rt", encoding="utf-8") as f:
        return {name: text for name, text in map(json.loads, f) if name in wanted}


# -- making --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One network by name, of ``networks(models, suite)``.

    ``known``: digests that are known, of whose texts none is wanted; None: no text is.
    """

    name: str
    models: Path | None
    suite: bool
    known: Digests | None


@dataclass
class Made:
    """What there is of a network; ``texts``: by key."""

    name: str
    digests: Digests = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    identifiers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float = 0.0


the_session = functools.cache(session)


def replayed(task: Task) -> Made:
    """Raises what a defect raises: errors that a build may tell are texts."""
    start = time.monotonic()
    made = Made(task.name)

    def sink(key: Key, text: str) -> None:
        place, name = str(key), digest(text)
        if made.digests.setdefault(place, name) != name:
            raise RuntimeError(f"two texts of {place}")
        if task.known is not None and task.known.get(place) != name:
            made.texts[place] = text

    found = Record(the_session(), sink)
    found.network(
        next(n for n in networks(task.models, task.suite) if n.name == task.name), TARGETS
    )
    made.identifiers, made.seconds = found.identifiers, time.monotonic() - start
    return made


def names_of(scope: Mapping[str, Any], models: Path | None) -> list[str]:
    """Names of the networks that are meant and there; the others are told on stderr."""
    for name in missing(models) if not scope["quick"] else ():
        print(
            f"left out: exported/{name}: --models or TACTIX_MODELS names no folder with it",
            file=sys.stderr,
        )
    names = [
        n.name for n in networks(models, scope["suite"]) if n.name in QUICK or not scope["quick"]
    ]
    return [n for n in names if fnmatch.fnmatch(n, scope["only"])]


def results(tasks: Sequence[Task], a: argparse.Namespace) -> Iterator[Made]:
    """In the order of the tasks, by several processes if asked."""
    with ProcessPoolExecutor(a.jobs, get_context("spawn")) if a.jobs > 1 else nullcontext() as pool:
        for made in (pool.map if pool else map)(replayed, tasks):
            if a.verbose:
                print(
                    f"{made.name}: {len(made.digests)} texts, {made.seconds:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
            yield made


def record(a: argparse.Namespace) -> int:
    sheet = Sheet({"quick": a.quick, "only": a.only, "suite": a.suite})
    names = names_of(sheet.scope, a.models)
    with (
        gzip.open(a.texts, "wt", compresslevel=5, encoding="utf-8")
        if a.texts
        else nullcontext() as out
    ):
        texts = Texts(out) if out else None
        for made in results([Task(n, a.models, a.suite, {} if texts else None) for n in names], a):
            sheet.add(made)
            for key, text in made.texts.items() if texts else ():
                texts.add(made.digests[key], text)
    sheet.write(a.file)
    print(f"{len(sheet.digests)} texts of {len(names)} networks: {a.file}")
    return 0


# -- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """``changed``: keys of another text; ``moved``: from and to, of one text; ``gone``, ``come``:
    the rest.
    """

    changed: Sequence[str]
    moved: Sequence[tuple[str, str]]
    gone: Sequence[str]
    come: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.changed or self.moved or self.gone or self.come)


def difference(old: Digests, new: Digests) -> Difference:
    """A tactic, variant or node of another name, but with the same text, has moved.

    Preludes count by the texts that name them: others may have left with networks that are not
    compared.
    """
    old, new = _unshared(old), _unshared(new)
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    places: dict[tuple[str, str], list[str]] = {}
    for key in come:
        places.setdefault((_build(key), new[key]), []).append(key)
    moved = [(key, places[at].pop(0)) for key in gone if places.get(at := (_build(key), old[key]))]
    left, right = {a for a, _ in moved}, {b for _, b in moved}
    return Difference(
        sorted(k for k in old.keys() & new.keys() if old[k] != new[k]),
        moved,
        [k for k in gone if k not in left],
        [k for k in come if k not in right],
    )


def _unshared(digests: Digests) -> Digests:
    return {k: v for k, v in digests.items() if not k.startswith(SHARED.network + SEPARATOR)}


def _build(key: str) -> str:
    """Network, target and precision of a key."""
    return SEPARATOR.join(key.split(SEPARATOR)[:3])


def compare(a: argparse.Namespace) -> int:
    old = Sheet.read(a.file)
    new, after = _other(a, old) if a.other else _now(a, old)
    found = difference(old.digests, new.digests)
    _tell(found, old, new, a.show)
    shown = found.changed[: a.show]
    before = stored(a.texts, {old.digests[k] for k in shown}) if a.texts and shown else {}
    for key in shown:
        if old.digests[key] in before and new.digests[key] in after:
            print("\n".join(_diff(key, before[old.digests[key]], after[new.digests[key]])))
    return 1 if found else 0


def _other(a: argparse.Namespace, old: Sheet) -> tuple[Sheet, dict[str, str]]:
    """A second record, and its texts that the first has not, by digests. Ends the program for other
    networks.
    """
    new = Sheet.read(a.other)
    if new.scope != old.scope:
        sys.exit(f"{a.file} and {a.other} are of other networks: {old.scope}, {new.scope}")
    fresh = set(new.digests.values()) - set(old.digests.values())
    return new, stored(a.other_texts, fresh) if a.other_texts else {}


def _now(a: argparse.Namespace, old: Sheet) -> tuple[Sheet, dict[str, str]]:
    """What is made now of the networks of a record, and texts that it had not, by digests.

    Networks that are not here any more are left out of the record, too, and told.
    """
    had: dict[str, Digests] = {}
    for key, name in old.digests.items():
        had.setdefault(key.split(SEPARATOR)[0], {})[key] = name
    shared = had.pop(SHARED.network, {})
    names = names_of(old.scope, a.models)
    if left_out := sorted(had.keys() - set(names)):
        print(f"not compared: {', '.join(left_out)}")
        old.digests = {
            k: v for k, v in old.digests.items() if k.split(SEPARATOR)[0] not in left_out
        }
    new, texts = Sheet(old.scope), dict[str, str]()
    for made in results(
        [Task(n, a.models, old.scope["suite"], had.get(n, {}) | shared) for n in names], a
    ):
        new.add(made)
        texts.update((made.digests[k], text) for k, text in made.texts.items())
    return new, texts


def _diff(key: str, before: str, after: str) -> Iterator[str]:
    yield from difflib.unified_diff(
        before.split("\n"), after.split("\n"), f"{key} (before)", f"{key} (now)", "", "", 2, ""
    )


def _tell(found: Difference, old: Sheet, new: Sheet, show: int) -> None:
    for kind in sorted(old.identifiers.keys() | new.identifiers.keys()):
        left, right = old.identifiers.get(kind, {}), new.identifiers.get(kind, {})
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                print(f"{kind} {key}: {left.get(key, 0)} -> {right.get(key, 0)}")
    same = len(old.digests.keys() & new.digests.keys()) - len(found.changed)
    print(
        f"{same} texts are the same, {len(found.changed)} changed, {len(found.moved)} have another name, "
        f"{len(found.gone)} are gone, {len(found.come)} are new"
    )
    for title, keys in (("changed", found.changed), ("gone", found.gone), ("new", found.come)):
        for tactic, count in Counter(_subject(k) for k in keys).most_common():
            print(f"{title}: {tactic}: {count}")
        for key in keys[:show]:
            print(f"  {title}: {key}")
    for before, after in found.moved[:show]:
        print(f"  renamed: {before} -> {after}")


def _subject(key: str) -> str:
    """What a key is of, for counting: a tactic, or a plan, a network."""
    parts = key.split(SEPARATOR)
    return parts[4] if len(parts) > 4 else parts[-1].split(" ")[-1]


# -- the command ---------------------------------------------------------------------------------


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(
        "replay.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = p.add_subparsers(required=True, metavar="record|compare")
    models = os.environ.get("TACTIX_MODELS")
    for name, run in (("record", record), ("compare", compare)):
        c = commands.add_parser(name, help=f"{name} digests")
        c.set_defaults(run=run, other=None)
        c.add_argument("file", type=Path, metavar="FILE", help="the record (JSON)")
        c.add_argument(
            "--models",
            type=Path,
            default=Path(models) if models else None,
            metavar="DIR",
            help="folder of the exported models; TACTIX_MODELS if not given; left out without",
        )
        c.add_argument(
            "--texts",
            type=Path,
            metavar="FILE",
            help="the texts of the record FILE (gzip), for diffs",
        )
        c.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
        c.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="tell each network, with its time, on stderr",
        )
        if name == "record":
            c.add_argument("--quick", action="store_true", help="a few small networks")
            c.add_argument(
                "--suite", action="store_true", help="onnx's own cases of single nodes, too"
            )
            c.add_argument(
                "--only", default="*", metavar="PATTERN", help="networks by name, as in file names"
            )
        else:
            c.add_argument(
                "other", type=Path, nargs="?", metavar="OTHER", help="a record to compare with"
            )
            c.add_argument("--other-texts", type=Path, metavar="FILE", help="the texts of OTHER")
            c.add_argument(
                "--show", type=int, default=SHOWN, metavar="N", help="changes told one by one"
            )
    return p.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    a = parsed(arguments)
    result: int = a.run(a)
    return result


if __name__ == "__main__":
    sys.exit(main())
