"""Primitives: the text that each target has of one means what its numpy function does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tactix.contracts.expr import Scalar, walk
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of
from tactix.contracts.tactic import Tactic
from tactix.plugins.names import OWN
from tactix.select.compile import Toolchain, joined
from tactix.select.enumerate import Candidate
from tactix_sdk.scalar_layer import PointwiseLayer
from tactix_sdk.testing import bids
from tactix_sdk.testing.bids import Case, Trial
from tactix_sdk.testing.examples import examples_of, resized, specs_of
from tactix_sdk.testing.report import Broken, NothingToRun, check, counted, for_each, together
from tactix_sdk.testing.subject import Subject

SIZES: tuple[dict[int, int], ...] = ({}, {n: 3 * n + 2 for n in range(2, 17)})
"""In place of those of the examples: a row of vectors and a tail."""


@dataclass(frozen=True)
class Use:
    """A primitive in the expression of a ``layer`` on an example: ``node`` calls it."""

    layer: Layer
    node: Scalar
    example: str

    @property
    def key(self) -> str:
        """The layer's."""
        return self.layer.key

    @property
    def about(self) -> str:
        return f"{self.key}'s primitive {self.node.primitive.name}"


def uses(subject: Subject) -> Iterator[Use]:
    """Every primitive of every layer of the pack, once for each example."""
    for layer in subject.objects("layers"):
        for named, text in examples_of(layer) if layer.is_pointwise else ():
            expression = layer.scalar(attributes_of(layer, named), len(specs_of(text)))
            yield from (
                Use(layer, node, text) for node in walk([expression]) if node.op == "primitive"
            )


def trials(subject: Subject, tactic: Tactic, use: Use) -> list[Trial]:
    """The layer up to the primitive, in each floating dtype, for a tactic of expressions."""
    out = list[Trial]()
    for dtype in bids.FLOATS if "f32" in use.example else ("f32",):
        for sizes in SIZES:
            specs = resized(specs_of(use.example.replace("f32", dtype)), sizes)
            cut = PointwiseLayer(use.key, lambda *elements: use.node)
            case = Case(cut, {}, specs, False, len(use.example))
            shown = " ".join(f"{s.dtype.value}{tuple(s.shape)}" for s in specs)
            out += [
                Trial(tactic, node, {}, f"{use.about}, {shown}")
                for node in bids.built(case, subject, {})
            ]
    return out


@check("primitive-text")
def texts(subject: Subject) -> str:
    """The texts of a layer's primitives give what their numpy functions give; without the device,
    they compile.
    """
    found = list(uses(subject))
    if not found:
        raise NothingToRun("no layer of the pack has a primitive")
    away = dict[str, str]()
    kernels = for_each(found, lambda use: tried(subject, use, away))
    more = "".join(f"; {what}: {why}" for what, why in away.items())
    return counted(kernels, "kernels", f" of texts{more}")


def tried(subject: Subject, use: Use, away: dict[str, str]) -> int:
    """How many kernels of tactix's tactics of expressions were tried. Raises Broken.

    ``away``: gets what could not be done, and why.
    """
    found = subject.session.active_tactics()
    own = [t for t in found if "pointwise" in t.implements and t.key.startswith(f"{OWN}.")]
    return sum(_tried(subject, tactic, use, away) for tactic in own)


def _tried(subject: Subject, tactic: Tactic, use: Use, away: dict[str, str]) -> int:
    if why := bids.why_away(subject, tactic):
        away[f"not run on {tactic.device}"] = why
        return _compile(subject, tactic, use, away)
    ran = list(bids.run(subject, trials(subject, tactic, use)))
    together([Broken(r.wrong, script(use, subject)) for r in ran if r.wrong][:1])
    return len(ran)


def _compile(subject: Subject, tactic: Tactic, use: Use, away: dict[str, str]) -> int:
    """How many kernels of a device that is not here compile. Raises Broken."""
    device = bids.stand_in(subject, tactic)
    toolchain = Toolchain(subject.session.active_compilers())
    made = list[Candidate]()
    for t in trials(subject, tactic, use):
        made += bids.candidates(subject, t, device)
    if lacking := {why for c in made if (why := toolchain.lacks(c.artifact))}:
        away[f"not compiled for {tactic.device}"] = "; ".join(sorted(lacking))
        return 0
    joined(toolchain, (), made, device, lambda c: use.about)
    together([Broken(c.reason, script(use, subject)) for c in made if c.status == "rejected"][:1])
    return len(made)


def script(use: Use, subject: Subject) -> str:
    """Python that tries one primitive alone."""
    return f"""from tactix_sdk.testing import primitives
from tactix_sdk.testing.subject import Subject
subject = Subject({subject.dist!r})
for use in primitives.uses(subject):
    if use.about == {use.about!r}:
        print(primitives.tried(subject, use, {{}}))
"""
