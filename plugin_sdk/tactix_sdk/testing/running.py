"""Launchers: what they say of themselves, and that they refuse by a typed error what they cannot
run.
"""

from __future__ import annotations

from collections.abc import Iterator

from tactix.base.errors import ExecutionError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Launcher, LinkContext, Step
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import NotHere, check
from tactix_sdk.testing.subject import THREADS, Subject

RUNNABLE = ("bind", "rebind", "repeat", "__call__")


@check("launcher")
def launcher(subject: Subject) -> str:
    """Launchers say of which device they are, and refuse steps without anything in them by
    ExecutionError.
    """
    looks = (_declared, _links, _produces)
    return check_parts("launcher", subject, "launchers", subject.objects("launchers"), looks)


def _declared(subject: Subject, one: Launcher) -> Iterator[str]:
    """What it says of itself."""
    kinds = {d.kind for d in subject.session.devices.values()}
    if one.device not in kinds:
        yield f"there is no device of kind {one.device!r}, there are: {', '.join(sorted(kinds))}"
    if not isinstance(one.host_code, bool):
        yield f"its host_code is {one.host_code!r}: say whether it runs code out of plans"
    for name in ("link", "produce"):
        if not callable(getattr(one, name, None)):
            yield f"it has no {name}(): derive it from tactix_sdk.Launcher"
    if not _has(one, "link") and not _has(one, "produce"):
        yield "it has neither a link() nor a produce() of its own"


def _has(one: Launcher, name: str) -> bool:
    """Whether a method is not that of the base class."""
    return getattr(type(one), name, None) is not getattr(Launcher, name)


def _context(subject: Subject, one: Launcher) -> LinkContext:
    """Raises NotHere without its device."""
    found = [d for d in subject.session.devices.values() if d.kind == one.device]
    if not found or (why := found[0].available()):
        raise NotHere(why if found else f"no device of kind {one.device!r}")
    return LinkContext(
        found[0], THREADS, subject.session.layers.__getitem__, warn=lambda message: None
    )


def _empty(one: Launcher) -> Step:
    """A step as a damaged plan may have it: nothing is in it but the launcher's key."""
    return Step("a step with nothing in it", KernelArtifact(one.key), (), ())


def _links(subject: Subject, one: Launcher) -> Iterator[str]:
    """A step with nothing in it is linked."""
    context = _context(subject, one)
    if not _has(one, "link"):
        return
    try:
        made = one.link([_empty(one)], context)
    except Exception as e:
        yield from wrong_type(e, "link, of a step with nothing in it,", ExecutionError)
        return
    if lacking := [name for name in RUNNABLE if not callable(getattr(made, name, None))]:
        yield f"link gives a {type(made).__name__}, which has no {', '.join(lacking)}"


def _produces(subject: Subject, one: Launcher) -> Iterator[str]:
    """A step with nothing in it is run."""
    try:
        made: object = one.produce(_empty(one), {}, [], [], _context(subject, one))
    except Exception as e:
        yield from wrong_type(e, "produce, of a step with nothing in it,", ExecutionError)
        return
    if not isinstance(made, list):
        yield f"produce gives a {type(made).__name__}, not a list of outputs"
