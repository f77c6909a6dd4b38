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
from tactix_ship.lean.strip_types import without_types

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
    "tactix.plugins.hookspecs", "tactix_cuda.bench", "tactix_cudnn.compiler",
    "tactix_cuda.nvrtc", "tactix_cuda.weight_update", "tactix_cuda.weight_windows",
    "tactix_cpu.levels", "tactix_runtime.default", "tactix_runtime.dispatch",
    "tactix_ship.flavour", "tactix_isolate", "tactix_sdk.evaluate", "tactix_sdk.kernel_text",
)  # fmt: skip
"""What only building needs, and other flavours; imported inside functions that no plan gets to."""

LAYERS = ("tactix_ops.layers",)
SAMPLING = ("sample", "settings")
"""What layers have for building alone: methods that make inputs to try them on."""

COLD = (
    "tactix.contracts.allocator", "tactix.contracts.build_stage", "tactix.contracts.calibrator",
    "tactix.contracts.compiler", "tactix.contracts.expr", "tactix.contracts.graph",
    "tactix.contracts.importer", "tactix.contracts.layer", "tactix.contracts.region",
    "tactix.contracts.rule", "tactix.contracts.tactic", "tactix.contracts.tool",
    "tactix.plan.encode", "tactix.plan.wheels", "tactix.plugins.registry", "tactix.base.files",
    "tactix_cublaslt", "tactix_cuda", "tactix_cudnn", "tactix_cpu.mask", "tactix_ship",
    "tactix_runtime.host_mirror", "tactix_runtime.dynamic_shapes", "tactix_runtime.references",
    "tactix_runtime.values", "tactix_ops.control_launcher", "tactix_sdk.numpy_launcher",
    "tactix_trust.changing", "tactix_codegen", "tactix_sdk", *LAYERS,
)  # fmt: skip
"""What a plan of kernels for the CPU does not need: kept compressed until something imports it."""


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


def parsed(module: str) -> ast.Module:
    """Its code, or that of the module which takes its place, without what is there for readers and
    type checkers.
    """
    tree = _tree(STANDS_FOR.get(module, module))
    if within(module, LAYERS):
        _drop_sampling(tree)
    tree = without_types(module, tree)
    if module == SDK:
        homes = {name: ".".join(_parts(home)) for name, home in _offered().items()}
        tree.body += ast.parse(f"_HOMES = {homes!r}").body
    return tree


def _tree(module: str) -> ast.Module:
    path = source_of(module)
    if path is None:
        raise InternalError(f"no module {module}")
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _drop_sampling(tree: ast.Module) -> None:
    for node in [n for n in tree.body if isinstance(n, ast.ClassDef)]:
        node.body = [
            n for n in node.body if not (isinstance(n, ast.FunctionDef) and n.name in SAMPLING)
        ]


def _offered() -> dict[str, str]:
    """The names that the SDK has, and the module that each is from."""
    lines = [n for n in _tree(SDK).body if isinstance(n, ast.ImportFrom) and n.module]
    return {
        a.name: str(n.module) for n in lines if not within(str(n.module), LEFT_OUT) for a in n.names
    }


def imported(tree: ast.AST) -> Iterator[str]:
    """Our modules that are imported anywhere in it."""
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        yield from (n for n in names if source_of(n))


def closure() -> dict[str, ast.Module]:
    """The code of every module of the lean runtime, sorted by name. Raises InternalError."""
    found: dict[str, ast.Module] = {}
    todo = ["tactix", *ROOTS[1:], *VOCABULARIES, *_offered().values()]
    while todo:
        module = todo.pop()
        if module in found or within(module, LEFT_OUT) or module == ENTRY:
            continue
        tree = found[module] = parsed(module)
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
    parts = _parts(module)
    return "/".join([*parts, "__init__.py"]) if is_package(module) else "/".join(parts) + ".py"


def _parts(module: str) -> list[str]:
    top, *rest = module.split(".")
    return [*PLACES[top], *rest]
