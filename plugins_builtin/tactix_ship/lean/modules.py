"""Which modules the lean runtime is made of: what its entry imports, directly or not, and where
each goes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tactix.base.errors import InternalError
from tactix_ops.layers import FAMILIES

PACKS = (
    "codegen",
    "cpu",
    "cublaslt",
    "cuda",
    "cudnn",
    "ops",
    "refit",
    "runtime",
    "sdk",
    "ship",
    "trust",
)
PLACES: dict[str, tuple[str, ...]] = {"tactix": (), **{f"tactix_{name}": (name,) for name in PACKS}}
"""Where in the lean package the modules of each of ours lie."""

ENTRY = "tactix_ship.lean.entry"
"""Becomes the package itself."""

ROOTS = (ENTRY, *(f"tactix_ops.layers.{family}" for family in FAMILIES))

VOCABULARIES = tuple(f"tactix_sdk.{name}" for name in ("artifacts", "errors", "rules", "scalar"))
"""With all that ``tactix_sdk`` has, what packs in plans may import: one module of theirs often
serves both groups.
"""

SDK = "tactix_sdk"

STANDS_FOR = {
    "tactix": ENTRY,
    "tactix.plugins.session": "tactix_ship.lean.session",
    SDK: "tactix_ship.lean.sdk",
}
"""Modules whose place another takes."""

LEFT_OUT = (
    "tactix.plugins.hookspecs", "tactix_cuda.build_bench", "tactix_cudnn.compiler",
    "tactix_cuda.nvrtc", "tactix_cuda.weight_update", "tactix_cuda.weight_windows",
    "tactix_cpu.levels", "tactix_runtime.default", "tactix_runtime.dispatch",
    "tactix_ship.flavour", "tactix_isolate", "tactix_sdk.evaluate", "tactix_sdk.kernel_text",
)  # fmt: skip
"""What only building needs, and other flavours; imported inside functions that no plan gets to."""


def within(module: str, packages: tuple[str, ...]) -> bool:
    """Whether the module is one of those, or in one."""
    return any(module == p or module.startswith(f"{p}.") for p in packages)


@functools.cache
def source_of(module: str) -> Path | None:
    """The file of one of our modules; None if it is none."""
    if module.partition(".")[0] not in PLACES:
        return None
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # the parent is no package
        return None
    return Path(spec.origin) if spec and spec.origin else None


def source_folder(package: str) -> Path:
    """Where the modules of one of our packages lie. Raises InternalError."""
    found = source_of(package)
    if found is None:
        raise InternalError(f"no module {package}")
    return found.parent


def is_package(module: str) -> bool:
    """Whether its file is an ``__init__``."""
    found = source_of(module)
    return found is not None and found.name == "__init__.py"


def source(module: str) -> str:
    """The text of the module, or of the one that takes its place. Raises InternalError."""
    text = _read(STANDS_FOR.get(module, module))
    if module != SDK:
        return text
    homes = {name: ".".join(parts_of(home)) for name, home in _offered().items()}
    return f"{text}\n_HOMES.update({homes!r})\n"


def _read(module: str) -> str:
    path = source_of(module)
    if path is None:
        raise InternalError(f"no module {module}")
    return path.read_text(encoding="utf-8")


def _offered() -> dict[str, str]:
    """The names that the SDK has, and the module that each is from."""
    lines = [n for n in ast.parse(_read(SDK)).body if isinstance(n, ast.ImportFrom) and n.module]
    return {
        a.name: str(n.module) for n in lines if not within(str(n.module), LEFT_OUT) for a in n.names
    }


def imported(tree: ast.AST) -> Iterator[str]:
    """Our modules that running it may import, in functions, too."""
    for node in _run(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        yield from (n for n in names if source_of(n))


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of code, but for what type checkers alone look at."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


def closure() -> dict[str, str]:
    """The source of every module of the lean runtime, sorted by name. Raises InternalError."""
    found: dict[str, str] = {}
    todo = ["tactix", *ROOTS[1:], *VOCABULARIES, *_offered().values()]
    while todo:
        module = todo.pop()
        if module in found or within(module, LEFT_OUT) or module == ENTRY:
            continue
        found[module] = source(module)
        tree = ast.parse(found[module])
        _check_left_out(module, tree)
        todo += [module.rpartition(".")[0] or module, *imported(tree)]
    return dict(sorted(found.items()))


def _check_left_out(module: str, tree: ast.Module) -> None:
    for node in tree.body:
        if wrong := sorted(
            n
            for n in (imported(node) if isinstance(node, ast.Import | ast.ImportFrom) else ())
            if within(n, LEFT_OUT)
        ):
            raise InternalError(
                f"the lean runtime has no {wrong[0]}", who=module, do="Import it inside a function"
            )


def place(module: str) -> str:
    """Its file in the lean package: ``base/dims.py``."""
    parts = parts_of(module)
    return "/".join([*parts, "__init__.py"]) if is_package(module) else "/".join(parts) + ".py"


def parts_of(module: str) -> list[str]:
    """Its name inside the lean package, part by part."""
    top, *rest = module.split(".")
    return [*PLACES[top], *rest]
