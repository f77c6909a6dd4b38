"""Rules: each fires on its example, what it makes gives the same numbers, and rewriting ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix.config import BuilderConfig
from tactix.contracts.layer import random_array
from tactix.contracts.rule import Rule
from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_sdk.testing.report import Broken, NothingToRun, check, counted, for_each
from tactix_sdk.testing.subject import Subject

SIZES = ((3, 4, 5), (1, 7, 2), (8, 8, 8))
TOLERANCE = {"exact": 2e-5, "reassociates": 2e-5, "fp16": 2e-3, "bf16": 1.6e-2}
"""Of the largest result, by what a rule says of its numerics."""


def rules_of(subject: Subject) -> list[Rule]:
    found = list(subject.objects("rules"))
    if not found:
        raise NothingToRun("the pack has no rules")
    return found


def example_of(rule: Rule, subject: Subject) -> NetworkDefinition:
    """The rule's example. Raises Broken if it has none."""
    if rule.example is None:
        raise Broken(f"{rule.key} has no example: give it a function that adds a case to a network")
    net = NetworkDefinition({x.key: x for x in subject.session.layers.values()}, rule.key)
    rule.example(net)
    return net


@dataclass(frozen=True)
class BuildRules:
    """Rules of a build for a ``device``, by its kind; one that a given rule takes part in."""

    device: str
    rules: Sequence[Rule]


def builds(rule: Rule, subject: Subject) -> Iterator[BuildRules]:
    """The builds that a rule is for, one for each kind of device: its own, or all there are."""
    allowed = numerics_beside(rule)
    active = [
        r
        for r in subject.session.active_rules()
        if r.numerics in allowed and r.key not in subject.without
    ]
    kinds = sorted({d.kind for d in subject.session.devices.values()})
    for device in [rule.device] if rule.device else kinds:
        yield BuildRules(device, [r for r in active if r.device in ("", device)])


def numerics_beside(rule: Rule) -> frozenset[str]:
    """Kinds of numerics of a build that a rule takes part in: any build's, and its own."""
    return BuilderConfig().numerics | {rule.numerics}


def script(rule: Rule, device: str = "") -> str:
    """Python that rewrites one example: with the rule alone, or with all of a build for that kind
    of device.
    """
    beside = (
        f"[r for r in session.active_rules() if r.numerics in {sorted(numerics_beside(rule))!r}"
    )
    rules = f'{beside} and r.device in ("", {device!r})]' if device else "[rule]"
    return f"""from tactix.fuse.rewrite import fuse
from tactix.network.definition import NetworkDefinition
from tactix.plugins.session import Session
from tactix_sdk.show import show
session = Session(enable=[{rule.key.partition(".")[0]!r}])
rule = session.rules[{rule.key!r}]
net = NetworkDefinition({{x.key: x for x in session.layers.values()}}, "example")
rule.example(net)
made, trace = fuse(net, {rules}, rule.phases)
print(show(net), show(made), trace.to_json(), sep="\\n\\n")
"""


@check("rule-fires")
def fires(subject: Subject) -> str:
    """Every rule fires on its own example, alone and beside all other rules of a build."""
    tried = for_each(rules_of(subject), lambda rule: _fires(rule, subject))
    return counted(tried, "rewritings, each rule's alone and in builds")


def _fires(rule: Rule, subject: Subject) -> int:
    """How many sets of rules it fires among. Raises Broken."""
    _, alone = fuse(example_of(rule, subject), [rule], rule.phases)
    if not alone.counts.get(rule.key):
        nearly = (
            "; ".join(m.reason for m in alone.near_misses) or "its pattern matches nothing there"
        )
        raise Broken(f"{rule.key} does not fire on its example: {nearly}", script(rule))
    found = list(builds(rule, subject))
    for build in found:
        _, trace = fuse(example_of(rule, subject), build.rules, rule.phases)
        if not trace.counts.get(rule.key):
            raise Broken(
                f"{rule.key} fires on its example alone, but in no build for {build.device}: "
                f"others change it first, {', '.join(trace.counts)}. "
                "Write the pattern of what these leave, or give it a higher benefit",
                script(rule, build.device),
            )
    return 1 + len(found)


