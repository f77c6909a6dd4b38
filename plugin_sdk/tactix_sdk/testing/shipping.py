"""What becomes of a pack's kernels in plans: saved and loaded, without the pack, embedded, in the
lean runtime.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tactix import Builder, BuilderConfig, Runtime
from tactix.base.errors import NoTacticError
from tactix.contracts.region import REFORMAT
from tactix.contracts.tactic import Tactic
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.identity import normal
from tactix.plugins.names import OWN
from tactix.plugins.session import Session
from tactix_sdk.testing import bids
from tactix_sdk.testing.report import Broken, NotHere, NothingToRun, check, child, counted, for_each
from tactix_sdk.testing.subject import Subject

LEAN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import tactix_lean
engine = tactix_lean.load(sys.argv[2], on_untrusted="allow")
with np.load(sys.argv[3]) as f:
    found = engine.create_execution_context().run(dict(f))
np.savez(sys.argv[4], **found)
print(",".join(sorted(m for m in sys.modules if m.partition(".")[0].partition("_")[0] == "tactix")))
"""


@dataclass(frozen=True)
class Shipped:
    """A plan in which a tactic won, inputs for it, and what the engine that was built gives."""

    tactic: Tactic
    about: str
    plan: Plan
    feed: dict[str, Any]
    results: dict[str, Any]
    keep: list[Any] = field(default_factory=list, hash=False)

    def needs(self, subject: Subject) -> bool:
        """Whether running it needs the pack."""
        dists = {normal(r.dist) for r in self.plan.requirements} - {OWN}
        return not dists.isdisjoint(map(normal, subject.dists))


def winners(subject: Subject) -> list[Tactic]:
    """The tactics whose plans run on this processor. Raises NothingToRun, NotHere."""
    host = [t for t in bids.tactics_of(subject) if t.device == "cpu"]
    if not host:
        raise NothingToRun("the pack has no tactics for the processor")
    away = {t: why for t in host if (why := bids.why_away(subject, t))}
    if len(away) == len(host):
        raise NotHere("; ".join(f"{t.key}: {why}" for t, why in away.items()))
    return [t for t in host if t not in away]


def shipped(subject: Subject, tactic: Tactic, embed: Sequence[str] = ()) -> Shipped | None:
    """A plan of the first example that a tactic takes; None for one that no example reaches, as is
    known.

    Raises Broken.
    """
    found = next(_plans(subject, tactic, embed), None)
    if found is None and not subject.excuse(tactic):
        raise Broken(f"{tactic.key} wins in no plan of the examples that it takes")
    return found


def for_each_plan(subject: Subject, look: Callable[[Shipped], int]) -> int:
    """The sum of what ``look`` gives for a plan of each tactic. Raises Broken with all that is
    broken, NothingToRun, NotHere.
    """

    def checked(tactic: Tactic) -> int:
        found = shipped(subject, tactic)
        return look(found) if found is not None else 0

    return for_each(winners(subject), checked)


class _Alone:
    """A session in which one tactic bids, beside changes of format: it wins, however fast the
    reference is.
    """

    def __init__(self, session: Session, tactic: Tactic) -> None:
        self._session, self._tactic = session, tactic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def active_tactics(self) -> list[Tactic]:
        known = self._session.active_tactics()
        return [t for t in known if t is self._tactic or REFORMAT.key in t.implements]


def _plans(subject: Subject, tactic: Tactic, embed: Sequence[str]) -> Iterator[Shipped]:
    import numpy as np

    builder = Builder(session=_Alone(subject.session, tactic))  # type: ignore[arg-type]
    for about, node in bids.nodes(subject, tactic):
        device = bids.device_of(subject, tactic).properties()
        if bids.offered(bids.Trial(tactic, node, {}, about), device) is None:
            continue
        config = BuilderConfig(
            timing_cache=False,
            builder_optimization_level=0,
            plugins_to_serialize=list(embed),
        )
        try:
            plan = builder.build_plan(network_of(node, subject), config)
        except NoTacticError:  # its trial failed: see the checks of tactics
            continue
        if tactic.key in [s.info.get("tactic") for s in plan.steps]:
            rng = np.random.default_rng(5)
            arrays = node.layer.sample(node.attrs, [v.spec for v in node.given], rng)
            named = zip(node.given, arrays, strict=True)
            feed = {v.name: a for v, a in named if v.const is None}
            yield Shipped(tactic, about, plan, feed, _run(plan, feed, subject.fresh("runtime")))


def network_of(node: Any, subject: Subject) -> NetworkDefinition:
    """A network of that node alone."""
    net = NetworkDefinition({x.key: x for x in subject.session.layers.values()}, "shipped")
    values = [
        net.add_constant(v.const, v.name)
        if v.const is not None
        else net.add_input(v.name, v.spec.dtype.value, v.spec.shape)
        for v in node.given
    ]
    named = {
        name: getattr(node.attrs, name) for name in getattr(node.attrs, "__dataclass_fields__", {})
    }
    for i, y in enumerate(net.add_layer(node.layer, values, **named)):
        net.mark_output(y, f"y{i}")
    return net


def _run(plan: Plan, feed: dict[str, Any], session: Session) -> dict[str, Any]:
    runtime = Runtime(session=session, on_untrusted="allow")
    return dict(runtime.load(plan).create_execution_context().run(feed))


