"""Packs as pip leaves them: a module and its metadata in a folder, made for one test. The kernels
are C, by the SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tactix.plugins import loader

GEMM = '''
"""A pack: products of matrices, one thread, for what is small."""

from tactix_sdk import CompileContext, KernelArtifact, Launch, Reject, Source, Tactic, Variant, hookimpl
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out

C = """
#include <stdint.h>
void TX_ENTRY(const int64_t* args, int tid, int nt) {
  const float *a = (const float*)args[0], *b = (const float*)args[1];
  float* y = (float*)args[2];
  const int64_t count = args[3], from = count * tid / nt, to = count * (tid + 1) / nt;
  for (int64_t i = from; i < to; i++)
    for (int r = 0; r < M; r++) {
      float sum[N] = {0};
      for (int k = 0; k < K; k++)
        for (int c = 0; c < N; c++)
          sum[c] += a[(i * M + r) * K + k] * b[(i * K + k) * N + c];
      for (int c = 0; c < N; c++)
        y[(i * M + r) * N + c] = sum[c];
    }
}"""


class Gemm(Tactic):
    key, implements, source = "acme_gemm.loops@1", ("tactix.MatMul@1",), "acme"

    def variants(self, node, device):
        a, b = (v.spec.shape for v in node.given[:2])
        plain = len(node.body.nodes) == 1 and len(a) == len(b) == 3 and node.outputs[0].spec.dtype.value == "f32"
        return [Variant()] if plain and all(isinstance(d, int) for d in (*a, *b)) else Reject("batches of matrices")

    def compile(self, node, variant, ctx):
        (count, m, k), n = node.given[0].spec.shape, node.outputs[0].spec.shape[-1]
        text = f"#define M {m}\\n#define N {n}\\n#define K {k}\\n" + C
        args = (tensor_in(0), tensor_in(1), tensor_out(), scalar(count))
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", text))


@hookimpl
def tactix_tactics():
    return [Gemm()]
'''

RELU = '''
"""A pack: Relu by a C text."""

from tactix_sdk import KernelArtifact, Launch, Reject, Source, Tactic, Variant, hookimpl
from tactix_sdk.artifacts import scalar, tensor_in, tensor_out, workspace

C = """#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
void TX_ENTRY(const int64_t* a, int tid, int nt) {
  const float* x = (const float*)a[0];
  float *y = (float*)a[1], *scratch = (float*)a[3];
  const int64_t n = a[2];
  BODY
}"""


class Relu(Tactic):
    key, implements, source = "acme_relu.c@1", ("pointwise",), "acme"

    def variants(self, node, device):
        plain = [n.layer.key for n in node.body.nodes] == ["tactix.Relu@1"]
        return [Variant()] if plain else Reject("only a bare Relu")

    def compile(self, node, variant, ctx):
        args = (tensor_in(0), tensor_out(), scalar(node.outputs[0].spec.numel), workspace())
        return KernelArtifact("tactix.cpu.elf@1", (Launch(args),), Source("c", C), workspace=100)


@hookimpl
def tactix_tactics():
    return [Relu()]
'''

LOOP = "for (int64_t i = n * tid / nt; i < n * (tid + 1) / nt; i++) y[i] = x[i] > 0 ? x[i] : 0;"
"""The body of a Relu that is right."""


def relu(body: str) -> str:
    """A pack whose Relu has that body."""
    return RELU.replace("BODY", body)


@contextmanager
def installed(folder: Path, module: str, text: str, version: str = "1.0") -> Iterator[None]:
    """A distribution of one module is there meanwhile; its namespace is the module's name."""
    site = folder / f"{module}-{version}"
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / f"{module}.py").write_text(text)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text(f"[tactix.build.v1]\n{module} = {module}\n")
    (info / "RECORD").write_text(f"{module}.py,,\n")
    sys.path.insert(0, str(site))
    loader.reset_scan()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        sys.modules.pop(module, None)
        loader.reset_scan()
