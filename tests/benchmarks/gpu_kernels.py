"""Times the generated CUDA kernels against torch, layer by layer.

``python tests/benchmarks/gpu_kernels.py [part of a name]``

The layers of ResNet-50 and BERT-base at batch 1, 8 and 128 in float16. Both sides: a CUDA graph of
20 repeats, the median of seven replays between events. Prints microseconds, TFLOPS, torch's time
over ours, and the variant that won.

Names like ``int4 1 x 4096 x 14336`` are products of few rows with the weights of a decoder's layer,
of ``int4`` and ``int8`` in blocks of 32, and ``fp16``. Weights come from memory in every run: both
sides go round through copies of them, of 96 MiB together or more. Prints the share of BANDWIDTH at
which weights and scales are read, and all variants' times. A name of these runs these alone.

Names like ``float8 8192 x 8192 x 8192`` are products of 8-bit floats, and ``bytes`` of 8-bit
integers, with a scale and a bias for each column and results of float16 and 8 bits; torch's are
``_scaled_mm``, which scales by one number, and ``_int_mm``, which gives int32.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(TESTS / "shared"),
    str(TESTS / "gpu"),
    str(TESTS / "builtin" / "cuda"),
    str(TESTS / "builtin" / "tactics"),
]

import asked  # noqa: E402
import gpu_cases  # noqa: E402
import harness as h  # noqa: E402

from tactix.base.dtypes import DType  # noqa: E402
from tactix.contracts.graph import Node  # noqa: E402
from tactix.contracts.launcher import Runnable  # noqa: E402
from tactix.contracts.tactic import CompileContext, Reject, Tactic  # noqa: E402
from tactix.select.bench import Bench, sample  # noqa: E402
from tactix.select.compile import Toolchain, with_binary  # noqa: E402
from tactix_codegen.cuda.target import COLD  # noqa: E402
from tactix_cuda.bench import CudaBench  # noqa: E402
from tactix_cuda.device import CudaDevice, the_device  # noqa: E402
from tactix_cuda.nvrtc import NvrtcCompiler  # noqa: E402
from tactix_cuda.tactics import attention, conv, few_bits, few_bits_gemv, gemm, gemv  # noqa: E402
from tactix_cuda.tactics.hopper import conv as hopper_conv  # noqa: E402
from tactix_cuda.tactics.hopper import gemm as hopper_gemm  # noqa: E402
from tactix_cuda.tactics.hopper import stem as hopper_stem  # noqa: E402

REPEATS, ROUNDS = 20, 7
RESNET = [  # channels, height, output channels, kernel, stride, with a residual
    (3, 224, 64, 7, 2, False), (64, 56, 64, 1, 1, False), (64, 56, 64, 3, 1, False), (64, 56, 256, 1, 1, True),
    (256, 56, 64, 1, 1, False), (256, 56, 128, 1, 1, False), (128, 56, 128, 3, 2, False), (256, 56, 512, 1, 2, False),
    (128, 28, 512, 1, 1, True), (512, 28, 128, 1, 1, False), (128, 28, 128, 3, 1, False), (256, 28, 256, 3, 2, False),
    (512, 28, 1024, 1, 2, False), (256, 14, 1024, 1, 1, True), (1024, 14, 256, 1, 1, False),
    (256, 14, 256, 3, 1, False), (512, 14, 512, 3, 2, False), (1024, 14, 2048, 1, 2, False), (512, 7, 2048, 1, 1, True),
    (2048, 7, 512, 1, 1, False), (512, 7, 512, 3, 1, False),
]  # fmt: skip
BERT = [
    ("qkv", 768, 2304, False),
    ("out", 768, 768, False),
    ("up", 768, 3072, True),
    ("down", 3072, 768, False),
]
SEQUENCE, HEADS, DIM = 128, 12, 64
DECODER = [(4096, 14336), (14336, 4096), (4096, 4096)]
ROWS, BLOCK = (1, 4, 8, 16, 64), 32
BANDWIDTH = 4.27e12
"""Bytes a second that an H200's memory gives to a kernel which only reads."""


