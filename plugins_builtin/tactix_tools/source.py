"""What a tool is given: a plan file, or a model that is built first."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.api import configure
from tactix.base.errors import InvalidArgument, punctuated
from tactix.builder import Builder
from tactix.plan.container import MAGIC
from tactix.plan.schema import TensorIO
from tactix.run.runtime import Runtime, default_threads
from tactix_runtime.references import ON_REFERENCES
from tactix_tools import arrays
from tactix_tools.options import Shapes, given_for_builds, settings
from tactix_tools.progress import BuildProgress
from tactix_tools.show import errors_console

if TYPE_CHECKING:
    from tactix.config import BuilderConfig
    from tactix.network.definition import NetworkDefinition
    from tactix.plugins.session import Session
    from tactix.run.engine import Engine


PLAN_SUFFIX = ".plan"


def is_plan(path: str) -> bool:
    """Whether a file starts like a plan. Raises InvalidArgument for a pipe and the like, which
    could be read once.
    """
    if not os.path.isfile(path):
        raise InvalidArgument("that is no regular file", who=path, do="Copy it into a file")
    with open(path, "rb") as f:
        return f.read(len(MAGIC)) == MAGIC


def is_meant_as_plan(path: str) -> bool:
    """Whether a file is a plan, or is named as one. Raises as ``is_plan``."""
    return is_plan(path) or Path(path).suffix == PLAN_SUFFIX


def require_model(path: str) -> None:
    """Raises InvalidArgument for a plan where a model is wanted."""
    if is_plan(path):
        do = "Give the model that it was built from; `tactix inspect` shows what is in a plan"
        raise InvalidArgument("that is a plan, not a model", who=path, do=do)


def output(path: str | Path, option: str = "-o", reads: Sequence[str | None] = ()) -> Path:
    """Where a tool will write, by an option: its folder is there and takes files, and it is none of
    the files that the tool ``reads``. Raises InvalidArgument.
    """
    path = Path(path)
    if any(f and os.path.exists(path) and os.path.samefile(path, f) for f in reads):
        do = f"Name another place with {option}"
        raise InvalidArgument("it would be written over itself", who=str(path), do=do)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except FileNotFoundError:
        why = f"there is no folder {str(path.parent)!r}"
    except OSError as e:
        why = "its folder is a file" if isinstance(e, NotADirectoryError) else e.strerror or str(e)
    else:
        if path.is_file() or not path.exists():
            return path
        why = "it is no file"  # a device would be replaced by one
    do = f"Name another place with {option}"
    raise InvalidArgument("nothing can be written there", who=str(path), why=why, do=do)


@contextlib.contextmanager
def building(
    path: str,
    session: Session,
    options: dict[str, Any],
    shapes: Shapes | None = None,
    quiet: bool = False,
    keeps: bool = False,
) -> Iterator[tuple[Builder, NetworkDefinition, BuilderConfig]]:
    """What builds a model, with progress on stderr meanwhile. Ctrl-C raises KeyboardInterrupt,
    unless the model is imported and the plan ``keeps`` what is known by then.

    ``options``: from ``build_options``; ``shapes`` fix the inputs. Raises what ``Builder`` raises.
    """
    require_model(path)
    config = configure(**settings(options, shapes))
    with BuildProgress(errors_console(), quiet, keeps=False) as progress:
        config.progress_monitor = progress
        builder = Builder(session.logger, session)
        progress.phase("import", 0)
        builder.begin(config)
        network = builder.import_model(path, config.enabled, config.input_shapes)
        progress.finish("import")
        progress.keeps = keeps
        yield builder, network, config


def threads(options: dict[str, Any]) -> int:
    """Intra-op threads that ``--threads`` asks for."""
    return int(options["threads"]) or default_threads()


def open_engine(
    path: str,
    session: Session,
    options: dict[str, Any],
    shapes: Shapes | None = None,
    quiet: bool = False,
) -> Engine:
    """The engine of a plan file, or of a model that is built first."""
    engine = _opened(path, session, options, shapes, quiet)
    if (budget := options["weight_streaming_budget"]) is not None:
        _stream(engine, budget)
    return engine


def _opened(
    path: str, session: Session, options: dict[str, Any], shapes: Shapes | None, quiet: bool
) -> Engine:
    runtime = Runtime(
        session.logger,
        session,
        flavour=options["flavour"],
        max_threads=threads(options),
        on_untrusted=options["untrusted"] or "",
    )
    runtime.devices = options.get("devices", "")
    if options["lean_runtime"]:
        runtime = runtime.load_runtime(options["lean_runtime"])
    if is_meant_as_plan(path):
        return runtime.deserialize(path)
    with building(path, session, options, shapes, quiet) as (builder, network, config):
        inputs = [
            TensorIO(v.name, i, v.spec.dtype, v.spec.shape) for i, v in enumerate(network.inputs)
        ]
        arrays.check(inputs, options)
        plan = builder.build_plan(network, config)
    return runtime.load(plan)


def tell_unread(path: str, session: Session) -> None:
    """Warn of options of the command line that change nothing, as the file is a plan already."""
    if is_meant_as_plan(path) and (given := given_for_builds()):
        who, do = f"{path} is a plan", "Leave that out, or give the model"
        told = f"{', '.join(given)} only tells how to build a model"
        session.logger.warning(punctuated((f"{who}: {told}", do)))


def on_references(engine: Engine) -> bool:
    """Whether references run in place of the code of its plan."""
    return ON_REFERENCES in engine.plan.meta


def _stream(engine: Any, budget: int | float) -> None:
    """``budget``: bytes, or a share of what there is. Raises InvalidArgument."""
    if not hasattr(engine, "weight_streaming_budget_v2"):
        do = "Build the plan with --weight-streaming, and run it by the default flavour"
        raise InvalidArgument("the engine's weights cannot be streamed", who=engine.name, do=do)
    share = budget * engine.streamable_weights_size if isinstance(budget, float) else budget
    engine.weight_streaming_budget_v2 = int(share)


def caller(engine: Engine, feed: dict[str, Any]) -> Callable[[], list[Any]]:
    """A call on a context of its own, with arrays already in the engine's order."""
    context = engine.create_execution_context()
    given = [feed[io.name] for io in engine.inputs]
    return lambda: context.infer(given)
