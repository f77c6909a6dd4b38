"""Runs the artifacts of this pack: one call of BLAS for each, straight between the plan's buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from acme_blas.blas import Gemm, gemm
from tactix_sdk import Calls, Launcher, LinkContext, Step, array_at, errors


class Product:
    """A step, and what it needs at a shape: its sizes, and whether a row is added."""

    def __init__(self, step: Step, call: Gemm) -> None:
        self.step, self.call = step, call
        given = step.artifact.params
        self.a, self.b = (step.inputs[given[name]] for name in "ab")
        self.added = step.inputs[given["added"]] if given["added"] >= 0 else None
        self.out = step.outputs[0]

    def size(self, env: Mapping[str, int]) -> None:
        (*rows, self.k), (_, self.n) = self.a.spec.at(dict(env)), self.b.spec.at(dict(env))
        self.m = math.prod(rows)
        self.row = self.added is not None and self.added.spec.rank == 1 and len(rows) > 0
        self.dtype = self.out.spec.dtype.numpy

    def run(self, at: Sequence[int]) -> None:
        if self.m == 0 or self.n == 0:
            return
        if self.added is not None:
            shape = (self.n,) if self.row else (self.m, self.n)
            row = array_at(at[self.added.buffer], shape, self.dtype)
            array_at(at[self.out.buffer], (self.m, self.n), self.dtype)[...] = row
        beta = 0.0 if self.added is None else 1.0
        self.call(
            self.m, self.n, self.k, at[self.a.buffer], at[self.b.buffer], beta, at[self.out.buffer]
        )


class BlasLauncher(Launcher):
    """BLAS shares work between threads of its own: how many, its own environment says
    (``OPENBLAS_NUM_THREADS``).
    """

    key = "acme_blas.gemm@1"
    host_code = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Calls:
        """Raises ExecutionError where this machine has no BLAS, and for a step that is no product."""
        made = []
        for s in steps:
            if not s.outputs:
                raise errors.ExecutionError("the step is no product", who=s.name)
            call = gemm(s.outputs[0].spec.dtype.value)
            if call is None:
                raise errors.ExecutionError(
                    "no BLAS was found", who=s.name, do="Install numpy's wheel, or OpenBLAS"
                )
            made.append(Product(s, call))
        return Calls(made)