@dataclass
class Layer:
    """A node, the tactics to try, its operations, and the same in torch."""

    name: str
    node: Node
    tactics: list[Tactic]
    flops: float
    peer: Callable[[], Any]


def half(*shape: int) -> Any:
    made = np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)
    return (made / np.sqrt(shape[1] if len(shape) == 4 else shape[0])).astype(np.float16)


def on_gpu(array: Any, last: bool = False) -> Any:
    import torch

    t = torch.from_numpy(array).cuda()
    return t.contiguous(memory_format=torch.channels_last) if last else t


def resnet(batch: int) -> Iterator[Layer]:
    import torch

    for c, size, co, k, stride, rest in RESNET:
        x, w, b, pad = half(batch, c, size, size), half(co, c, k, k), half(co), k // 2
        out = (size + 2 * pad - k) // stride + 1
        y = half(batch, co, out, out)
        nodes: list[Any] = [
            ("Convolution", (0, 1, 2), {"strides": (stride,) * 2, "pads": (pad,) * 4})
        ]
        nodes += [("Add", (4, 3), {}), ("Relu", (5,), {})] if rest else [("Relu", (3,), {})]
        arrays = [x, w, b, *([y] if rest else [])]
        node = h.fused(arrays, nodes, anchor=0, constants=[1, 2])
        tx, tw, tb, ty = on_gpu(x, True), on_gpu(w, True), on_gpu(b), on_gpu(y, True)

        def peer(
            tx: Any = tx,
            tw: Any = tw,
            tb: Any = tb,
            ty: Any = ty,
            s: int = stride,
            p: int = pad,
            r: bool = rest,
        ) -> Any:
            z = torch.nn.functional.conv2d(tx, tw, tb, s, p)
            return torch.relu_(z.add_(ty) if r else z)

        name = f"conv b{batch} {c}x{size} -> {co} k{k} s{stride}{' +res' if rest else ''}"
        tactics = [*conv.tactics(), *hopper_conv.tactics(), *hopper_stem.tactics()]
        yield Layer(name, node, tactics, 2.0 * batch * out * out * co * c * k * k, peer)
    yield matrix(f"fc b{batch}", batch, 2048, 1000, False)


def matrix(name: str, m: int, k: int, n: int, gelu: bool) -> Layer:
    import torch

    x, w, b = half(m, k), half(k, n), half(n)
    nodes: list[Any] = [
        ("MatMul", (0, 1), {}),
        ("Add", (3, 2), {}),
        *([("Gelu", (4,), {})] if gelu else []),
    ]
    tx, tw, tb = on_gpu(x), on_gpu(np.ascontiguousarray(w.T)), on_gpu(b)

    def peer() -> Any:
        z = torch.nn.functional.linear(tx, tw, tb)
        return torch.nn.functional.gelu(z) if gelu else z

    node = h.fused([x, w, b], nodes, anchor=0, constants=[1, 2])
    return Layer(
        name,
        node,
        [*gemm.tactics(), *hopper_gemm.tactics(), *gemv.tactics()],
        2.0 * m * k * n,
        peer,
    )


def bert(batch: int) -> Iterator[Layer]:
    import torch

    for name, k, n, gelu in BERT:
        yield matrix(f"bert b{batch} {name}", batch * SEQUENCE, k, n, gelu)
    q, k_, v = (half(batch, HEADS, SEQUENCE, DIM) for _ in range(3))
    tensors = [on_gpu(x) for x in (q, k_, v)]
    node = h.node("Attention", [q, k_, v], scale=DIM**-0.5)
    flops = 4.0 * batch * HEADS * SEQUENCE * SEQUENCE * DIM
    yield Layer(
        f"bert b{batch} attention",
        node,
        attention.tactics(),
        flops,
        lambda: torch.nn.functional.scaled_dot_product_attention(*tensors),
    )