def _same(s: Shipped, got: dict[str, Any], where: str) -> None:
    for name, want in s.results.items():
        if got[name].tobytes() != want.tobytes():
            raise Broken(f"{s.tactic.key} on {s.about}: {name!r} is not the same {where}")


@check("artifact-round-trip")
def round_trip(subject: Subject) -> str:
    """A plan's bytes, loaded, give the same results, and are the same bytes when written again."""

    def again(s: Shipped) -> int:
        content = container.dump(s.plan)
        loaded = container.load(content)
        _same(
            s, _run(loaded, s.feed, subject.fresh("runtime")), "after a plan was saved and loaded"
        )
        if container.dump(loaded) != content:
            raise Broken(
                f"{s.tactic.key} on {s.about}: its plan, loaded and written again, has other bytes"
            )
        return 1

    return counted(for_each_plan(subject, again), "plans")


@check("streams")
def streams(subject: Subject) -> str:
    """Run on set addresses in a stream that is not the default one, two at a time, kernels give the
    same results.
    """

    def twice(s: Shipped) -> int:
        engine = Runtime(session=subject.fresh("runtime"), on_untrusted="allow").load(s.plan)
        queued = [_queued(engine, s) for _ in range(2)]
        for stream, got in queued:
            stream.synchronize()
            _same(s, got, "in a stream")
        return len(queued)

    return counted(for_each_plan(subject, twice), "runs")


def _queued(engine: Any, s: Shipped) -> tuple[Any, dict[str, Any]]:
    """A stream in which the engine runs, and the arrays that it writes."""
    import numpy as np

    context, stream = engine.create_execution_context(), engine.device.create_stream()
    out = {name: np.empty_like(want) for name, want in s.results.items()}
    inputs = {name: np.array(a, order="C") for name, a in s.feed.items()}
    for name, array in inputs.items():
        context.set_input_shape(name, array.shape)
    for name, array in (*inputs.items(), *out.items()):
        context.set_tensor_address(name, array.ctypes.data)
    context.execute_async_v3(stream.handle)
    s.keep.append((inputs, context))
    return stream, out


@check("data-only")
def data_only(subject: Subject) -> str:
    """Plans whose kernels are data run where the pack is not installed."""

    def without(s: Shipped) -> int:
        if s.needs(subject):
            return 0
        _same(
            s, _run(s.plan, s.feed, Session(group="runtime", only=["tactix"])), "without the pack"
        )
        return 1

    tried = for_each_plan(subject, without)
    if not tried:
        raise NothingToRun("its tactics run Python of the pack: see the check 'embedded'")
    return f"{tried} plans"


@check("embedded")
def embedded(subject: Subject) -> str:
    """Plans that need the pack's Python run with it embedded, as they do with it installed."""

    def inside(s: Shipped) -> int:
        if not s.needs(subject):
            return 0
        got = _run(_whole(s, subject), s.feed, Session(group="runtime", only=["tactix"]))
        _same(s, got, "with the pack embedded")
        return 1

    tried = for_each_plan(subject, inside)
    if not tried:
        raise NothingToRun("running its tactics needs nothing of the pack")
    return f"{tried} plans"


def _whole(s: Shipped, subject: Subject) -> Plan:
    """The plan, with the pack in it if it needs that. Raises Broken."""
    if not s.needs(subject):
        return s.plan
    again = shipped(subject, s.tactic, subject.dists)
    assert again is not None
    return again.plan


@check("lean-runtime")
def lean(subject: Subject) -> str:
    """The lean runtime, in a process without tactix's builder, gives the same results."""
    winners(subject)  # before a wheel is made for nothing
    with tempfile.TemporaryDirectory() as folder:
        wheel = _lean_wheel(subject, folder)

        def leanly(s: Shipped) -> int:
            if not _plain(s):
                return 0
            _same(
                s, _in_lean(_whole(s, subject), s.feed, wheel, Path(folder)), "in the lean runtime"
            )
            return 1

        return counted(for_each_plan(subject, leanly), "plans")


def _lean_wheel(subject: Subject, folder: str) -> Path:
    """The file that ``tactix lean-wheel`` writes there. Raises NotHere without that tool."""
    tool = subject.session.tools.get("lean-wheel")
    if tool is None:
        raise NotHere("there is no tool called lean-wheel: its pack is switched off")
    with contextlib.redirect_stdout(io.StringIO()):
        tool.command().main(["--out", folder], prog_name=tool.name, standalone_mode=False)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def _plain(s: Shipped) -> bool:
    """Whether numpy alone can hold its inputs and results: the lean runtime has no more."""
    return all(a.dtype.kind != "V" for a in (*s.feed.values(), *s.results.values()))


def _in_lean(plan: Plan, feed: dict[str, Any], wheel: Path, folder: Path) -> dict[str, Any]:
    import numpy as np

    container.save(plan, folder / "it.plan")
    np.savez(folder / "in.npz", **feed)
    names = ("it.plan", "in.npz", "out.npz")
    child(LEAN, str(wheel), *(str(folder / n) for n in names))
    with np.load(folder / "out.npz") as f:
        return dict(f)