@check("rule-numerics")
def numerics(subject: Subject) -> str:
    """What a rule makes is well formed and gives the example's numbers, dtypes and shapes."""
    return counted(for_each(rules_of(subject), lambda rule: _keeps(rule, subject)), "runs")


def _keeps(rule: Rule, subject: Subject) -> int:
    """How often its example was run. Raises Broken."""
    made, _ = fuse(example_of(rule, subject), [rule], rule.phases)
    try:
        verify(made, deep=True)
    except NetworkError as e:
        raise Broken(
            f"{rule.key} makes of its example what is no network: {e}", script(rule)
        ) from e
    for seed, sizes in enumerate(SIZES):
        _same(rule, example_of(rule, subject), made, seed, sizes)
    return len(SIZES)


def _same(
    rule: Rule,
    before: NetworkDefinition,
    after: NetworkDefinition,
    seed: int,
    sizes: tuple[int, ...],
) -> None:
    import numpy as np

    from tactix_sdk.evaluate import evaluate

    rng = np.random.default_rng(seed)
    env = dict(zip(before.symbols(), sizes, strict=False))
    inputs = {
        v.name: random_array(TensorSpec(v.spec.dtype, v.spec.at(env)), rng) for v in before.inputs
    }
    want, got = evaluate(before, inputs), evaluate(after, inputs)
    for name, w in want.items():
        far = departure(got[name], w)
        if far > TOLERANCE[rule.numerics]:
            what = (
                f"{rule.key} says it is {rule.numerics}, and changes {name!r} "
                f"by {far:.2g} of the largest at {env}"
            )
            raise Broken(what, script(rule))


def departure(got: Any, want: Any) -> float:
    """Largest difference relative to the largest result; infinite where dtypes or shapes differ, or
    NaN is made.
    """
    import numpy as np

    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return float("inf")
    if want.dtype.kind not in "fV":
        return 0.0 if np.array_equal(got, want) else float("inf")
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    if not np.array_equal(g[~finite], w[~finite], equal_nan=True):
        return float("inf")
    scale = max(float(np.abs(w[finite]).max(initial=0)), 1e-6)
    return float(np.nan_to_num(np.abs(g[finite] - w[finite]), nan=np.inf).max(initial=0)) / scale


@check("rule-termination")
def termination(subject: Subject) -> str:
    """Rewriting an example with the pack's rules, and with those of any build, ends; a second run
    changes nothing.
    """
    tried = for_each(rules_of(subject), lambda rule: _ends(rule, subject))
    return counted(
        tried, "rewritings", f", alone and with {len(list(_rules_of_other_packs(subject)))} others"
    )


def _ends(rule: Rule, subject: Subject) -> int:
    """Among how many sets of rules its example's rewriting ends. Raises Broken."""
    own = rules_of(subject)
    usual, keys = [r for r in own if _always(r)], {r.key for r in own}
    sets = (usual, [*usual, *_rules_of_other_packs(subject)]) if _always(rule) else ([rule],)
    for which in sets:
        once, _ = fuse(example_of(rule, subject), which, rule.phases)
        again = fuse(once, which, rule.phases)[1].counts
        if mine := {k: n for k, n in again.items() if k in keys}:
            raise Broken(
                f"after {rule.key}'s example was rewritten, {mine} fire again", script(rule)
            )
    return len(sets)


def _rules_of_other_packs(subject: Subject) -> Iterator[Rule]:
    own = {r.key for r in rules_of(subject)}
    return (r for r in subject.session.active_rules() if r.key not in own and _always(r))


def _always(rule: Rule) -> bool:
    """Whether it takes part in builds that no flag changes, for every device."""
    return rule.numerics not in ("fp16", "bf16") and not rule.device
