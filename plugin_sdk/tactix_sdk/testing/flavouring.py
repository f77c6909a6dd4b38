"""Flavours: engines that give what the default flavour's give, and no plan that may not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tactix import BuilderFlag, Runtime
from tactix.base.errors import PlanCompatibilityError, TactixError, UntrustedPlan
from tactix.contracts.flavour import DEFAULT, Flavour
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_sdk.testing import small_plan
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject

CUTS = 24
"""Plans that are cut off, one after the other."""


@check("flavour")
def flavour(subject: Subject) -> str:
    """Flavours make engines that give the default flavour's answers, and refuse what is damaged or
    not trusted.
    """
    looks = (_runs, _loads, _refuses_damage, _refuses_strangers, _references)
    return check_parts("flavour", subject, "flavours", subject.objects("flavours"), looks)


def _runtime(subject: Subject, key: str, on_untrusted: str = "allow") -> Runtime:
    session = subject.fresh("runtime")
    return Runtime(session=session, flavour=key, max_threads=1, on_untrusted=on_untrusted)


def _plans(subject: Subject) -> Iterator[Plan]:
    """One for this version, and one that brings its runtime, where there is what makes that."""
    session = subject.session
    yield small_plan.plan(session)
    served = {name for s in session.active_build_stages() for name in s.serves}
    if BuilderFlag.VERSION_COMPATIBLE.value in served:
        yield small_plan.plan(session, flags={BuilderFlag.VERSION_COMPATIBLE})


def _taken(subject: Subject, one: Flavour[Any]) -> Plan | None:
    """The first plan that a flavour opens; None if it opens none. Raises what it raises."""
    for plan in _plans(subject):
        try:
            _runtime(subject, one.key).deserialize(container.dump(plan))
        except PlanCompatibilityError:
            continue
        return plan
    return None


def _runs(subject: Subject, one: Flavour[Any]) -> Iterator[str]:
    """A plan's bytes are opened, twice."""
    plan = _taken(subject, one)
    if plan is None:
        yield "it opens no plan that is built here"
        return
    content = container.dump(plan)
    want = small_plan.answers(_runtime(subject, DEFAULT).deserialize(content))
    engines = [_runtime(subject, one.key).deserialize(content) for _ in range(2)]
    for engine in engines:
        got = small_plan.answers(engine)
        differ = [name for name in want if got.get(name) != want[name]]
        if differ:
            yield f"its engine gives other answers than the default flavour's: {', '.join(differ)}"


def _loads(subject: Subject, one: Flavour[Any]) -> Iterator[str]:
    """A plan that was made in this process is loaded."""
    plan = next(_plans(subject))
    try:
        engine = _runtime(subject, one.key).load(plan)
    except Exception as e:
        yield from wrong_type(e, "load")
        return
    if small_plan.answers(engine) != small_plan.answers(_runtime(subject, DEFAULT).load(plan)):
        yield "an engine that it loads gives other answers than the default flavour's"


def _refuses_damage(subject: Subject, one: Flavour[Any]) -> Iterator[str]:
    """Plans that are cut off are opened."""
    content = container.dump(next(_plans(subject)))
    runtime, known = _runtime(subject, one.key), set[type[Exception]]()
    for at in sorted({i * len(content) // CUTS for i in range(CUTS)}):
        try:
            runtime.deserialize(content[:at])
        except TactixError:
            continue
        except Exception as e:
            found = list(wrong_type(e, f"open, of a plan cut off after {at} bytes,"))
            yield from found if type(e) not in known else ()
            known.add(type(e))
        else:
            yield f"it opens a plan that is cut off after {at} of {len(content)} bytes"


def _refuses_strangers(subject: Subject, one: Flavour[Any]) -> Iterator[str]:
    """Plans with code that nobody signed are opened, and are to be refused."""
    for plan in _plans(subject):
        if not _brings_code(subject, plan):
            continue
        try:
            engine = _runtime(subject, one.key, "refuse").deserialize(container.dump(plan))
            small_plan.answers(engine)
        except (UntrustedPlan, PlanCompatibilityError):
            continue
        except Exception as e:
            yield from wrong_type(e, "open, of a plan that is not trusted,", UntrustedPlan)
        else:
            yield "it runs the code of a plan that nobody signed, though on_untrusted is 'refuse'"
            return


def _brings_code(subject: Subject, plan: Plan) -> bool:
    """Whether the default flavour does not run it where nobody vouches for it."""
    try:
        _runtime(subject, DEFAULT, "refuse").deserialize(container.dump(plan))
    except UntrustedPlan:
        return True
    return False


def _references(subject: Subject, one: Flavour[Any]) -> Iterator[str]:
    """It is asked for a plan without its code, and whether it hands a plan over."""
    plan = next(_plans(subject))
    try:
        made: object = one.on_references(plan, plan.steps)
    except Exception as e:
        yield from wrong_type(e, "on_references", PlanCompatibilityError)
    else:
        if not isinstance(made, Plan):
            yield f"on_references gives a {type(made).__name__}, not a plan"
    said = one.hands_over(_runtime(subject, one.key), container.dump(plan))
    if not isinstance(said, bool):
        yield f"hands_over gives {said!r}, not True or False"
