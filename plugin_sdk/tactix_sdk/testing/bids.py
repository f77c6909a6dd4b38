"""Tactics: what they offer, and that their kernels are right, wherever they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import Device
from tactix.contracts.graph import Node
from tactix.contracts.layer import Layer
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.network.definition import NetworkDefinition
from tactix.select.accuracy import GRANTED
from tactix.select.bench import Bench, Expected
from tactix.select.compile import Toolchain, with_binary
from tactix.select.enumerate import Candidate
from tactix.words.errors import CompilerError, ExecutionError, TactixError
from tactix.words.tensor import TensorSpec
from tactix_sdk.testing.examples import examples_of, resized, specs_of
from tactix_sdk.testing.report import Broken, NotHere, check
from tactix_sdk.testing.subject import THREADS, Subject

FLOATS = ("f32", "f16", "bf16")
FEW = 2
"""Variants of a node that are run at other sizes and with what is no number; all are at the examples' own."""
SHAPES: tuple[dict[int, int], ...] = (
    dict.fromkeys(range(2, 17), 1), {n: n + 1 for n in range(2, 17)}, {n: 3 * n + 2 for n in range(2, 13)},
    {3: 0, 4: 0},
)  # fmt: skip
"""Other sizes for those of the examples: ones, others, larger odd ones, none."""


@dataclass(frozen=True)
class Trial:
    """A tactic on a node: ``env`` are the sizes of its symbols, ``about`` says what is tried."""

    tactic: Tactic
    node: Node
    env: Mapping[str, int]
    about: str


def tactics_of(subject: Subject) -> list[Tactic]:
    found = list(subject.objects("tactics"))
    if not found:
        raise NotHere("the pack has no tactics")
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
    device = _device(subject, tactic)
    lacking = [] if device.available() else tactic.lacks(device.properties())
    return device.available() or (f"the device has no {', '.join(lacking)}" if lacking else "")


def _kinds(subject: Subject) -> set[str]:
    return {d.kind for d in subject.session.devices.values()}


def _device(subject: Subject, tactic: Tactic) -> Device:
    return next(d for d in subject.session.devices.values() if d.kind == tactic.device)


def layers_of(subject: Subject, tactic: Tactic) -> list[Layer]:
    """Those that a tactic implements: named, or any few pointwise ones."""
    known = subject.session.layers
    named = [known[k] for k in tactic.implements if k in known]
    if "pointwise" in tactic.implements or "*" in tactic.implements:
        named += [x for x in known.values() if x.is_pointwise and not x.key.startswith("tactix.")]
        named += [known[f"tactix.{n}@1"] for n in ("Add", "Sigmoid", "Clip", "Where") if f"tactix.{n}@1" in known]
    return named


def nodes(subject: Subject, tactic: Tactic, sizes: Mapping[int, int] | None = None) -> Iterator[tuple[str, Node]]:
    """Nodes for a tactic: examples in each floating dtype, with later inputs given or constant, bare or with a bias.

    ``sizes`` replaces sizes of the examples.
    """
    import numpy as np

    for layer in layers_of(subject, tactic):
        for named, text in examples_of(layer):
            for dtype in FLOATS if "f32" in text else ("f32",):
                specs = resized(specs_of(text.replace("f32", dtype)), dict(sizes or {}))
                for fixed in (False, True) if len(specs) > 1 else (False,):
                    rng = np.random.default_rng(len(text))
                    yield from _built(layer, named, specs, fixed, rng, subject)


def _built(
    layer: Layer, named: Mapping[str, Any], specs: Sequence[TensorSpec], fixed: bool, rng: Any, subject: Subject
) -> Iterator[tuple[str, Node]]:
    """The layer alone; the sizes that its example gives must suit it, or there is no node."""
    net = NetworkDefinition({x.key: x for x in subject.session.layers.values()}, layer.key)
    attrs = layer.Attrs(**named)
    try:
        arrays = layer.sample(attrs, list(specs), rng)
        values = [
            net.add_constant(arrays[i]) if fixed and i else net.add_input(f"x{i}", s.dtype.value, s.shape)
            for i, s in enumerate(specs)
        ]
        for i, y in enumerate(net.add_layer(layer, values, **named)):
            net.mark_output(y, f"y{i}")
    except (TactixError, ValueError):
        return
    for node in net.nodes:
        shown = " ".join(f"{s.dtype.value}{tuple(s.shape)}" for s in specs)
        yield f"{layer.name} {shown}{' constant' if fixed else ''}", node


def run(
    subject: Subject, trials: Sequence[Trial], poison: float | None = None, most: int | None = None
) -> Iterator[tuple[str, float]]:
    """Every variant of every trial: what it is, and its departure from the reference in budgets; at most 1 is right.

    ``poison``: stands in the first input, here and there. ``most``: variants of a trial that are run. On a processor
    the kernels run in another process, between pages that fault when touched.

    Raises ExecutionError for a crash, a hang, a write outside; CompilerError.
    """
    made = [(t, _candidate(subject, t, v)) for t in trials for v in offered(subject, t)[:most]]
    if not made:
        return
    device = _device(subject, trials[0].tactic)
    bench, toolchain = subject.bench(device), Toolchain(subject.session.active_compilers())
    binaries = toolchain.compile([c.artifact for _, c in made], device.properties())
    for t, c in made:
        about = f"{c.title} on {t.about}"
        try:
            yield about, _departure(t, c, bench, with_binary(c.artifact, binaries), poison)
        except ExecutionError as e:
            raise ExecutionError(e.what, who=about, why=e.why) from e


