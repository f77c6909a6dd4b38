"""Sound plans to damage, built anew: native code, numpy steps, branches, Python objects, a pack;
and sealing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser

import tactix
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_sdk.pack_files import PackFiles
from tactix_ship.embed import wheel_of, with_wheels

PROLOGUE = struct.Struct("<8sIIQQ32s")

SUMS = """\
  go = Constant <value = bool {1}> ()
  zero = Constant <value = float {0}> ()
  last, sums = Loop (times, go, zero) <
    body = b (int64 i, bool c, float before) => (bool more, float now, float s) {
      one = Constant <value = float {1}> ()
      now = Add (before, one)
      s = Mul (now, now)
      more = Identity (c)
    }
  >
"""
"""Statements of a graph with an input ``times``: a loop whose iterations give numbers and their
squares.
"""

BRANCHES = (
    """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, bool which, int64 times) => (float[m, 4] y, float[k] sums) {
  r = Relu (x)
  y = If (which) <
    then_branch = yes () => (float[a, 4] t) { t = Tanh (r) },
    else_branch = no () => (float[c, 4] e) { e = Concat <axis = 0> (r, x) }
  >
"""
    + SUMS
    + "}\n"
)

OBJECTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, float[m, 3] y, int64 one) => (seq(float[?, 3]) s, float[k, 3] z) {
  s = SequenceConstruct (x, y)
  z = SequenceAt (s, one)
}
"""

HELD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, int64 zero, int64 one) => (float[k, 4] z, float[j, 4] v)
<float[4, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> {
  r = Relu (x)
  s = SequenceConstruct (r, w)
  v = SequenceAt (s, zero)
  z = SequenceAt (s, one)
}
"""

BODY = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, bool which, int64 one) => (float[m, 4] z)
<float[4, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> {
  r = Relu (x)
  z = If (which) <
    then_branch = yes () => (float[a, 4] t) {
      s = SequenceConstruct (r, w)
      t = SequenceAt (s, one)
    },
    else_branch = no () => (float[c, 4] e) { e = Relu (r) }
  >
}
"""

LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, int64 times) => (float[n, 4] z) {
  go = Constant <value = bool {1}> ()
  z = Loop (times, go, x) <
    body = b (int64 i, bool c, float[n, 4] before) => (bool more, float[n, 4] now) {
      now = Tanh (before)
      more = Identity (c)
    }
  >
}
"""

STACKED = (
    """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, int64 times) => (float last, float[k] sums) {
"""
    + SUMS
    + "}\n"
)

PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] z) { y = Relu (x)  z = Softmax (y) }
"""

PACK = """
from tactix_sdk import Layer, hookimpl
class Half(Layer):
    key = "acme_half.Half@1"
    def infer(self, attrs, inputs):
        return [inputs[0].plain()]
    def reference(self, attrs, x):
        return (x / 2,)
@hookimpl
def tactix_layers():
    return [Half()]
"""

NUMPY, PRODUCED = {"numpy"}, {"numpy", "view", "control"}


def _config(sources: set[str] | None = None) -> tactix.BuilderConfig:
    return tactix.BuilderConfig(
        builder_optimization_level=0, timing_cache=False, tactic_sources=sources
    )


def _perceptron(builder: tactix.Builder) -> Any:
    """A product with a symbolic batch, and a softmax."""
    net = builder.create_network("perceptron")
    x = net.add_input("x", "f32", ("batch", 20))
    w = net.add_constant(np.random.default_rng(3).standard_normal((20, 6), np.float32))
    (m,) = net.add_layer("tactix.MatMul", [x, w])
    net.mark_output(net.add_layer("tactix.Softmax", [m], axis=-1)[0], "y")
    return net


def _convolution(builder: tactix.Builder) -> Any:
    """Blocked formats, several steps, a workspace."""
    rng = np.random.default_rng(4)
    net = builder.create_network("convolution")
    x = net.add_input("x", "f32", ("batch", 8, 5, 5))
    w = net.add_constant(rng.standard_normal((20, 8, 3, 3), np.float32))
    (c,) = net.add_layer("tactix.Convolution", [x, w, None], pads=(1, 1, 1, 1))
    (c,) = net.add_layer("tactix.Relu", [c])
    net.mark_output(net.add_layer("tactix.ReduceMean", [c], axes=(2, 3), keepdims=False)[0], "y")
    return net


def produced_plan(model: str) -> Plan:
    """Of numpy steps and produced ones alone, which need no trust."""
    builder = tactix.Builder()
    return builder.build_plan(
        builder.import_model(onnx.parser.parse_model(model)), _config(PRODUCED)
    )


def _refitted(builder: tactix.Builder) -> Plan:
    """With recipes that turn and pad weights."""
    config = tactix.BuilderConfig(
        builder_optimization_level=0, timing_cache=False, flags={tactix.BuilderFlag.REFIT}
    )
    return builder.build_plan(_convolution(builder), config)


def _with_pack() -> Plan:
    """One that needs the Python that it brings."""
    module = ModuleType("acme_half")
    exec(PACK, module.__dict__)
    builder = tactix.Builder(session=tactix.Session(plugins=[("acme_half", module)]))
    net = builder.create_network("packs")
    net.mark_output(
        net.add_layer("acme_half.Half", [net.add_input("x", "f32", ("batch", 3))])[0], "y"
    )
    plan = builder.build_plan(net, _config())
    needs = tuple(
        replace(r, dist=r.dist or "acme-half", version=r.version or "1") for r in plan.requirements
    )
    pack = PackFiles(
        "acme-half",
        "1",
        {"acme_half.py": PACK.encode()},
        (("acme_half", "acme_half"),),
        frozenset(),
    )
    return with_wheels(replace(plan, requirements=needs), {"acme-half": wheel_of(pack)})


@functools.cache
def plans() -> dict[str, Plan]:
    """By name: ``native``, ``blocked`` (C), ``numpy``, ``branches`` (bodies), ``objects``
    (sequences), ``packs``.

    ``held``, ``body``, ``loop``, ``stacked`` run without any code; ``refit`` has recipes.
    """
    builder = tactix.Builder()

    def text(model: str) -> Any:
        return builder.import_model(onnx.parser.parse_model(model))

    return {
        "native": builder.build_plan(_perceptron(builder), _config()),
        "numpy": builder.build_plan(_perceptron(builder), _config(NUMPY)),
        "blocked": builder.build_plan(_convolution(builder), _config()),
        "branches": builder.build_plan(text(BRANCHES), _config()),
        "objects": builder.build_plan(text(OBJECTS), _config()),
        "packs": _with_pack(),
        "held": produced_plan(HELD),
        "body": produced_plan(BODY),
        "loop": produced_plan(LOOP),
        "stacked": produced_plan(STACKED),
        "refit": _refitted(builder),
    }


def files() -> dict[str, bytes]:
    """The plans as files."""
    return {name: container.dump(p) for name, p in plans().items()}


def opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header as JSON, and the bytes from the first blob on."""
    length = PROLOGUE.unpack_from(data)[3]
    return json.loads(data[64 : 64 + length]), data[container.align(64 + length) :]


def sealed(header: Any, rest: bytes = b"", **over: Any) -> bytes:
    """A file with right sizes and digests around a header (JSON, or bytes as they are) and blobs.

    ``over``: other values of the prologue: magic, version, zero, length, total, digest.
    """
    text = (
        header
        if isinstance(header, bytes)
        else json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    )
    padding = bytes(container.align(64 + len(text)) - 64 - len(text)) if rest else b""
    fields = {
        "magic": container.MAGIC, "version": container.VERSION, "zero": 0, "length": len(text),
        "total": 64 + len(text) + len(padding) + len(rest), "digest": hashlib.sha256(text).digest(), **over,
    }  # fmt: skip
    return PROLOGUE.pack(*fields.values()) + text + padding + rest
