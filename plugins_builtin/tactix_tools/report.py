"""``tactix report``: a plan as one HTML file to look at."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from tactix.base.errors import InvalidArgument, PlanFormatError, ShapeError
from tactix.base.files import replacing
from tactix.plan.container import load
from tactix.plugins.session import Session
from tactix_tools import options, show, source


@click.command("report")
@click.argument("plan", type=options.FILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The HTML file; default: PLAN's, with .html.",
)
@click.option("--profile", type=options.FILE, help="What `tactix profile --json` wrote.")
@click.option("--against", type=options.FILE, help="Another plan, to tell the differences.")
@click.option(
    "--shapes", type=options.SHAPES, multiple=True, help="Input shapes that memory is computed for."
)
@options.json_option
@click.pass_obj
def command(
    session: Session,
    /,
    plan: str,
    output: str | None,
    profile: str | None,
    against: str | None,
    shapes: Any,
    as_json: bool,
) -> None:
    """Write PLAN as one HTML file: its graph, times, memory, and what bid for each layer.

    The file needs no network and no other file. Nothing of the plan is run. With a profile, times
    are those of runs, with a roofline; without one, those of the build.
    """
    reads = (plan, profile, against)
    target = source.output(output or f"{os.path.splitext(plan)[0]}.html", reads=reads)
    text = _page(session, plan, options.merged(shapes), profile, against)
    with replacing(target) as f:
        f.write(text.encode())
    nbytes = target.stat().st_size
    if as_json:
        show.print_json({"plan": plan, "output": str(target), "bytes": nbytes})
    else:
        show.line(show.console(), f"{target}: {show.size(nbytes)}")


def _page(
    session: Session, file: str, shapes: options.Shapes, profile: str | None, against: str | None
) -> str:
    """HTML. Raises PlanFormatError, ShapeError, InvalidArgument."""
    from tactix_inspect.report.document import ReportSubject, document
    from tactix_inspect.report.html import page
    from tactix_tools.arrays import sizes
    from tactix_tools.explanation import explain

    times = _profile(profile) if profile else None
    plan = load(file)
    try:
        subject = ReportSubject(
            plan,
            os.path.basename(file),
            os.path.getsize(file),
            sizes(plan, shapes),
            explain(plan, session=session),
            _differences(file, against, shapes) if against else {},
            times,
        )
        return page(document(subject), plan.name or subject.file)
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        if isinstance(e, InvalidArgument):
            raise
        raise PlanFormatError("its notes cannot be shown", who=file, why=repr(e)[:200]) from e
    except ArithmeticError as e:
        raise ShapeError(
            "a size makes no sense at these shapes", who=file, why=str(e), do="Give others"
        ) from e


def _differences(file: str, against: str, shapes: options.Shapes) -> dict[str, Any]:
    """Where the files lie is not told."""
    from tactix_tools import plan_diff

    told = plan_diff.report(file, against, shapes)
    return told | {"files": [os.path.basename(f) for f in told["files"]]}


def _profile(file: str) -> Any:
    """Raises InvalidArgument for what is no profile."""
    from tactix_inspect.profile import PlanProfile

    try:
        with open(file, encoding="utf-8") as f:
            told = json.load(f)
    except ValueError as e:
        do = "Write it with `tactix profile PLAN -o FILE`"
        raise InvalidArgument("no JSON", who=file, why=str(e)[:200], do=do) from None
    return PlanProfile.from_json(told, file)