def _candidate(subject: Subject, t: Trial, variant: Variant) -> Candidate:
    context = CompileContext(_device(subject, t.tactic).properties(), dict(t.env), THREADS)
    return Candidate(t.tactic, variant, t.tactic.compile(t.node, variant, context), None)


def _departure(t: Trial, c: Candidate, bench: Bench, artifact: KernelArtifact, poison: float | None) -> float:
    arrays, want = bench.trial(t.node, t.env)
    if poison is not None and arrays:
        arrays = [_poisoned(arrays[0], poison), *arrays[1:]]
        want = Expected(t.node, arrays, t.env)
    own = bench.of(c)
    runnable, got = own.prepare(t.node, artifact, c.variant, arrays, t.env)
    runnable.repeat(1)
    return own.check(t.node, c.variant, got, want, GRANTED.get(t.tactic.numerics, 1.0))


def _poisoned(array: Any, value: float) -> Any:
    out = array.copy()
    if out.dtype.kind in "fV":
        out.reshape(-1)[:: max(1, out.size // 3)] = value
    return out


def script(trial: Trial, subject: Subject, poison: float | None) -> str:
    """Python that runs one trial alone."""
    return f"""from tactix_sdk.testing import bids
from tactix_sdk.testing.subject import THREADS, Subject
subject = Subject({subject.dist!r})
tactic = subject.session.tactics[{trial.tactic.key!r}]
for sizes in (None, *bids.SHAPES):
    for about, node in bids.nodes(subject, tactic, sizes):
        if about == {trial.about!r}:
            trial = bids.Trial(tactic, node, {dict(trial.env)!r}, about)
            for what, far in bids.run(subject, [trial], {f"float({str(poison)!r})" if poison is not None else None}):
                print(what, far)
"""


def offered(subject: Subject, trial: Trial) -> list[Variant]:
    """The variants of a node, none where the tactic rejects it."""
    found = trial.tactic.offers(trial.node, _device(subject, trial.tactic).properties())
    return [] if isinstance(found, Reject) else list(found)


def _hold(
    subject: Subject, tactic: Tactic, sizes: Sequence[Mapping[int, int]] = ({},), poison: float | None = None,
    most: int | None = None,
) -> int:  # fmt: skip
    """Run variants on all examples, at each of ``sizes``. Raises Broken for the first that is wrong.

    All at once: a call of the compiler has headers and links whatever it compiles.
    """
    trials = [Trial(tactic, node, {}, about) for s in sizes for about, node in nodes(subject, tactic, s)]
    by_name, tried = {t.about: t for t in trials}, 0
    about = ""
    try:
        for about, far in run(subject, trials, poison, most):
            tried += 1
            if not far <= 1:
                raise ExecutionError(f"departs from the reference by {far:.3g} budgets", who=about)
    except (ExecutionError, CompilerError) as e:
        where = next((t for name, t in by_name.items() if str(e.who).endswith(f" on {name}")), None)
        raise Broken(str(e), script(where, subject, poison) if where else "") from e
    return tried


def _reasons(subject: Subject, tactic: Tactic) -> str:
    device = _device(subject, tactic).properties()
    said = {r.reason for _, n in nodes(subject, tactic) if isinstance(r := tactic.offers(n, device), Reject)}
    return "; ".join(sorted(said)) or f"no example of {', '.join(tactic.implements)}"


@check("tactic-reference")
def right(subject: Subject) -> str:
    """Every variant gives the reference's results on random inputs, and writes nowhere else."""
    (found, away), tried = kernels_of(subject), 0
    for tactic in found:
        own = _hold(subject, tactic)
        if not own and tactic.key not in subject.beyond:
            raise Broken(f"{tactic.key} takes no example of what it implements: {_reasons(subject, tactic)}")
        tried += own
    return f"{tried} runs{away}"


@check("tactic-shapes")
def shapes(subject: Subject) -> str:
    """Odd, single, large and empty sizes give the reference's results, where a tactic takes them."""
    found, away = kernels_of(subject)
    return f"{sum(_hold(subject, t, SHAPES, most=FEW) for t in found)} runs{away}"


@check("tactic-not-a-number")
def not_a_number(subject: Subject) -> str:
    """NaN and infinities in an input come out where the reference has them."""
    found, away = kernels_of(subject)
    keeping = [t for t in found if not getattr(t, "spreads", False)]
    tried = sum(_hold(subject, t, poison=poison, most=FEW) for t in keeping for poison in (float("nan"), float("inf")))
    return f"{tried} runs{away}"


@check("tactic-deterministic")
def same_twice(subject: Subject) -> str:
    """Compiling a node twice gives the same artifact, and bids do not hang on the order of calls."""
    tried = 0
    for tactic in tactics_of(subject):
        if tactic.device not in _kinds(subject):
            continue
        device = _device(subject, tactic)
        properties = device.target("sm_90") if device.available() and tactic.device == "cuda" else device.properties()
        for about, node in nodes(subject, tactic):
            first, second = tactic.offers(node, properties), tactic.offers(node, properties)
            if first != second:
                raise Broken(f"{tactic.key} on {about} offers {first}, then {second}")
            for v in () if isinstance(first, Reject) else first:
                context = CompileContext(properties, {}, THREADS)
                if tactic.compile(node, v, context).digest != tactic.compile(node, v, context).digest:
                    raise Broken(f"{tactic.key} [{v}] on {about} compiles to another artifact the second time")
                tried += 1
    return f"{tried} artifacts"
