"""Tactics: what they offer, and that their kernels are right, wherever they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tactix.base.dims import learn, symbol_name
from tactix.base.errors import (
    AllocationError,
    CompilerError,
    ExecutionError,
    ShapeError,
    TactixError,
)
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.device import Device, DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of
from tactix.contracts.tactic import CompileContext, Offer, Reject, Tactic
from tactix.network.definition import NetworkDefinition
from tactix.select.accuracy import GRANTED
from tactix.select.bench import Bench, Expected
from tactix.select.compile import Toolchain, joined, with_binary
from tactix.select.enumerate import Candidate
from tactix_sdk.testing.examples import examples_of, resized, specs_of
from tactix_sdk.testing.report import (
    Broken,
    NotHere,
    NothingToRun,
    check,
    counted,
    for_each,
    together,
)
from tactix_sdk.testing.subject import THREADS, Subject

FLOATS = ("f32", "f16", "bf16")
FEW = 2
"""Variants of a node that are run at other sizes and with what is no number; all are at the
examples' own.
"""
SHAPES: tuple[dict[int, int], ...] = (
    dict.fromkeys(range(2, 17), 1),
    {n: n + 1 for n in range(2, 17)},
    {n: 3 * n + 2 for n in range(2, 13)},
    {3: 0, 4: 0},
)
"""Other sizes for those of the examples: ones, others, larger odd ones, none."""
OPEN: tuple[Callable[[int], int], ...] = (
    lambda n: n,
    lambda n: 1,
    lambda n: 2 * n + 1,
    lambda n: 0,
)
"""What open sizes are when a kernel runs, of those that it was made for; each is 0 alone, too."""


@dataclass(frozen=True)
class Trial:
    """A tactic on a node: ``env`` are the sizes of its symbols, ``about`` says what is tried.

    ``usual``: sizes for which the kernel of a node with symbols is made, whatever it then runs at.
    ``resized``: whether it has other sizes than the example, for which the reference may have no
    answer.
    """

    tactic: Tactic
    node: Node
    env: Mapping[str, int]
    about: str
    usual: Mapping[str, int] = field(default_factory=dict)
    resized: bool = False


@dataclass(frozen=True)
class Ran:
    """A variant on a trial: its departure from the reference in budgets, at most 1 is right;
    ``why`` it gave none.
    """

    trial: Trial
    title: str
    far: float = float("inf")
    why: str = ""

    @property
    def wrong(self) -> str:
        """What is wrong with it; empty if nothing is."""
        found = self.why or (
            "" if self.far <= 1 else f"departs from the reference by {self.far:.3g} budgets"
        )
        return f"{self.title} on {self.trial.about}: {found}" if found else ""


@dataclass(frozen=True)
class Case:
    """An example of a layer that a tactic implements, in one dtype. ``fixed``: whether later inputs
    are constants.
    """

    layer: Layer
    named: Mapping[str, Any]
    specs: Sequence[TensorSpec]
    fixed: bool
    seed: int

    @property
    def about(self) -> str:
        shown = " ".join(f"{s.dtype.value}{tuple(s.shape)}" for s in self.specs)
        return f"{self.layer.name} {shown}{' constant' if self.fixed else ''}"


def tactics_of(subject: Subject) -> list[Tactic]:
    found = list(subject.objects("tactics"))
    if not found:
        raise NothingToRun("the pack has no tactics")
    return found


def kernels_of(subject: Subject) -> tuple[list[Tactic], str]:
    """Tactics whose device is here, and which are left out. Raises NotHere if none is left."""
    reasons = {t: why_away(subject, t) for t in tactics_of(subject)}
    here = [t for t, why in reasons.items() if not why]
    away = [f"{t.key} ({why})" for t, why in reasons.items() if why]
    if not here:
        raise NotHere("; ".join(away))
    return here, f"; not here: {', '.join(away)}" if away else ""


def why_away(subject: Subject, tactic: Tactic) -> str:
    """Why no kernel of a tactic runs on this machine; empty if some do."""
    if tactic.device not in _kinds(subject):
        return f"no device of kind {tactic.device!r}"
    device = device_of(subject, tactic)
    lacking = [] if device.available() else tactic.lacks(device.properties())
    return device.available() or (f"the device has no {', '.join(lacking)}" if lacking else "")


def _kinds(subject: Subject) -> set[str]:
    return {d.kind for d in subject.session.devices.values()}


def device_of(subject: Subject, tactic: Tactic) -> Device:
    return next(d for d in subject.session.devices.values() if d.kind == tactic.device)


def stand_in(subject: Subject, tactic: Tactic) -> DeviceProperties:
    """Of the tactic's device, or of one like it."""
    return target_of(device_of(subject, tactic))


