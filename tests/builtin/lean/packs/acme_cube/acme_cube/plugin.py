"""The third power, by a kernel in C."""

from __future__ import annotations

from typing import Any

from tactix_sdk import KernelArtifact, Launch, Layer, Source, Tactic, Variant, hookimpl
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out

CODE = """
void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x = (const float*)a[0];
    float* y = (float*)a[1];
    for (int64_t i = tid; i < a[2]; i += nt) y[i] = x[i] * x[i] * x[i];
}
"""


class Cube(Layer):
    key = "acme_cube.Cube@1"

    def infer(self, attrs: Any, inputs: Any) -> Any:
        return [inputs[0].plain()]

    def reference(self, attrs: Any, x: Any) -> Any:  # type: ignore[override]
        return (x * x * x,)


class CubeC(Tactic):
    key = "acme_cube.c@1"
    implements = (Cube.key,)
    source = "acme_cube"

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()]

    def cost(self, node: Any, variant: Any, ctx: Any) -> float:
        return 1e-6

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        launch = Launch((tensor_in(0), tensor_out(), scalar(node.outputs[0].spec.numel)))
        return KernelArtifact(
            "tactix.cpu.elf@1", (launch,), Source("c", CODE, ("#include <stdint.h>\n",))
        )


@hookimpl
def tactix_layers() -> list[Layer]:
    return [Cube()]


@hookimpl
def tactix_tactics() -> list[Tactic]:
    return [CubeC()]
