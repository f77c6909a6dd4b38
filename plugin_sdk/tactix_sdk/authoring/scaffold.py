"""``tactix-sdk new``: a package with a layer, a rule or a tactic, which installs and passes
``tactix-sdk check``.
"""

from __future__ import annotations

import builtins
import importlib.util
import json
import keyword
import re
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from tactix.base.errors import ConfigError, InvalidArgument
from tactix.plugins.identity import normal
from tactix.plugins.names import check_namespace

TACTICS = {"c": "C", "cuda": "CUDA C++", "triton": "Triton", "numpy": "numpy"}
OWN_LAYER = ("c", "cuda", "numpy")
"""Kinds of tactics that are for the pack's layer, where it has one; others are for products."""

TAKEN = frozenset({*keyword.kwlist, *dir(builtins), "pack", "exp", "ceildiv"})
"""What a layer's function cannot be called: words of Python, and what the templates name beside
it.
"""


def create(
    name: str,
    folder: Path,
    *,
    layer: bool = False,
    rule: bool = False,
    tactic: str = "",
    namespace: str = "",
) -> Path:
    """Write the package ``name`` (as ``acme-swish``) into a new folder of that name in ``folder``,
    and give its path.

    ``namespace``: of its keys; by default the name with _ for -, as two packs cannot share one.
    Raises InvalidArgument, ConfigError, OSError.
    """
    facts = _facts(name, layer, rule, tactic, namespace)
    root = folder / name
    _check_free(name, facts["module"], root)
    if root.exists():
        raise InvalidArgument(
            f"{root} exists", do="Choose another name, or another folder with --path"
        )
    texts = {place: _render(template, facts) for template, place in _files(facts).items()}
    package = root / facts["module"]
    package.mkdir(parents=True)
    (root / "tests").mkdir()
    for place, text in texts.items():
        (root / place).write_text(text, encoding="utf-8")
    return root


def _facts(name: str, layer: bool, rule: bool, tactic: str, namespace: str) -> dict[str, Any]:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise InvalidArgument(
            f"no name for a package: {name!r}",
            do="Give words of a-z and 0-9 joined by -: acme-swish",
        )
    if tactic and tactic not in TACTICS:
        raise InvalidArgument(
            f"no kind of tactic {tactic!r}", do=f"There are: {', '.join(TACTICS)}"
        )
    if not (layer or rule or tactic):
        raise InvalidArgument(
            "the pack would be empty", do="Ask for some of --layer, --rule, --tactic KIND"
        )
    words = name.split("-")
    own = namespace or "_".join(words)
    check_namespace(own)
    if rule and layer and keyword.iskeyword(own):
        do = "Choose another with --namespace"
        raise InvalidArgument(
            f"no namespace: {own!r}", why="it is a word of Python, and the rule names it", do=do
        )
    last, for_own = words[-1], layer and tactic in OWN_LAYER
    word = last if last[0].isalpha() else f"op{last}"
    symbol = f"{word}_" if word in TAKEN else word
    title = word.capitalize()
    return {
        "dist": name,
        "module": "_".join(words),
        "namespace": own,
        "name": symbol,
        "title": f"{title}Op" if keyword.iskeyword(title) else title,
        "layer": layer,
        "rule": rule,
        "tactic": tactic,
        "language": TACTICS.get(tactic, ""),
        "rule_name": f"{word}_of_sigmoid" if layer else "relu_once",
        "own": for_own,
        "needs_enabling": rule or bool(tactic and not for_own),
        "tactic_name": f"{symbol if for_own else 'matmul'}_{tactic}",
        "parts": [
            part
            for part, wanted in (("layers", layer), ("rules", rule), ("tactics", tactic))
            if wanted
        ],
        "runtime": layer or tactic == "numpy",
    }


def _check_free(name: str, module: str, root: Path) -> None:
    """Raises InvalidArgument for a name that Python has, or what is installed, but for the pack
    that is installed from ``root``.
    """
    why = _holder(name, module, root)
    if why:
        raise InvalidArgument(
            f"no name for a package: {name!r}", why=why, do="Choose another: acme-swish"
        )


def _holder(name: str, module: str, root: Path) -> str:
    """Who has the names of a distribution and its module already, or nothing."""
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        return f"{module!r} is a word or module of Python itself"
    mine = _installed_from(name)
    if mine == root.resolve().as_uri():
        return ""
    owners = {normal(d) for d in metadata.packages_distributions().get(module, ())}
    if owners:
        return f"{module!r} is a module of {min(owners)}"
    if mine is not None:
        return f"a distribution of that name is installed{mine and f' from {mine}'}"
    spec = importlib.util.find_spec(module)
    return f"{module!r} is a module already: {spec.origin}" if spec and spec.origin else ""


def _installed_from(name: str) -> str | None:
    """The URL that an installed distribution was installed from, empty where it does not say; None
    for one that is not installed.
    """
    try:
        text = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    return str(json.loads(text)["url"]) if text else ""


def _files(facts: dict[str, Any]) -> dict[str, str]:
    """Templates, and where they go."""
    module = facts["module"]
    out = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        "test_pack.py": "tests/test_pack.py",
        "__init__.py": f"{module}/__init__.py",
    }
    own = [f"{part}.py" for part in facts["parts"] if part != "tactics"]
    out |= {name: f"{module}/{name}" for name in own}
    if facts["tactic"]:
        out[f"tactic_{facts['tactic']}.py"] = f"{module}/tactics.py"
    if facts["tactic"] == "triton":
        out["kernels.py"] = f"{module}/kernels.py"
    return out


def _render(template: str, facts: dict[str, Any]) -> str:
    """Raises ConfigError where jinja2 is not installed."""
    try:
        import jinja2
    except ImportError as e:
        raise ConfigError(
            "the templates need jinja2", why=str(e), do="pip install tactix-sdk"
        ) from e
    text = (
        resources.files("tactix_sdk.authoring")
        .joinpath("templates", f"{template}.j2")
        .read_text(encoding="utf-8")
    )
    environment = jinja2.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.from_string(text).render(facts).strip("\n") + "\n"
