"""Runs table cases on the GPU: every variant against the reference, within the dtype's budget."""

from __future__ import annotations

from collections.abc import Sequence

import asked
import simt

import tactix_cublaslt
import tactix_cuda
import tactix_cudnn
from tactix.contracts.launcher import LinkContext
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.bench import Bench, Expected, sample
from tactix.select.compile import Toolchain, with_binary
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator
from tactix_cuda.nvrtc import NvrtcCompiler
from tactix_ops.layers import all_layers


def bench(device: CudaDevice, kind: type[Bench] = Bench) -> Bench:
    """A bench of that kind over the device's own pool."""
    found = {x.key: x for x in all_layers()}
    context = LinkContext(device, 1, found.__getitem__)
    return kind(
        context,
        {x.key: x for p in (tactix_cuda, tactix_cublaslt, tactix_cudnn) for x in p.launchers()},
        PoolAllocator(device),
    )


def check_all(device: CudaDevice, cases: Sequence[simt.Case], runs: int = 1) -> None:
    """Compile all variants of all cases, run each so often, then once more, and assert that results
    are right after both.
    """
    properties, benched = device.properties(), bench(device)
    made = []
    for case in cases:
        offered = case.only or asked.variants(case.tactic, case.node, properties)
        assert not isinstance(offered, Reject), offered.reason
        made += [
            (
                case,
                v,
                asked.artifact(
                    case.tactic, case.node, v, CompileContext(properties, dict(case.env))
                ),
            )
            for v in offered
        ]
    binaries = Toolchain([NvrtcCompiler()]).compile([a for _, _, a in made], properties)
    for case, variant, artifact in made:
        arrays = list(case.arrays) if case.arrays is not None else sample(case.node, case.env)
        want = Expected(case.node, arrays, case.env)
        runnable, got = benched.prepare(
            case.node, with_binary(artifact, binaries), variant, arrays, case.env
        )
        for times in (runs, 1):
            for _ in range(times):
                runnable()
            far = benched.check(case.node, variant, got, want)
            assert far <= case.budget, f"{case.node.name} [{variant}]: {far} times the budget"
