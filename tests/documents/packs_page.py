"""The table and the drawing of floors and packs in docs/architecture.md, and three lines of each
pack's README.

They are made from the code: what a pack may import from the tables that tests/core/test_packs.py
and test_layering.py hold the sources to, what it provides from the hooks of what its entry points
name, how it is left out from pyproject.toml.

    python tests/documents/packs_page.py    # writes them anew
"""

from __future__ import annotations

import importlib
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tactix.plugins.hookspecs import HOOKS

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "shared"))  # which pytest has; the tables need it
ARCHITECTURE = ROOT / "docs" / "architecture.md"
COMMAND = "python tests/documents/packs_page.py"
ROOF = "tactix_tools"
EVERY = "every pack"


@dataclass(frozen=True)
class Pack:
    """A package of the SDK or a built-in pack.

    ``purpose``: the first sentence of its README. ``provides``: the kinds of its hooks. ``off``:
    the name by which it is left out, empty if it has no entry point. ``may_import``: empty for the
    roof, which may import every pack.
    """

    name: str
    folder: Path
    purpose: str
    provides: tuple[str, ...]
    off: str
    may_import: frozenset[str]

    @property
    def imports(self) -> str:
        names = sorted(self.may_import, key=lambda n: (n != "tactix", n))
        return ", ".join("the core" if n == "tactix" else f"`{n}`" for n in names) or EVERY


def may_import() -> Mapping[str, frozenset[str]]:
    """What packs may import, by pack; the roof is not in it."""
    return runpy.run_path(str(ROOT / "tests" / "core" / "test_packs.py"))["MAY_IMPORT"]


def floors() -> Mapping[str, frozenset[str]]:
    """What the floors of the core may import, by floor, themselves among it; the roof is not in it."""
    return runpy.run_path(str(ROOT / "tests" / "core" / "test_layering.py"))["MAY_IMPORT"]


def packs() -> list[Pack]:
    """Every package of the SDK and of the built-in packs, from the ground up."""
    table, ours = may_import(), _entry_points()
    found = [
        p.parent
        for root in ("plugin_sdk", "plugins_builtin")
        for p in (ROOT / root).glob("*/__init__.py")
    ]
    out = []
    for folder in found:
        name = folder.name
        target = ours.get(name, "")
        provides = _hooks(target) if target else ()
        off = name.removeprefix("tactix_") if target else ""
        below = table.get(name, frozenset())
        out.append(Pack(name, folder, _purpose(folder), provides, off, below))
    return sorted(out, key=lambda p: (p.name == ROOF, _height(p.name, table), p.name))


def table() -> str:
    """A row a pack: what it is for, what it provides, what it may import."""
    rows = [
        f"| {_link(p)} | {p.purpose} | {', '.join(p.provides) or '-'} | {p.imports} |"
        for p in packs()
    ]
    return "\n".join(
        ["| package | what it is for | hooks | may import |", "|---|---|---|---|", *rows]
    )


def drawing() -> str:
    """Floors and packs as a mermaid graph: arrows to what may be imported, but for those that
    others imply.
    """
    lines = ["```mermaid", "flowchart TB"]
    core = {
        "roof": frozenset(floors()),
        **{name: below - {name} for name, below in floors().items()},
    }
    lines += ['  subgraph core["core/tactix"]', *_indented(_arrows(core)), "  end"]
    table = may_import()
    ground = [p for p in packs() if p.folder.parent.name == "plugin_sdk"]
    lines += [
        "  subgraph plugin_sdk",
        *(f"    {p.name}" for p in ground),
        "  end",
        "  subgraph plugins_builtin",
    ]
    lines += [*(f"    {p.name}" for p in packs() if p not in ground), "  end"]
    house = {name: below - {"tactix"} for name, below in table.items()}
    lines += [*_arrows({**house, ROOF: frozenset(table)}), "  tactix_codegen --> core"]
    return "\n".join([*lines, "```"])


def readme_lines(pack: Pack) -> list[str]:
    """The lines of a pack's README that follow from the code."""
    absent = f"has no entry point: `TACTIX_DISABLE` has nothing to leave out of `{pack.name}`."
    left_out = f"by `TACTIX_DISABLE={pack.off}`." if pack.off else absent
    return [
        f"- **Provides:** {', '.join(pack.provides) or 'no hook'}.",
        f"- **May import:** {pack.imports}; `tests/core/test_packs.py` holds that.",
        f"- **Left out:** {left_out}",
    ]


def with_sections(text: str) -> str:
    """The architecture page with its written sections made anew."""
    for name, content in (("packs", table()), ("drawing", drawing())):
        begin, end = f"<!-- {name}: written by {COMMAND} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{content}\n{end}{rest.split(end)[1]}"
    return text


def with_lines(text: str, pack: Pack) -> str:
    """A pack's README with its written lines made anew; each replaces the one of its title."""
    for line in readme_lines(pack):
        title = re.escape(line[: line.index(":**") + 3])
        text, count = re.subn(rf"^{title}.*$", lambda _, new=line: new, text, flags=re.M)
        if count != 1:
            raise ValueError(f"{pack.folder.name}/README.md has {count} lines of the kind {line}")
    return text


def pages() -> Iterator[tuple[Path, str]]:
    """Every page that is made from the code, and what it should be."""
    yield ARCHITECTURE, with_sections(ARCHITECTURE.read_text())
    for pack in packs():
        readme = pack.folder / "README.md"
        yield readme, with_lines(readme.read_text(), pack)


def _link(pack: Pack) -> str:
    return f"[`{pack.name}`](../{pack.folder.relative_to(ROOT).as_posix()}/README.md)"


def _purpose(folder: Path) -> str:
    paragraph = (folder / "README.md").read_text().split("\n\n")[1]
    first = re.split(r"(?<=[.])\s", " ".join(paragraph.split()))[0]
    return re.sub(r" \(`docs/[^)]*\)", "", first).rstrip(".")


def _hooks(target: str) -> tuple[str, ...]:
    """The kinds of the hooks of an object, ``module:name``, in the order in which it got them."""
    module, _, name = target.partition(":")
    hooks = frozenset().union(*HOOKS.values())
    plugin = getattr(importlib.import_module(module), name)
    return tuple(hook.removeprefix("tactix_") for hook in vars(plugin) if hook in hooks)


def _entry_points() -> Mapping[str, str]:
    """What the entry points of packs name, by package; those of one package name one object."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    ours = [group for name, group in groups.items() if name.startswith("tactix.")]
    return {t.partition(".")[0]: t for group in ours for t in group.values()}


def _height(name: str, table: Mapping[str, frozenset[str]]) -> int:
    return 1 + max((_height(n, table) for n in table.get(name, ())), default=-1)


def _arrows(below: Mapping[str, frozenset[str]]) -> list[str]:
    """Who imports whom, but for what a longer way shows."""
    further = {n: frozenset().union(*(below.get(m, frozenset()) for m in below[n])) for n in below}
    return [f"  {n} --> {m}" for n in below for m in sorted(below[n] - further[n])]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
