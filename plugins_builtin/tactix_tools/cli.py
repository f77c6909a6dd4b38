"""The command line ``tactix TOOL ...``: finds the tools, which are plugins, prints errors, gives
exit codes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base import errors
from tactix.base.logger import INDENTED, printable
from tactix.base.spelling import did_you_mean
from tactix.plugins.registry import MissingKey
from tactix_tools import tools

if TYPE_CHECKING:
    import click

    from tactix.plugins.session import Session

OK, OTHER, USAGE, MODEL, BUILD, PLAN, MISMATCH, INTERRUPTED, TERMINATED = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    130,
    143,
)


class Terminated(BaseException):
    """SIGTERM. No SystemExit: what guards the building process against packs takes that for the
    pack's own.
    """


EXIT_CODES: tuple[tuple[int, str, tuple[type[BaseException], ...]], ...] = (
    (OK, "it worked", ()),
    (INTERRUPTED, "stopped by Ctrl-C", (KeyboardInterrupt, errors.BuildCancelled)),
    (MODEL, "the model cannot be imported", (errors.ModelImportError, errors.NetworkError)),
    (
        PLAN,
        "the plan is damaged, not trusted, or cannot run here",
        (errors.PlanFormatError, errors.PlanCompatibilityError, errors.UntrustedPlan),
    ),
    (
        BUILD,
        "no plan can be built",
        (errors.NoTacticError, errors.CompilerError, errors.TimingCacheError, errors.LockError),
    ),
    (
        MISMATCH,
        "results differ, or running failed",
        (
            errors.AccuracyError,
            errors.DeadlineExceeded,
            errors.EngineClosed,
            errors.ExecutionError,
            errors.QueueFull,
            MemoryError,
        ),
    ),
    (
        USAGE,
        "wrong arguments, shapes or settings",
        (errors.InvalidArgument, errors.ConfigError, MissingKey),
    ),
    (TERMINATED, "stopped by SIGTERM", (Terminated,)),
    (OTHER, "any other error", (Exception,)),
)


def exit_code(error: BaseException) -> int:
    """The exit code that stands for an error: the first row of EXIT_CODES that names its class."""
    return next(code for code, _, classes in EXIT_CODES if isinstance(error, classes))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one tool; returns the exit code and raises nothing but SystemExit."""
    _leave_cycles()
    try:
        with _heeding_sigterm():
            return _run(argv)
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:  # while tactix is imported, or an error is told
        return INTERRUPTED


@functools.cache
def _leave_cycles() -> None:
    """When Python ends it searches all that is left for cycles, twice, which took 0.1 s of 1.5 s of
    the processor behind a build; they go with the process anyhow.
    """
    atexit.register(gc.freeze)


@contextlib.contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """SIGTERM raises Terminated meanwhile, so that processes are ended and folders removed on the
    way, as by Ctrl-C.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if (
        not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):  # an application's own stays
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _run(argv: Sequence[str] | None) -> int:
    import click

    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    try:
        result = _group().main(args, prog_name="tactix", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else OK
    except click.ClickException as e:
        e.show()
        if "--json" in args:
            _print_json({"type": type(e).__name__, "what": e.format_message()}, e.exit_code)
        return e.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OTHER
    except (Exception, KeyboardInterrupt) as e:
        stop = isinstance(e, click.Abort)
        return _report(
            KeyboardInterrupt() if stop else e, as_json="--json" in args, debug=debug and not stop
        )


def _group() -> click.Group:
    """The command group; it looks for plugins when it is asked for a tool, not before."""
    import click

    import tactix

    session = functools.cache(_session)

    class Tools(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted(session().tools)

        def get_command(self, ctx: click.Context, name: str) -> Any:
            known = session().tools
            ctx.obj = session()
            if name not in known and (meant := [k for k in known if k.endswith(f".{name}")]):
                ctx.fail(
                    f"No such command {name!r}. A pack's tool has its name in front: "
                    f"{' or '.join(meant)}"
                )
            if name not in known and (asked := did_you_mean(name, known)):
                ctx.fail(f"No such command {name!r}. {asked}")
            if name not in known and not any(t.key in known for t in tools()):
                why = ". ".join(filter(None, session().why_missing("tactix", "tactix_tools")))
                if why:
                    ctx.fail(f"No such command {name!r}: {why}")
            return _made(session(), name) if name in known else None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Tools"):
                formatter.write_dl([(key, t.help) for key, t in sorted(session().tools.items())])

        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Exit codes"):
                formatter.write_dl(
                    [(str(code), meaning) for code, meaning in sorted(r[:2] for r in EXIT_CODES)]
                )

    about = "Build, run and inspect plans of trained models. `tactix TOOL --help` tells more."
    made = Tools("tactix", help=about, context_settings={"help_option_names": ["-h", "--help"]})
    made.params.append(
        click.Option(
            ["--debug"], is_flag=True, expose_value=False, help="Show tracebacks of errors."
        )
    )
    return click.version_option(tactix.__version__, message="tactix %(version)s")(made)


def _made(session: Session, name: str) -> click.Command:
    """The command that a tool gives. Raises PluginError, with its pack, for what is none."""
    import click

    made = session.tools[name].command()
    if not isinstance(made, click.Command):
        raise errors.PluginError(
            f"the tool gave a {type(made).__name__}, not a click command",
            who=f"tool {name!r} of {session.tools.entry(name).source}",
            do="Give what @click.command() makes of a function",
        )
    return made


def _session() -> Session:
    from tactix.plugins.session import Session

    return Session(group="build")


def _report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print one message to stderr, with ``--json`` also a document to stdout; the exit code."""
    from rich.console import Console

    code = exit_code(error)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if debug:
        console.print_exception()
    console.print("[bold red]error:[/]", end=" ")
    console.print(_text(error), markup=False)
    if as_json:
        _print_json(_fields(error), code)
    return code


def _print_json(error: dict[str, str], code: int) -> None:
    print(json.dumps({"error": error, "exit_code": code}))


def _text(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    notes = "".join(f"\n  {printable(n, INDENTED)}" for n in getattr(error, "__notes__", ()))
    told = printable(str(error), INDENTED)
    if isinstance(error, errors.TactixError):
        return f"{told}{notes}"
    fault = not isinstance(error, (OSError, MemoryError))
    hint = "\n  This is a fault of tactix or of a plugin; --debug shows where." if fault else ""
    return f"{type(error).__name__}: {told}{notes}{hint}"


def _fields(error: BaseException) -> dict[str, str]:
    """The parts of an error as JSON."""
    parts = {
        k: str(getattr(error, k)) for k in ("what", "who", "why", "do") if getattr(error, k, "")
    }
    return {"type": type(error).__name__, **(parts or {"what": str(error)})}
