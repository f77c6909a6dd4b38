"""The core needs no built-in: with the built-in packs blocked, a pack of the test's own builds and
runs a network.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

PACK = """
import ctypes, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("tactix_") and name.split(".")[0] not in ("tactix_sdk", "tactix_codegen"):
            raise ModuleNotFoundError(f"{name} is blocked")

sys.meta_path.insert(0, Block())

import numpy as np
import tactix
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import Device, DeviceProperties
from tactix.contracts.expr import tanh
from tactix.contracts.flavour import Flavour
from tactix.contracts.launcher import Launcher
from tactix_sdk.scalar_layer import pointwise
from tactix.contracts.tactic import Tactic, Variant
from tactix.plugins.hookspecs import hookimpl

@pointwise("toy.Squash@1")
def squash(x, *, gain=2.0):
    return tanh(x * gain)

class ToyTactic(Tactic):
    key, implements, device, source = "toy.python@1", ("pointwise",), "toy", "python"
    def variants(self, node, device):
        return [Variant()]
    def compile(self, node, variant, ctx):
        return KernelArtifact("toy.python@1", params={"gain": node.attrs.gain})

class Run:
    def __init__(self, steps):
        self.steps = steps
    def bind(self, env, addresses):
        self.env, self.addresses = env, list(addresses)
    def rebind(self, buffer, address):
        self.addresses[buffer] = address
    def view(self, operand):
        shape = operand.spec.at(self.env)
        n = int(np.prod(shape)) * operand.spec.dtype.itemsize
        raw = (ctypes.c_char * n).from_address(self.addresses[operand.buffer])
        return np.frombuffer(raw, operand.spec.dtype.numpy).reshape(shape)
    def __call__(self):
        for s in self.steps:
            self.view(s.outputs[0])[...] = np.tanh(self.view(s.inputs[0]) * s.artifact.params["gain"])
    def repeat(self, times):
        for _ in range(times):
            self()

class ToyLauncher(Launcher):
    key, device = "toy.python@1", "toy"
    def link(self, steps, ctx):
        return Run(steps)

class ToyDevice(Device):
    key, kind, host_memory = "toy.device@1", "toy", True
    def properties(self):
        return DeviceProperties("toy", "toy")
    def copy_in(self, address, array):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
    def copy_out(self, array, address):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
    def link(self, steps, launchers, ctx):
        return launchers["toy.python@1"].link(steps, ctx)

class ToyAllocator:
    key, device = "toy.heap", "toy"
    def __init__(self):
        self.held = {}
    def allocate(self, size, alignment=64, stream=0):
        b = ctypes.create_string_buffer(size + alignment)
        self.held[ctypes.addressof(b)] = b
        return -(-ctypes.addressof(b) // alignment) * alignment
    def deallocate(self, address, stream=0):
        pass

class ToyFlavour(Flavour):
    key = "toy"
    def load(self, plan, session, device, options):
        from tactix.run.engine import Engine
        return Engine(plan, session, device, options)

class Pack:
    TACTIX_NAMESPACE = "toy"
    @hookimpl
    def tactix_layers(self): return [squash]
    @hookimpl
    def tactix_tactics(self): return [ToyTactic()]
    @hookimpl
    def tactix_launchers(self): return [ToyLauncher()]
    @hookimpl
    def tactix_devices(self): return [ToyDevice()]
    @hookimpl
    def tactix_allocators(self): return [ToyAllocator()]
    @hookimpl
    def tactix_flavours(self): return [ToyFlavour()]

session = tactix.Session(plugins=[("toy", Pack())], discover=False, enable=["toy"])
"""

BUILD = """
builder = tactix.Builder(session=session)
net = builder.create_network("squash")
(y,) = net.add_layer("toy.Squash", [net.add_input("x", "f32", ("n", 3))], gain=0.5)
net.mark_output(y, "y")
config = tactix.BuilderConfig(device="toy.device@1", timing_cache=False)
plan = builder.build_plan(net, config)
engine = tactix.Runtime(session=session, flavour="toy", allocator="toy.heap").load(plan)
x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
np.testing.assert_allclose(engine(x), np.tanh(x * 0.5), rtol=1e-6)
assert {m.split(".")[0] for m in sys.modules if m.startswith("tactix")} <= {"tactix", "tactix_sdk", "tactix_codegen"}
print("right")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )


def test_a_network_builds_and_runs() -> None:
    done = run(PACK + BUILD)
    assert done.stdout.strip() == "right", done.stderr


def test_what_is_missing_is_told() -> None:
    done = run(PACK + 'tactix.Builder(session=session).import_model(b"not a model")')
    assert "no importer knows this model" in done.stderr
