"""PairwiseCoupling in C: the iteration of the layer, a thread a sample, in float64."""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, comment, loop

ROUNDS = 100
"""As libsvm does at most."""
SECONDS_A_TERM = 1e-8
"""Of a pair of classes: some ten rounds over it. No measurement of it is on record."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CouplingTactic()]


class CouplingTactic(Tactic[Node]):
    """Floats of every width that C has."""

    key = "tactix.c_coupling@1"
    implements = ("tactix.PairwiseCoupling@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x = node.given[0].spec
        if node.is_fused or not x.dtype.is_float or not c_text.has_ctype(x.dtype):
            return Reject("this kernel takes floats, and no epilogue")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        classes = node.attrs.classes
        terms = node.given[0].spec.shape[0] * classes * classes
        return c_text.seconds(ctx, (terms, SECONDS_A_TERM))

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, threads = Args(node), max(1, ctx.threads)
        classes = node.attrs.classes
        room = classes * (classes + 2) * 8 * threads
        return c_text.kernel(args, _samples(args, node, threads), ctx, workspace=room)


def _samples(args: Args, node: Node, threads: int) -> list[str]:
    args.size("CLASSES", node.attrs.classes)
    args.size("PAIRS", node.attrs.classes * (node.attrs.classes - 1) // 2)
    store = c_scalar.stored(node.outputs[0].spec.dtype, "p[i]")
    return [
        *c_text.at_most(threads),
        c_text.split(args.size("SAMPLES", node.given[0].spec.shape[0])),
        f"double* const q = {args.workspace(0, 'double')} + tid * CLASSES * (CLASSES + 2);",
        "double* const p = q + CLASSES * CLASSES;",
        "double* const qp = p + CLASSES;",
        loop(
            "sample",
            "lo",
            "hi",
            *_equations(args, node),
            loop("i", "0", "CLASSES", "p[i] = 1.0 / CLASSES;"),
            loop("round", "0", str(ROUNDS), *_round()),
            loop("i", "0", "CLASSES", f"{args.output()}[sample * CLASSES + i] = {store};"),
        ),
    ]


def _equations(args: Args, node: Node) -> list[str]:
    """``q``: of the probability ``won`` that one class wins over another, and that it loses."""
    given = c_scalar.element(node.given[0].spec.dtype, f"{args.input(0)}[sample * PAIRS + pair++]")
    pair = [
        f"const double x = {given};",
        comment("libsvm keeps this far away from 0 and 1."),
        "const double won = x < 1e-7 ? 1e-7 : x > 1 - 1e-7 ? 1 - 1e-7 : x;",
        "q[i * CLASSES + j] = q[j * CLASSES + i] = -won * (1 - won);",
        "q[i * CLASSES + i] += (1 - won) * (1 - won);",
        "q[j * CLASSES + j] += won * won;",
    ]
    return [
        "int64_t pair = 0;",
        loop("i", "0", "CLASSES", "q[i * CLASSES + i] = 0;"),
        loop("i", "0", "CLASSES", loop("j", "i + 1", "CLASSES", *pair)),
    ]


def _round() -> list[str]:
    """One class after the other is set right, and all are scaled so that their sum stays 1."""
    return [
        "double pqp = 0, worst = 0;",
        loop(
            "i",
            "0",
            "CLASSES",
            "qp[i] = 0;",
            loop("j", "0", "CLASSES", "qp[i] += q[i * CLASSES + j] * p[j];"),
            "pqp += p[i] * qp[i];",
        ),
        loop("i", "0", "CLASSES", "worst = TX_MAX(fabs(qp[i] - pqp), worst);"),
        "if (worst < 0.005 / CLASSES) break;",
        loop(
            "i",
            "0",
            "CLASSES",
            "const double own = q[i * CLASSES + i], step = (pqp - qp[i]) / own;",
            "p[i] += step;",
            "const double more = 1 + step;",
            "pqp = (pqp + step * (step * own + 2 * qp[i])) / (more * more);",
            loop("j", "0", "CLASSES", "qp[j] = (qp[j] + step * q[i * CLASSES + j]) / more;"),
            loop("j", "0", "CLASSES", "p[j] /= more;"),
        ),
    ]