def target_of(device: Device) -> DeviceProperties:
    """Of a device; where that is not here and is a GPU, of one that kernels can be written for."""
    away = device.kind == "cuda" and device.available()
    return device.target("sm_90") if away else device.properties()


def layers_of(subject: Subject, tactic: Tactic) -> list[Layer]:
    """Those that a tactic implements: named, or any few pointwise ones."""
    known = subject.session.layers
    named = [known[k] for k in tactic.implements if k in known]
    if "pointwise" in tactic.implements or "*" in tactic.implements:
        named += [x for x in known.values() if x.is_pointwise and not x.key.startswith("tactix.")]
        named += [
            known[f"tactix.{n}@1"]
            for n in ("Add", "Sigmoid", "Clip", "Where")
            if f"tactix.{n}@1" in known
        ]
    return named


def cases(
    subject: Subject, tactic: Tactic, sizes: Mapping[int, int] | None = None
) -> Iterator[Case]:
    """Examples in each floating dtype, with later inputs given or constant; ``sizes`` replaces
    their sizes.
    """
    for layer in layers_of(subject, tactic):
        for named, text in examples_of(layer):
            for dtype in FLOATS if "f32" in text else ("f32",):
                specs = resized(specs_of(text.replace("f32", dtype)), dict(sizes or {}))
                for fixed in (False, True) if len(specs) > 1 else (False,):
                    yield Case(layer, named, specs, fixed, len(text))


def nodes(
    subject: Subject, tactic: Tactic, sizes: Mapping[int, int] | None = None
) -> Iterator[tuple[str, Node]]:
    """Nodes of known sizes for a tactic, and what they are."""
    for case in cases(subject, tactic, sizes):
        for node in built(case, subject, {}):
            yield case.about, node


def built(case: Case, subject: Subject, names: Mapping[int, str]) -> Iterator[Node]:
    """The layer alone; the sizes that its example gives must suit it, or there is no node.

    ``names``: symbols in place of sizes of inputs.
    """
    import numpy as np

    net = NetworkDefinition({x.key: x for x in subject.session.layers.values()}, case.layer.key)
    attrs = attributes_of(case.layer, case.named)
    try:
        arrays = case.layer.sample(attrs, list(case.specs), np.random.default_rng(case.seed))
        values = [
            net.add_constant(arrays[i])
            if case.fixed and i
            else net.add_input(f"x{i}", s.dtype.value, _open(s, names))
            for i, s in enumerate(case.specs)
        ]
        for i, y in enumerate(net.add_layer(case.layer, values, **case.named)):
            net.mark_output(y, f"y{i}")
    except (TactixError, ValueError):
        return
    yield from net.nodes


def _open(spec: TensorSpec, names: Mapping[int, str]) -> tuple[Any, ...]:
    return tuple(names.get(int(d), d) for d in spec.shape)  # type: ignore[arg-type]


def fixed_trials(
    subject: Subject, tactic: Tactic, sizes: Sequence[Mapping[int, int]] = ({},)
) -> Iterator[Trial]:
    """Of examples, at each of ``sizes``."""
    return (
        Trial(tactic, node, {}, about, resized=bool(s))
        for s in sizes
        for about, node in nodes(subject, tactic, s)
    )


