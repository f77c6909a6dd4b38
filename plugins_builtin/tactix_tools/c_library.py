"""``tactix export --c``: what is asked for as options, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tactix.base.errors import InvalidArgument
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.admission import code_steps, refusal, why_unsigned
from tactix.run.runtime import Runtime
from tactix_tools import options

F = TypeVar("F", bound=Callable[..., Any])
EMBEDDED, BESIDE = "embedded", "file"
OF_C = ("name", "weights", "shared", "static", "untrusted")
"""Keywords of the options below, which mean nothing without ``--c``."""


def c_options(function: F) -> F:
    """What says how the library is; ``write_library`` understands the keywords."""
    made = [
        click.option(
            "--c",
            "folder",
            type=click.Path(file_okay=False),
            metavar="OUT",
            help="A C library in the folder OUT: header, libraries, sources, weights.",
        ),
        click.option("--name", help="For --c: of the library; default: PLAN's."),
        click.option(
            "--weights",
            type=click.Choice([EMBEDDED, BESIDE]),
            help="For --c: in the library, the default, or in a file beside it, which is mapped.",
        ),
        click.option("--shared", is_flag=True, help="For --c: a shared library."),
        click.option("--static", is_flag=True, help="For --c: a static library; default: both."),
        options.untrusted_option,
    ]
    for option in reversed(made):
        function = option(function)
    return function


def write_library(file: str, session: Session, asked: dict[str, Any]) -> dict[str, Any]:
    """Facts of the library that was written, as JSON. Raises UntrustedPlan, and as ``export``
    does.
    """
    from tactix_ship.c_library.export import SHARED, STATIC, export
    from tactix_ship.c_library.names import library_name, name_from

    plan = _trusted(file, session, asked["untrusted"])
    wanted = asked["name"]
    name = library_name(wanted) if wanted else name_from(Path(file).stem)
    forms = [form for form in (SHARED, STATIC) if asked[form]] or (SHARED, STATIC)
    embedded = asked["weights"] != BESIDE
    made = export(plan, Path(asked["folder"]), name, forms=forms, embedded=embedded)
    sizes = {path.name: path.stat().st_size for path in made.libraries}
    listed = ", ".join(f"{library} ({n} bytes)" for library, n in sizes.items())
    return {
        "form": "c",
        "output": str(made.folder),
        "name": name,
        "libraries": sizes,
        "files": list(made.files),
        "weights": made.weights,
        "kernels": made.kernels,
        "compiler": made.compiler,
        "same_compiler": made.same_compiler,
        "told": f"{listed}, {made.kernels} kernels, {made.weights} bytes of weights",
    }


def refuse_options(asked: dict[str, Any]) -> None:
    """Raises InvalidArgument for options of a library where none is asked for."""
    if any(asked[key] for key in OF_C):
        what = "--name, --weights, --shared, --static and --untrusted are for a C library"
        raise InvalidArgument(what, do="Give --c OUT")


def _trusted(file: str, session: Session, untrusted: str | None) -> Plan:
    """The plan, whose code goes into the library, and runs in whatever has it."""
    plan = container.load(file)
    runtime = Runtime(session=session, on_untrusted=untrusted or "")
    if runtime.judge(plan).outcome != "runs":
        assert plan.seal is not None
        steps = code_steps(plan, session.launchers)
        raise refusal(plan, plan.seal, steps, why_unsigned(session))
    return plan