NARROW = [(8192, 8192, 8192), (16384, 768, 3072), (16384, 3072, 768), (1024, 768, 3072)]


def narrow() -> Iterator[Layer]:
    """Products of operands of 8 bits."""
    import torch

    rng = np.random.default_rng(2)
    for m, k, n in NARROW:
        scale, bias = rng.random(n, dtype=np.float32) / k, rng.random(n, dtype=np.float32)
        a, b = (rng.integers(-127, 128, shape, np.int8) for shape in ((m, k), (k, n)))
        small = [(x.astype(np.float32) / 64).astype(DType.FP8.numpy) for x in (a, b)]
        flops = 2.0 * m * k * n
        ta, tb = on_gpu(a), on_gpu(np.ascontiguousarray(b.T)).t()
        fa, fb = ((t.to(torch.float16) / 64).to(torch.float8_e4m3fn) for t in (ta, tb.t()))
        one, fb = torch.ones((), device="cuda"), fb.t()

        def floats(fa: Any = fa, fb: Any = fb, one: Any = one) -> Any:
            return torch._scaled_mm(fa, fb, one, one, out_dtype=torch.float16, use_fast_accum=True)

        def integers(ta: Any = ta, tb: Any = tb) -> Any:
            return torch._int_mm(ta, tb)

        body: list[Any] = [
            ("Float8MatMul", (0, 1), {}), ("Mul", (4, 2), {}), ("Add", (5, 3), {}), ("Cast", (6,), {"to": DType.FP16}),
        ]  # fmt: skip
        node = h.fused([*small, scale, bias], body, anchor=0, constants=[1, 2, 3])
        yield Layer(f"float8 {m} x {k} x {n}", node, hopper_gemm.tactics(), flops, floats)
        body = [
            ("IntegerMatMul", (0, 1), {}), ("Cast", (4,), {"to": DType.FP32}), ("Mul", (5, 2), {}),
            ("Add", (6, 3), {}), ("Quantize", (7,), {"dtype": DType.INT8}),
        ]  # fmt: skip
        node = h.fused([a, b, scale, bias], body, anchor=0, constants=[1, 2, 3])
        tactics = [*hopper_gemm.tactics(), *gemm.tactics()]
        yield Layer(f"bytes {m} x {k} x {n}", node, tactics, flops, integers)


@dataclass
class Weights:
    """A product of few rows, the tactics to try, bytes of weights and scales, and the same of
    float16 in torch.
    """

    name: str
    node: Node
    tactics: list[Tactic]
    stored: int
    peer: Callable[[], Any]