def open_trials(subject: Subject, tactic: Tactic) -> Iterator[Trial]:
    """Of examples whose first size is a symbol, then all that can be; run at their own sizes, at 1,
    odd ones and 0.
    """
    for case in cases(subject, tactic):
        for which in _openings(case):
            names = {n: f"s{n}" for n in which}
            usual = {name: n for n, name in names.items()}
            for node in built(case, subject, names):
                for env in _environments(usual):
                    shown = ", ".join(f"{k} = {v}" for k, v in env.items())
                    yield Trial(
                        tactic, node, env, f"{case.about} with open sizes, at {shown}", usual
                    )


def _environments(usual: Mapping[str, int]) -> list[dict[str, int]]:
    together = [{name: change(n) for name, n in usual.items()} for change in OPEN]
    return [*together, *([{**usual, name: 0} for name in usual] if len(usual) > 1 else [])]


def _openings(case: Case) -> list[list[int]]:
    """Sizes that become symbols: that of the batch, and all; none that a constant has."""
    given = [s.at({}) for s in case.specs[: 1 if case.fixed else None]]
    from_outputs = {d for s in case.specs[len(given) :] for d in s.shape}
    found = [d for shape in given for d in shape if d not in from_outputs and d != 1]
    every = list(dict.fromkeys(found))
    first = [n for n in every[:1] if given[0] and given[0][0] == n]
    return [names for names in ([first, every] if first != every else [every]) if names]


def run(
    subject: Subject, trials: Sequence[Trial], poison: float | None = None, most: int | None = None
) -> Iterator[Ran]:
    """Every variant of every trial; a variant that went wrong once is not tried again.

    ``poison``: stands in the first input, here and there. ``most``: variants of a trial that are
    run. On a processor the kernels run in another process, between pages that fault when touched.
    """
    made = list[tuple[Trial, Candidate]]()
    for t in trials:
        try:
            made += [(t, c) for c in candidates(subject, t, None, most)]
        except Exception as e:  # of the author's text
            yield Ran(t, t.tactic.key, why=f"{type(e).__name__}: {e}")
            return
    if not made:
        return
    device = device_of(subject, trials[0].tactic)
    toolchain = Toolchain(subject.session.active_compilers())
    written = {c.artifact.digest: c for _, c in made if isinstance(c.artifact.code, Source)}
    binaries = joined(toolchain, (), list(written.values()), device.properties(), lambda c: c.title)
    failed = set[str]()
    for t, c in made:
        if c.title in failed:
            continue
        ran = _ran(subject, t, c, written.get(c.artifact.digest, c), binaries, poison)
        if ran is not None:
            failed |= {c.title} if ran.wrong else set()
            yield ran


def _ran(
    subject: Subject,
    t: Trial,
    c: Candidate,
    compiled: Candidate,
    binaries: Mapping[str, Binary],
    poison: float | None,
) -> Ran | None:
    """None where the sizes are none for the layer."""
    if compiled.status == "rejected":
        return Ran(t, c.title, why=compiled.reason)
    bench = subject.bench(device_of(subject, t.tactic))
    try:
        t.node.body.infer(
            [replace(v.spec, shape=v.spec.at(dict(t.env)), value=None) for v in t.node.given]
        )
        arrays, want = bench.trial(t.node, t.env)
    except Exception:
        if t.env or t.resized:
            return None
        raise
    if t.env and not _suits(t, want):
        return None
    if poison is not None and arrays:
        arrays = [_poisoned(arrays[0], poison), *arrays[1:]]
        want = Expected(t.node, arrays, t.env)
    try:
        return Ran(
            t,
            c.title,
            _departure(t, c, bench.of(c), with_binary(c.artifact, binaries), arrays, want),
        )
    except (AllocationError, ExecutionError, CompilerError, ShapeError) as e:
        return Ran(t, c.title, why=str(e))


