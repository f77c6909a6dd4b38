"""Putting packs into plans at build time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import tactix
from tactix.base.errors import ConfigError, TactixError, punctuated
from tactix.plan.schema import Plan, Requirement
from tactix.plan.wheels import GROUP
from tactix.plugins.identity import normal
from tactix.plugins.names import OWN
from tactix_runtime.embedded_packs import carried
from tactix_sdk.pack_files import PackFiles, pack_of
from tactix_ship.lean.wheel import WHEEL, archive, record

AUTO = "auto"
"""Every pack that the plan needs."""


def embed(plan: Plan, wanted: Iterable[str | Path], session: Any) -> Plan:
    """The plan with the wheels of these packs in it, as far as running it needs them. Raises
    ConfigError.

    ``wanted``: files of wheels, names of installed distributions, or AUTO. Each is imported once
    from the plan, here and in the lean runtime, so that what it lacks is known now.
    """
    needed: dict[str, list[Requirement]] = {}
    for r in plan.requirements:
        if not r.key.startswith(f"{OWN}."):
            needed.setdefault(normal(r.dist), []).append(r)
    names = dict.fromkeys(name for w in wanted for name in (sorted(needed) if w == AUTO else [w]))
    if "" in names:
        why = "it was given in process, so no distribution has it"
        raise ConfigError(
            "a plugin cannot be embedded",
            who=needed[""][0].key,
            why=why,
            do="Install it as a package",
        )
    packs = [p for p in map(pack_of, names) if _is_needed(p, needed, session)]
    for p in packs:
        _check(p, needed[normal(p.dist)], packs)
    out = with_wheels(plan, {normal(p.dist): wheel_of(p) for p in packs}) if packs else plan
    _try(out, session)
    return out


def _is_needed(p: PackFiles, needed: Mapping[str, Any], session: Any) -> bool:
    if normal(p.dist) in needed:
        return True
    told = f"{p.title} is not embedded: running the plan needs nothing of it"
    session.logger.warning(f"{told}. Leave it out of what is to be embedded")
    return False


def _check(p: PackFiles, needed: list[Requirement], packs: list[PackFiles]) -> None:
    if p.version != needed[0].version:
        what = (
            f"version {p.version} cannot stand in for {needed[0].version}, "
            "which the plan was built with"
        )
        raise ConfigError(what, who=p.dist, do=f"pip install {p.dist}=={p.version}, then build")
    others = [other for other in packs if other is not p]
    p.check(other.dist for other in others)
    for other in others:
        if both := sorted(p.files.keys() & other.files.keys()):
            raise ConfigError(
                f"{p.title} and {other.title} cannot be embedded together",
                why=f"both have {both[0]}",
            )


def wheel_of(pack: PackFiles) -> bytes:
    """A wheel of a pack's code and its plugins of the runtime group; the same bytes for the same
    content.
    """
    info = f"{normal(pack.dist).replace('-', '_')}-{pack.version}.dist-info"
    rows = "".join(f"{namespace} = {target}\n" for namespace, target in pack.entry_points)
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {pack.dist}\nVersion: {pack.version}\n",
        "WHEEL": WHEEL.format(version=tactix.__version__),
        "entry_points.txt": f"[{GROUP}]\n{rows}",
    }
    files = {
        **dict(sorted(pack.files.items())),
        **{f"{info}/{n}": text.encode() for n, text in texts.items()},
    }
    return archive({**files, f"{info}/RECORD": record(files, f"{info}/RECORD").encode()})


def with_wheels(plan: Plan, wheels: Mapping[str, bytes]) -> Plan:
    """The plan that holds them. ``wheels``: by normal name of the distribution."""
    digests = {dist: sha256(wheel).hexdigest() for dist, wheel in wheels.items()}
    requirements = tuple(
        replace(r, digest=digests[normal(r.dist)], embedded=True, host_code=True)
        if normal(r.dist) in digests
        else r
        for r in plan.requirements
    )
    blobs = {**plan.blobs, **{digests[dist]: wheel for dist, wheel in wheels.items()}}
    return replace(plan, requirements=requirements, blobs=blobs)


def _try(plan: Plan, session: Any) -> None:
    """Raises ConfigError for what the packs in the plan do not give; warns where the lean runtime
    lacks something.
    """
    try:
        _look(plan, carried(plan, session))
    except TactixError as e:
        raise ConfigError("the packs in the plan cannot be imported from it", why=str(e)) from e
    try:
        _look(plan, _in_lean(plan))
    except TactixError as e:
        session.logger.warning(
            punctuated(
                (
                    f"the lean runtime cannot run the packs in the plan, tactix can: {e}",
                    "Run the plan where tactix is installed",
                )
            )
        )


def _look(plan: Plan, session: Any) -> None:
    for r in plan.requirements:
        if r.embedded and r.key not in session.launchers and r.key not in session.layers:
            why = f"its plugins of the group tactix.runtime.v1 give no {r.key}"
            raise ConfigError(
                "it is not what the plan was built with", who=f"{r.dist} {r.version}", why=why
            )


def _in_lean(plan: Plan) -> Any:
    """The session of this version's lean runtime with the plan's packs."""
    from tactix.contracts.flavour import TempfileControlFlag
    from tactix_runtime.lean_runtime import admit, unpack
    from tactix_ship.lean.wheel import wheel

    package = admit(unpack(wheel()), TempfileControlFlag.ALLOW_IN_MEMORY_FILES, None)
    module = importlib.import_module(f"{package.__name__}.plugins.session")
    return module.with_packs(plan, package.Session())