def decoder(wanted: str) -> Iterator[Weights]:
    import torch

    rng = np.random.default_rng(1)
    for (k, n), m in itertools.product(DECODER, ROWS):
        names = {bits: f"{bits} {m} x {k} x {n}" for bits in ("int4", "int8", "fp16")}
        if not any(wanted in name for name in names.values()):
            continue
        x, w = half(m, k), half(k, n)
        turned = on_gpu(np.ascontiguousarray(w.T))
        copies = [turned.clone() for _ in range(-(-COLD // w.nbytes))]
        left, turns = on_gpu(x), itertools.cycle(copies)

        def peer(left: Any = left, turns: Any = turns) -> Any:
            return torch.nn.functional.linear(left, next(turns))

        for bits in (4, 8):
            raw = rng.integers(0, 256, (n, k // BLOCK, BLOCK * bits // 8), np.uint8)
            scale = (rng.random((n, k // BLOCK)) / 100).astype(np.float16)
            node = h.node("FewBitsMatMul", [x, raw, scale], [1, 2], bits=bits, block_size=BLOCK)
            tactics = [*few_bits_gemv.tactics(), *few_bits.tactics()]
            yield Weights(names[f"int{bits}"], node, tactics, raw.nbytes + scale.nbytes, peer)
        tactics = [*gemv.tactics(), *hopper_gemm.tactics(), *gemm.tactics()]
        node = h.node("MatMul", [x, w], [1])
        yield Weights(names["fp16"], node, tactics, w.nbytes, peer)


def torch_seconds(peer: Callable[[], Any]) -> float:
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            peer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            peer()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / REPEATS)
    return statistics.median(times)


def prepared(
    device: CudaDevice, runs: Bench, node: Node, tactics: list[Tactic]
) -> Iterator[tuple[Runnable, str]]:
    """What all variants of the tactics run, with their names."""
    properties, arrays = device.properties(), sample(node, {})
    made = []
    for tactic in tactics:
        offered = asked.variants(tactic, node, properties)
        if not isinstance(offered, Reject):
            made += [
                (tactic, v, asked.artifact(tactic, node, v, CompileContext(properties)))
                for v in offered
            ]
    binaries = Toolchain([NvrtcCompiler()]).compile([a for _, _, a in made], properties)
    for tactic, variant, artifact in made:
        runnable, _ = runs.prepare(node, with_binary(artifact, binaries), variant, arrays, {})
        yield runnable, f"{tactic.key.split('.')[1]} {variant}"


def our_seconds(device: CudaDevice, layer: Layer) -> tuple[float, str]:
    """The least median over all variants, and which it was."""
    runs, best = gpu_cases.bench(device), (float("inf"), "none")
    for runnable, variant in prepared(device, runs, layer.node, layer.tactics):
        device.measure(runnable, REPEATS)
        seconds = statistics.median(
            device.measure(runnable, REPEATS) / REPEATS for _ in range(ROUNDS)
        )
        best = min(best, (seconds, variant))
    return best


def cold_seconds(device: CudaDevice, layer: Weights) -> list[tuple[float, str]]:
    """The medians of all variants, the least first; constants are in no cache."""
    runs, found = gpu_cases.bench(device, CudaBench), []
    for runnable, variant in prepared(device, runs, layer.node, layer.tactics):
        runs.measure(runnable, REPEATS)
        times = [runs.measure(runnable, REPEATS) / REPEATS for _ in range(ROUNDS)]
        found.append((statistics.median(times), variant))
    return sorted(found)


def weights(device: CudaDevice, wanted: str) -> bool:
    """Whether any product has such a name."""
    shown = False
    print(f"{'product':24} {'us':>8} {'% of bandwidth':>15} {'torch us':>9} {'ratio':>6}  variants")
    for layer in decoder(wanted):
        if wanted not in layer.name:
            continue
        shown = True
        found = cold_seconds(device, layer)
        seconds, peer = found[0][0], torch_seconds(layer.peer)
        share = 100 * layer.stored / BANDWIDTH / seconds
        variants = ", ".join(f"{v}: {s * 1e6:.2f}" for s, v in found)
        print(
            f"{layer.name:24} {seconds * 1e6:8.2f} {share:15.1f} {peer * 1e6:9.2f} {peer / seconds:6.2f}  {variants}",
            flush=True,
        )
    return shown


def main() -> None:
    device = the_device()
    if why := device.available():
        raise SystemExit(why)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if weights(device, wanted) and wanted:
        return
    print(f"{'layer':44} {'us':>8} {'TFLOPS':>7} {'torch us':>9} {'ratio':>6}  variant")
    layers = [narrow(), *(part(batch) for batch in (1, 8, 128) for part in (resnet, bert))]
    for layer in itertools.chain(*layers):
        if wanted not in layer.name:
            continue
        seconds, variant = our_seconds(device, layer)
        peer = torch_seconds(layer.peer)
        rate = layer.flops / seconds * 1e-12
        print(
            f"{layer.name:44} {seconds * 1e6:8.2f} {rate:7.1f} {peer * 1e6:9.2f} {peer / seconds:6.2f}  {variant}",
            flush=True,
        )


if __name__ == "__main__":
    main()