def _suits(t: Trial, want: Sequence[Any]) -> bool:
    """Whether the reference gives the shapes that are declared, at the sizes of the trial."""
    env = dict(t.env)
    for v, a in zip(t.node.outputs, want, strict=True):
        learn(v.spec.shape, a.shape, env)
    return [a.shape for a in want] == [v.spec.at(env) for v in t.node.outputs]


def is_told(node: Node) -> bool:
    """Whether only running tells sizes of its outputs."""
    known = {d for v in node.given for d in v.spec.shape}
    return any(symbol_name(d) and d not in known for v in node.outputs for d in v.spec.shape)


def offered(t: Trial, device: DeviceProperties) -> Offer[Any] | None:
    """What the tactic offers for a node; None where it rejects it, or no build would ask it."""
    asked = t.tactic.produces or t.tactic.tells if is_told(t.node) else not t.tactic.tells
    if not asked:
        return None
    return None if isinstance(found := t.tactic.offers(t.node, device), Reject) else found


def candidates(
    subject: Subject, t: Trial, device: DeviceProperties | None = None, most: int | None = None
) -> list[Candidate]:
    """The variants of a node with their artifacts, the first ``most``, for that device, by default
    the one that is here; none where the tactic rejects the node.
    """
    device = device or device_of(subject, t.tactic).properties()
    context = CompileContext(device, dict(t.usual), THREADS)
    if (offer := offered(t, device)) is None:
        return []
    return [Candidate(t.tactic, v, offer.compile(v, context), None) for v in offer.variants[:most]]


def _departure(
    t: Trial,
    c: Candidate,
    own: Bench,
    artifact: KernelArtifact,
    arrays: Sequence[Any],
    want: Expected,
) -> float:
    granted = GRANTED.get(t.tactic.numerics, 1.0)
    if is_told(t.node):
        got = _produced(t, own, artifact, arrays)
        return max(want.departure(j, y, granted) for j, y in enumerate(got))
    runnable, got = own.prepare(t.node, artifact, c.variant, arrays, t.env)
    runnable.repeat(1)
    return own.check(t.node, c.variant, got, want, granted)


def _produced(
    t: Trial, own: Bench, artifact: KernelArtifact, arrays: Sequence[Any]
) -> Sequence[Any]:
    """The outputs, in memory of the launcher, which runs in this process. Raises ExecutionError."""
    given, made = t.node.given, t.node.outputs
    step: Step = Step(
        t.node.name,
        artifact,
        tuple(Operand(i, v.spec.plain(), LINEAR) for i, v in enumerate(given)),
        tuple(Operand(len(given) + j, v.spec.plain(), LINEAR) for j, v in enumerate(made)),
    )
    got = own.launchers[artifact.launcher].produce(step, t.env, arrays, [], own.context)
    if len(got) != len(made):
        raise ExecutionError(f"gave {len(got)} values, declared are {len(made)}", who=step.name)
    return got


