"""Build stages: what a flag or an option brings into a build leaves the network as it is, and gives
a plan that runs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from tactix import BuilderConfig, BuilderFlag, Calibration, Runtime
from tactix.base.errors import TactixError
from tactix.config import STAGED
from tactix.contracts.build_stage import BuildPart, BuildStage
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix_sdk.show import show
from tactix_sdk.testing import small_plan
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject

Stage = BuildStage[Any, Any, Any, Any]
OPTIONS: dict[str, Any] = {"frozen": "no-such-file.lock", "plugins_to_serialize": ["no-such-pack"]}
"""Options that stages serve, with values that they have to refuse."""
BESIDE = {BuilderFlag.STRIP_PLAN: BuilderFlag.REFIT}
"""Flags that mean something only with another one."""
OF_STATES = {BuilderFlag.RESERVE_STATES}
"""Flags that ask for a state that grows, and refuse networks without one."""
CALIBRATION = Calibration(ranges={"x": (-4.0, 4.0)})
"""Of the small network, for flags that ask for one."""
ROUNDED = {BuilderFlag.INT8, BuilderFlag.FP8}
"""Flags that ask for a calibration, and whose plans give other answers, as they round."""


@check("build-stage")
def build_stage(subject: Subject) -> str:
    """Stages serve flags or options that there are, leave network and stage alone, and their plans
    are the same twice.
    """
    looks = (_serves, _joins, _builds, _refuses)
    return check_parts(
        "build-stage", subject, "build stages", subject.objects("build_stages"), looks
    )


class _First:
    """A session in which one stage serves what it says before any other that does so, too."""

    def __init__(self, session: Session, stage: Stage) -> None:
        self._session, self._stage = session, stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def active_build_stages(self) -> list[Stage]:
        others = (s for s in self._session.active_build_stages() if s is not self._stage)
        return [self._stage, *others]


def _flags(one: Stage) -> list[BuilderFlag]:
    return [f for f in BuilderFlag if f in STAGED and f.value in one.serves]


def _serves(subject: Subject, one: Stage) -> Iterator[str]:
    """What it says of itself."""
    known = {f.value for f in STAGED} | set(OPTIONS)
    if not isinstance(one.serves, frozenset) or not one.serves:
        yield f"it serves {one.serves!r}: give a frozenset of {', '.join(sorted(known))}"
    elif unknown := sorted(map(str, one.serves - known)):
        there = ", ".join(sorted(known))
        yield f"it serves {', '.join(unknown)}, which nothing asks for; there are: {there}"
    if not isinstance(one.depth, int):
        yield f"its depth is {one.depth!r}, no integer"


def _joins(subject: Subject, one: Stage) -> Iterator[str]:
    """It joins two builds, and is the same after that."""
    before = dict(getattr(one, "__dict__", {}))
    for flag in _flags(one):
        config = BuilderConfig(flags=_with(flag))
        made = [one.join(subject.session, config) for _ in range(2)]
        if not isinstance(made[0], BuildPart):
            yield f"join gives a {type(made[0]).__name__}, no BuildPart"
    if dict(getattr(one, "__dict__", {})) != before:
        yield "joining a build changes the stage, which all builds share: keep that in the part"


def _with(flag: BuilderFlag) -> set[BuilderFlag]:
    return {flag, *([BESIDE[flag]] if flag in BESIDE else [])}


def _builds(subject: Subject, one: Stage) -> Iterator[str]:
    """Builds with each of its flags."""
    session: Any = _First(subject.session, one)
    for flag in _flags(one):
        looks = (_plain, _growing)[flag in OF_STATES]
        yield from (f"with {flag.name} {what}" for what in looks(subject, session, flag))


def _plain(subject: Subject, session: Any, flag: BuilderFlag) -> Iterator[str]:
    """Builds of a network of products, whose plans are run, too."""
    content = yield from _twice(session, small_plan.network(session), flag)
    if content is not None:
        yield from _wrong(subject, flag, content)


def _growing(subject: Subject, session: Any, flag: BuilderFlag) -> Iterator[str]:
    """Builds of a network with a state that grows."""
    yield from _twice(session, small_plan.growing(session), flag)


def _twice(
    session: Any, network: NetworkDefinition, flag: BuilderFlag
) -> Generator[str, None, bytes | None]:
    """Gives the plan's bytes; None where that changes the network."""
    before = show(network)
    first = _made(session, network, flag)
    if show(network) != before:
        yield "a build changes the caller's network"
        return None
    if _made(session, network, flag) != first:
        yield "two builds give plans of other bytes"
    return first


def _made(session: Any, network: Any, flag: BuilderFlag) -> bytes:
    """The bytes of a plan by estimates alone, so that it hangs on no clock."""
    from tactix import Builder

    config = BuilderConfig(
        flags=_with(flag),
        calibration=CALIBRATION if flag in ROUNDED else None,
        timing_cache=False,
        builder_optimization_level=0,
        sign=False,
    )
    return container.dump(Builder(session=session).build_plan(network, config))


def _wrong(subject: Subject, flag: BuilderFlag, content: bytes) -> Iterator[str]:
    """What is wrong with a plan."""
    plan = container.load(content)
    if not isinstance(plan, Plan) or flag is BuilderFlag.STRIP_PLAN:  # that one has no weights
        return
    plain = small_plan.plan(subject.session)
    runtime = Runtime(session=subject.fresh("runtime"), max_threads=1, on_untrusted="allow")
    got, want = (small_plan.answers(runtime.load(p)) for p in (plan, plain))
    if got.keys() != want.keys() or (got != want and flag not in ROUNDED):
        yield "the plan gives other answers than without"


def _refuses(subject: Subject, one: Stage) -> Iterator[str]:
    """Builds with a value of its option that is none."""
    session: Any = _First(subject.session, one)
    for name in sorted(one.serves & set(OPTIONS)):
        try:
            small_plan.plan(session, **{name: OPTIONS[name]})
        except Exception as e:
            yield from wrong_type(e, f"a build with {name}={OPTIONS[name]!r}", TactixError, OSError)
        else:
            yield f"a build with {name}={OPTIONS[name]!r} does not refuse that"
