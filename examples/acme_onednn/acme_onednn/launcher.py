"""Runs the artifacts of this pack: a primitive for each step and shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from acme_onednn.library import (
    RESULT,
    SCRATCHPAD,
    SOURCE,
    WEIGHTS,
    Handle,
    OneDnn,
    library,
    operand_of,
)
from tactix_sdk import Calls, Launcher, LinkContext, Step, errors


class Product:
    """A step, and its primitive at a shape."""

    def __init__(self, step: Step, dnnl: OneDnn, threads: int) -> None:
        self.step, self.dnnl, self.stream = step, dnnl, dnnl.stream()
        self.threads = 1 if step.artifact.params["threads"] == "one" else threads
        given = step.artifact.params
        self.a, self.b, self.posts = (
            step.inputs[given["a"]],
            step.inputs[given["b"]],
            given["posts"],
        )

    def size(self, env: Mapping[str, int]) -> None:
        (*rows, k), (_, n) = self.a.spec.at(dict(env)), self.b.spec.at(dict(env))
        m, dtype = math.prod(rows), self.a.spec.dtype.value
        self.empty = m == 0 or n == 0
        self.memories, self.buffers = dict[int, Handle](), dict[int, int]()
        if self.empty:
            return
        descs = {
            name: self.dnnl.desc(shape, dtype)
            for name, shape in (("a", (m, k)), ("b", (k, n)), ("y", (m, n)))
        }
        steps = []
        for i, (algorithm, alpha, other) in enumerate(self.posts):
            desc = None
            if other >= 0:
                operand = self.step.inputs[other]
                desc = self.dnnl.desc((1, n) if operand.spec.rank == 1 else (m, n), dtype)
                self._place(operand_of(i), desc, operand.buffer)
            steps.append((algorithm, alpha, desc))
        for argument, name, buffer in (
            (SOURCE, "a", self.a.buffer),
            (WEIGHTS, "b", self.b.buffer),
            (RESULT, "y", self.step.outputs[0].buffer),
        ):
            self._place(argument, descs[name], buffer)
        with self.dnnl.threads(self.threads):
            made = self.dnnl.matmul(descs["a"], descs["b"], descs["y"], self.dnnl.post_ops(steps))
        self.primitive, self.memories[SCRATCHPAD] = made

    def _place(self, argument: int, desc: Handle, buffer: int) -> None:
        self.memories[argument], self.buffers[argument] = self.dnnl.memory(desc), buffer

    def run(self, addresses: Sequence[int]) -> None:
        if self.empty:
            return
        for argument, buffer in self.buffers.items():
            self.dnnl.place(self.memories[argument], addresses[buffer])
        with self.dnnl.threads(self.threads):
            self.dnnl.execute(self.primitive, self.stream, self.memories)


class OneDnnLauncher(Launcher):
    """oneDNN shares work between threads of OpenMP, as many as the engine may use."""

    key = "acme_onednn.matmul@1"
    host_code = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Calls:
        """Raises ExecutionError where this machine has no oneDNN, and for a step that is no
        product.
        """
        if empty := next((s for s in steps if not s.outputs), None):
            raise errors.ExecutionError("the step is no product", who=empty.name)
        found = library()
        if found is None:
            raise errors.ExecutionError(
                "no oneDNN was found",
                who=steps[0].name,
                do="pip install onednn-cpu-gomp, or the system's libdnnl",
            )
        return Calls([Product(s, found, ctx.threads) for s in steps])