def _poisoned(array: Any, value: float) -> Any:
    out = array.copy()
    if out.dtype.kind in "fV":
        out.reshape(-1)[:: max(1, out.size // 3)] = value
    return out


def script(trial: Trial, subject: Subject, poison: float | None) -> str:
    """Python that runs one trial alone."""
    return f"""from itertools import chain
from tactix_sdk.testing import bids
from tactix_sdk.testing.subject import Subject
subject = Subject({subject.dist!r})
tactic = subject.session.tactics[{trial.tactic.key!r}]
fixed = bids.fixed_trials(subject, tactic, (dict(), *bids.SHAPES))
trials = chain(fixed, bids.open_trials(subject, tactic))
trial = next(t for t in trials if t.about == {trial.about!r})
for ran in bids.run(subject, [trial], {f"float({str(poison)!r})" if poison is not None else None}):
    if ran.wrong:
        raise SystemExit(ran.wrong)
    print(ran.title, ran.far)
"""


def _hold(
    subject: Subject, trials: Iterable[Trial], poison: float | None = None, most: int | None = None
) -> int:
    """Run variants of one tactic. Raises Broken for all that are wrong.

    All at once: a call of the compiler has headers and links whatever it compiles.
    """
    ran = list(run(subject, list(trials), poison, most))
    together([Broken(r.wrong, script(r.trial, subject, poison)) for r in ran if r.wrong])
    return len(ran)


def _reasons(subject: Subject, tactic: Tactic) -> str:
    device = device_of(subject, tactic).properties()
    said = {
        r.reason
        for _, n in nodes(subject, tactic)
        if isinstance(r := tactic.offers(n, device), Reject)
    }
    return "; ".join(sorted(said)) or f"no example of {', '.join(tactic.implements)}"


@check("tactic-reference")
def right(subject: Subject) -> str:
    """Every variant gives the reference's results on random inputs, and writes nowhere else; what
    tells sizes of its outputs runs as in an engine, without fences around its memory.
    """
    found, away = kernels_of(subject)

    def checked(tactic: Tactic) -> int:
        own = _hold(subject, fixed_trials(subject, tactic))
        if not own and not subject.excuse(tactic):
            raise Broken(
                f"{tactic.key} takes no example of what it implements: {_reasons(subject, tactic)}"
            )
        return own

    excused = [f"{t.key} ({why})" for t in found if (why := subject.excuse(t))]
    more = f"; beyond examples: {', '.join(excused)}" if excused else ""
    return counted(for_each(found, checked), "runs", more + away)


@check("tactic-shapes")
def shapes(subject: Subject) -> str:
    """Odd, single, large and empty sizes give the reference's results, where they are taken."""
    found, away = kernels_of(subject)
    tried = for_each(found, lambda t: _hold(subject, fixed_trials(subject, t, SHAPES), most=FEW))
    return counted(tried, "runs", away)


@check("tactic-open-shapes")
def open_shapes(subject: Subject) -> str:
    """Kernels made for open sizes, of the batch or of all axes, give the reference's results at 0,
    1 and odd sizes.
    """
    found, away = kernels_of(subject)
    return counted(
        for_each(found, lambda t: _hold(subject, open_trials(subject, t), most=FEW)), "runs", away
    )


@check("tactic-not-a-number")
def not_a_number(subject: Subject) -> str:
    """NaN and infinities in an input come out where the reference has them."""
    found, away = kernels_of(subject)

    def checked(tactic: Tactic) -> int:
        trials = list(fixed_trials(subject, tactic))
        return sum(_hold(subject, trials, poison, FEW) for poison in (float("nan"), float("inf")))

    return counted(
        for_each((t for t in found if not getattr(t, "spreads", False)), checked), "runs", away
    )


@check("tactic-deterministic")
def same_twice(subject: Subject) -> str:
    """Compiling a node twice gives the same artifact, and bids do not depend on call order."""
    found = [t for t in tactics_of(subject) if t.device in _kinds(subject)]
    return counted(for_each(found, lambda t: _again(subject, t)), "artifacts")


def _again(subject: Subject, tactic: Tactic) -> int:
    """Artifacts that are the same the second time. Raises Broken."""
    properties, tried = stand_in(subject, tactic), 0
    for about, node in nodes(subject, tactic):
        first, second = tactic.offers(node, properties), tactic.offers(node, properties)
        said, again = (o if isinstance(o, Reject) else o.variants for o in (first, second))
        if said != again:
            raise Broken(f"{tactic.key} on {about} offers {said}, then {again}")
        if isinstance(first, Reject) or isinstance(second, Reject):
            continue
        for v in first.variants:
            context = CompileContext(properties, {}, THREADS)
            if first.compile(v, context).digest != second.compile(v, context).digest:
                raise Broken(
                    f"{tactic.key} [{v}] on {about} compiles to another artifact the second time"
                )
            tried += 1
    return tried
