"""What holds before anything runs: imports, hooks, keys, order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tactix.base.errors import TactixError
from tactix.plugins.hookspecs import HOOKS
from tactix.plugins.loader import Found
from tactix.plugins.pack import MARK
from tactix.plugins.registry import KINDS, Clash
from tactix_sdk.testing.overriding import derived, forgotten, imported
from tactix_sdk.testing.report import Broken, check, child, counted, raised, together
from tactix_sdk.testing.subject import Subject, provided

HEAVY = (
    "numpy",
    "onnx",
    "torch",
    "triton",
    "numba",
    "cuda",
    "cupy",
    "jax",
    "scipy",
    "onnxruntime",
    "tensorrt",
)
PATIENCE = 1.0
"""Seconds that importing a pack may take: every process that looks for packs spends them."""
LIGHT = """
import contextlib, importlib, io, json, sys, time
import tactix_sdk
before, start, said = set(sys.modules), time.monotonic(), io.StringIO()
with contextlib.redirect_stdout(said):
    for name in {modules!r}:
        importlib.import_module(name)
seconds = time.monotonic() - start
heavy = sorted({{m.partition('.')[0] for m in set(sys.modules) - before}} & set({heavy!r}))
print(json.dumps([heavy, said.getvalue(), seconds]))
"""
COLLECT = """
import json
from tactix_sdk.testing.subject import Subject
subject = Subject({dist!r})
out = {{}}
for group in subject.groups:
    session = subject.fresh(group)
    for name in subject.provides(group):
        found = subject.entries(name, session)
        told = [[e.key, repr(getattr(e.object, "implements", ""))] for e in found]
        out[f"{{group}} {{name}}"] = told
print(json.dumps(out))
"""


@check("import-light")
def import_light(subject: Subject) -> str:
    """Importing the pack's plugin modules is quick, imports no heavy library and prints nothing."""
    code = LIGHT.format(modules=subject.modules, heavy=HEAVY)
    what = f"importing {', '.join(subject.modules)}"
    found, said, seconds = json.loads(child(code).splitlines()[-1])
    broken = list[str]()
    if found:
        broken.append(f"imports {', '.join(found)}: do that inside hooks and methods")
    if said:
        broken.append(
            f"prints {said[:80]!r}, which would stand in the output of `tactix ... --json`"
        )
    if seconds > PATIENCE:
        broken.append(f"takes {seconds:.1f} s: do that inside hooks and methods")
    together([Broken(f"{what} {b}", code) for b in broken])
    return f"{len(subject.modules)} modules"


@check("hooks")
def hooks(subject: Subject) -> str:
    """Every hook has a name that its entry-point group knows, and returns a list of objects with
    proper keys.
    """
    plugins = {f.module: f for f in subject.found}
    together([Broken(what) for f in plugins.values() for what in _unloadable(f)])
    broken = [what for f in plugins.values() for what in _misnamed(f.module, f.load())]
    broken = broken or list(_refused(subject))
    given = [_given(f) for f in subject.found]
    broken += [what for g in given for what in g.wrong]
    broken = broken or [str(c.error()) for c in _clashes(subject)]
    number = sum(g.right for g in given)
    if not number and not broken:
        broken = ["the pack provides nothing: no hook of its modules gave an object"]
    together([Broken(what) for what in dict.fromkeys(broken)])
    return f"{number} objects through {' and '.join(subject.groups)}"


def _unloadable(f: Found) -> Iterator[str]:
    """Why an entry point cannot be loaded."""
    try:
        f.load()
    except Exception as e:
        yield f"the entry point {f.name} = {f.module!r} cannot be loaded: {raised(e)}"


def _misnamed(module: str, plugin: object) -> Iterator[str]:
    """What is wrong with the names of a plugin's hooks."""
    known = {name for hooks in HOOKS.values() for name in hooks}
    for name, function in vars(plugin).items():
        if not name.startswith("tactix_") or not callable(function):
            continue
        marked = getattr(function, MARK, None) is not None
        if marked and name not in known:
            there = ", ".join(sorted(known))
            yield f"{module} has a hook {name!r}, which nothing calls; there are: {there}"
        if name in known and not marked:
            yield f"{module}: {name} is not marked with @hookimpl, so nothing calls it"


def _refused(subject: Subject) -> Iterator[str]:
    """Why a session does not take the pack's plugins, of each group."""
    for group in subject.groups:
        try:
            subject.fresh(group).found()
        except TactixError as e:
            yield raised(e)


@dataclass(frozen=True)
class HookResults:
    """What the hooks of an entry point gave: how many ``right`` objects, and what is ``wrong``."""

    right: int
    wrong: list[str]


def _given(f: Found) -> HookResults:
    """Every hook of the entry point's group is called, and every object looked at."""
    plugin, right, wrong = f.load(), 0, list[str]()
    for name in provided(plugin, f.group):
        try:
            objects = getattr(plugin, f"tactix_{name}")()
        except Exception as e:
            wrong.append(f"tactix_{name} of {f.module}: {raised(e)}")
            continue
        for one in [[o] for o in objects] if isinstance(objects, (list, tuple)) else [objects]:
            try:
                right += len(KINDS[name].entries(f.namespace, f.provider, one, f.part))
            except TactixError as e:
                wrong.append(f"tactix_{name} of {f.module}: {raised(e)}")
    return HookResults(right, wrong)


def _clashes(subject: Subject) -> Iterator[Clash]:
    """Keys of the pack that are provided twice."""
    for group in subject.groups:
        session = subject.fresh(group, strict=False)
        for name in subject.provides(group):
            clashes = getattr(session, name).clashes.values()
            yield from (c for c in clashes if any(map(subject.owns, c.entries)))


@check("overrides")
def overrides(subject: Subject) -> str:
    """No method of a class that derives from a contract is an override under a name that the
    contract does not have.
    """
    for group in subject.groups:
        session = subject.fresh(group)
        for name in subject.provides(group):
            subject.entries(name, session)
    benches = [device.bench for device in subject.objects("devices")]  # imported when asked for
    modules = imported(frozenset(m.partition(".")[0] for m in subject.modules))
    together([Broken(what) for what in forgotten(modules)])
    number = len({*derived(modules), *filter(None, benches)})
    return counted(number, "classes that derive from contracts")


@check("deterministic")
def deterministic(subject: Subject) -> str:
    """What is collected is the same in processes with different hash seeds."""
    code = COLLECT.format(dist=subject.dist)
    first, second = (
        json.loads(child(code, PYTHONHASHSEED=seed).splitlines()[-1]) for seed in ("1", "4242")
    )
    differ = [k for k in first if first[k] != second.get(k)]
    together(
        [
            Broken(f"{k} differs between two processes: {first[k]} and {second.get(k)}", code)
            for k in differ
        ]
    )
    return f"{len(first)} registries, twice"
