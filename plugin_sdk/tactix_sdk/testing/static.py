"""What holds before anything runs: imports, hooks, keys, order."""

from __future__ import annotations

import json

from tactix.plugins.hookspecs import HOOKS
from tactix_sdk.testing.report import Broken, check, child
from tactix_sdk.testing.subject import Subject

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
    for name in session.kinds:
        registry = getattr(session, name)
        out[f"{{group}} {{name}}"] = [[e.key, repr(getattr(e.object, "implements", ""))] for e in registry.entries()]
    out[group] = session.digest
print(json.dumps(out))
"""


@check("import-light")
def import_light(subject: Subject) -> str:
    """Importing the pack's plugin modules is quick, imports no heavy library and prints nothing."""
    code = LIGHT.format(modules=subject.modules, heavy=HEAVY)
    what = f"importing {', '.join(subject.modules)}"
    found, said, seconds = json.loads(child(code).splitlines()[-1])
    if found:
        raise Broken(f"{what} imports {', '.join(found)}: do that inside hooks and methods", code)
    if said:
        raise Broken(
            f"{what} prints {said[:80]!r}, which would stand in the output of `tactix ... --json`",
            code,
        )
    if seconds > PATIENCE:
        raise Broken(f"{what} takes {seconds:.1f} s: do that inside hooks and methods", code)
    return f"{len(subject.modules)} modules"


@check("hooks")
def hooks(subject: Subject) -> str:
    """Every hook has a name that its entry-point group knows, and returns a list of objects with
    proper keys.
    """
    import importlib

    for f in subject.found:
        module = importlib.import_module(f.module)
        named = [
            n for n in vars(module) if n.startswith("tactix_") and callable(getattr(module, n))
        ]
        marked = [n for n in named if getattr(getattr(module, n), "tactix_impl", None) is not None]
        known = {name for hooks in HOOKS.values() for name in hooks}
        if wrong := [n for n in marked if n not in known]:
            there = ", ".join(sorted(known))
            raise Broken(
                f"{f.module} has a hook {wrong[0]!r}, which nothing calls; there are: {there}"
            )
        if bare := [n for n in named if n in known and n not in marked]:
            raise Broken(f"{f.module}: {bare[0]} is not marked with @hookimpl, so nothing calls it")
    counted = sum(
        len(subject.entries(name, s))
        for s in map(subject.fresh, subject.groups)
        for name in s.kinds
    )
    if not counted:
        raise Broken("the pack provides nothing: no hook of its modules gave an object")
    return f"{counted} objects through {' and '.join(subject.groups)}"


@check("deterministic")
def deterministic(subject: Subject) -> str:
    """What is collected is the same in processes with different hash seeds."""
    code = COLLECT.format(dist=subject.dist)
    first, second = (
        json.loads(child(code, PYTHONHASHSEED=seed).splitlines()[-1]) for seed in ("1", "4242")
    )
    differ = [k for k in first if first[k] != second.get(k)]
    if differ:
        raise Broken(
            f"{differ[0]} differs between two processes: {first[differ[0]]} and {second[differ[0]]}",
            code,
        )
    return f"{len(first)} registries, twice"
