"""Tools: subcommands that say what they do, are made when they are used, and refuse what they do
not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tactix.contracts.tool import Tool
from tactix_sdk.testing.looking import check_parts
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject
from tactix_sdk.testing.watching import Watch

if TYPE_CHECKING:
    import click

NONE = "--no-such-option-of-any-tool"


@check("tool")
def tool(subject: Subject) -> str:
    """Tools have a line of help, a click command with --help throughout, and refuse options that
    they have not.
    """
    looks = (_worded, _answers)
    return check_parts("tool", subject, "tools", subject.objects("tools"), looks)


def _worded(subject: Subject, one: Tool) -> Iterator[str]:
    """What `tactix --help` shows of it."""
    if not one.help.strip() or "\n" in one.help.strip():
        yield f"its help is {one.help!r}: say in one line what it does"


def _answers(subject: Subject, one: Tool) -> Iterator[str]:
    """It is made, and asked for help."""
    import click

    with Watch() as watch:
        made = one.command()
    yield from (f"making its command {what}" for what in watch.seen)
    if not isinstance(made, click.Command):
        yield f"its command() gives a {type(made).__name__}, not a click command"
        return
    for words, command in _commands(made, ()):
        called = " ".join([one.key, *words])
        yield from (f"`{called} {what}" for what in _helps(subject, made, command, words))


def _commands(
    command: click.Command, words: Sequence[str]
) -> Iterator[tuple[Sequence[str], click.Command]]:
    """A command and all below it, each with the words that lead to it."""
    import click

    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _commands(below, (*words, name))


def _helps(
    subject: Subject, root: click.Command, command: click.Command, words: Sequence[str]
) -> Iterator[str]:
    """Whether a command says what it does, and refuses an option that it has not.

    ``words`` lead to it from the tool's own command, the ``root``, as the user's do.
    """
    from click.testing import CliRunner

    if not (command.help or "").strip():
        yield "--help` does not say what it does: give it a docstring"
    lenient = command.context_settings.get("ignore_unknown_options")
    for option, code in (("--help", 0), *(() if lenient else ((NONE, 2),))):
        with Watch() as watch:
            done = CliRunner().invoke(root, [*words, option], obj=subject.session)
        if done.exit_code != code:
            why = f" ({type(done.exception).__name__}: {done.exception})" if done.exception else ""
            yield f"{option}` exits with {done.exit_code}{why}, not {code}"
        yield from (f"{option}` {what}" for what in watch.seen)
