"""The command line ``tactix-sdk``: start a pack, check one, make its wheel."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tactix.base.errors import TactixError
from tactix_sdk.authoring.scaffold import TACTICS, create

if TYPE_CHECKING:
    from tactix_sdk.testing import Outcome

MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "yellow"),
    "nothing to run": ("-", "yellow"),
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tactix", prog_name="tactix-sdk")
def group() -> None:
    """For authors of tactix packs."""


@group.command("new")
@click.argument("name")
@click.option(
    "--layer", is_flag=True, help="With a layer: an activation called as the last word of NAME."
)
@click.option("--rule", is_flag=True, help="With a rule that rewrites networks.")
@click.option(
    "--tactic",
    type=click.Choice(list(TACTICS)),
    default=None,
    help="With a kernel, in this: for the layer of --layer; "
    "without it, and in Triton, for products.",
)
@click.option("--namespace", default="", help="Of the pack's keys; default: NAME with _ for -.")
@click.option(
    "--path",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder to write to.",
)
def new(name: str, layer: bool, rule: bool, tactic: str | None, namespace: str, path: Path) -> None:
    """Write the package NAME (as acme-swish), which installs and passes every check. Default: a
    layer.
    """
    root = create(
        name,
        path,
        layer=layer or not (rule or tactic),
        rule=rule,
        tactic=tactic or "",
        namespace=namespace,
    )
    click.echo(f"{root} is ready. Next:\n\n  pip install -e {root}\n  tactix-sdk check {name}")


@group.command("check")
@click.argument("dist", required=False)
@click.option("--only", "-k", multiple=True, help="A check's name; again for more. Default: all.")
@click.option(
    "--scripts",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write failures' scripts to a folder.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--list", "listed", is_flag=True, help="Say what the checks are.")
def check(
    dist: str | None, only: Sequence[str], scripts: Path | None, as_json: bool, listed: bool
) -> int:
    """Check the installed pack DIST, or a part of one as tactix.cpu: every check by name, what it
    looked at, and how to see a failure alone.

    Exit status: 0 if some passed and none failed, 1 if one failed, 3 if nothing was checked: none
    passed, or none but those before anything runs, as what the pack is over is not here.
    """
    from tactix_sdk.testing import CHECKS, Subject, ordered, outcomes

    if listed:
        for one in map(CHECKS.__getitem__, ordered()):
            click.echo(f"{one.name:22} {one.about}")
        return 0
    if dist is None:
        raise click.UsageError("Missing argument 'DIST'.")
    subject = Subject(dist)
    subject.found  # noqa: B018  tells at once where there is no such pack
    rows = []
    for o in outcomes(subject, only):
        rows.append(o)
        if not as_json:
            _show(o, scripts)
    if as_json:
        click.echo(
            json.dumps(
                [
                    {"check": o.check.name, "state": o.state, "said": o.said, "script": o.script}
                    for o in rows
                ]
            )
        )
    else:
        click.echo(", ".join(f"{n} {state}" for state, n in _counts(rows).items()))
    return _status(rows)


def _counts(rows: Sequence[Outcome]) -> dict[str, int]:
    """How many checks came to each state, 0 for failed, too."""
    return {state: sum(o.state == state for o in rows) for state in MARKS}


def _status(rows: Sequence[Outcome]) -> int:
    from tactix_sdk.testing import tried

    if any(o.state == "failed" for o in rows):
        return 1
    return 0 if tried(rows) else 3


def _show(o: Outcome, scripts: Path | None) -> None:
    mark, colour = MARKS[o.state]
    said = o.said if o.state in ("passed", "failed") else f"{o.state}: {o.said}"
    click.echo(f"{click.style(mark, fg=colour)} {o.check.name:22} {said}")
    if not o.script:
        return
    if scripts is None:
        click.echo(
            "\n  To see it alone:\n\n"
            + "\n".join(f"    {line}" for line in o.script.splitlines())
            + "\n"
        )
        return
    scripts.mkdir(parents=True, exist_ok=True)
    path = scripts / f"{o.check.name}.py"
    path.write_text(o.script, encoding="utf-8")
    click.echo(f"  To see it alone: python {path}")


@group.command("pack")
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path()
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("dist"),
    help="Default: dist.",
)
def pack(folder: Path, out: Path) -> int:
    """Make the wheel of the package in FOLDER, and say whether plans can hold it, and what stands
    against it.

    Exit status: 0 if it can be embedded, 1 if not.
    """
    from tactix_sdk.packing import make, why_not

    wheel = make(folder, out)
    click.echo(f"{wheel}: {wheel.stat().st_size:,} bytes")
    if reason := why_not(wheel):
        click.echo(f"not embeddable: {reason}")
        return 1
    click.echo(f"embeddable: tactix build MODEL --embed {wheel}")
    return 0


def main(argv: Sequence[str] | None = None) -> Any:
    """Run one command; returns the exit status."""
    try:
        result = group.main(
            list(argv) if argv is not None else None, prog_name="tactix-sdk", standalone_mode=False
        )
        return result if isinstance(result, int) else 0
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except click.Abort:
        return 130
    except TactixError as e:
        click.echo(f"{type(e).__name__}: {e}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
