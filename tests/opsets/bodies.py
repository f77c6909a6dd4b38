"""Constants, branches, loops and scans: models in onnx's own text form, at each version."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from forms import Form, forms, ints, normal

IF = """
agraph (float[3] i0, bool i1) => (o0) {
  o0 = If (i1) <then_branch = yes () => (float[3] a) { a = Relu (i0) },
                else_branch = no () => (float[3] b) { b = Neg (i0) }>
}"""

LOOP = """
agraph (int64 i0, bool i1, float[3] i2) => (o0, o1) {
  o0, o1 = Loop (i0, i1, i2) <body = step (int64 k, bool going, float[3] state)
      => (bool on, float[3] next, float[3] seen) {
    next = Add (state, state)
    seen = Relu (state)
    on = Identity (going)
  }>
}"""

SCAN = """
agraph (float[2] i0, float[4, 2] i1) => (o0, o1) {
  o0, o1 = Scan <num_scan_inputs = 1 %s, body = step (float[2] state, float[2] x) => (float[2] next, float[2] seen) {
    next = Add (state, x)
    seen = Neg (next)
  }> (i0, i1)
}"""

SCAN_OF_BATCH = """
agraph (float[3, 2] i0, float[3, 4, 2] i1) => (o0, o1) {
  o0, o1 = Scan <num_scan_inputs = 1 %s, body = step (float[2] state, float[2] x) => (float[2] next, float[2] seen) {
    next = Add (state, x)
    seen = Neg (next)
  }> ("", i0, i1)
}"""


@forms("If")
def branches(op: str, version: int) -> Iterator[Form]:
    for way in (True, False):
        yield Form(f"{way}", [normal(3), np.array(way)], text=IF)
        yield Form(f"{way} known", [normal(3), np.array(way)], fixed=frozenset({1}), text=IF)


@forms("Loop")
def loops(op: str, version: int) -> Iterator[Form]:
    for count in (1, 4):
        for known in (frozenset[int](), frozenset({0, 1})):
            arrays = [np.array(count), np.array(True), normal(3)]
            yield Form(f"{count} {len(known)}", arrays, fixed=known, outputs=2, text=LOOP)


@forms("Scan")
def scans(op: str, version: int) -> Iterator[Form]:
    """Version 8 scans each item of a batch."""
    for backwards in (0, 1):
        if version < 9:
            direction = f", directions = [{backwards}]"
            arrays = [normal(3, 2), normal(3, 4, 2)]
            yield Form(f"batch {backwards}", arrays, outputs=2, text=SCAN_OF_BATCH % direction)
            continue
        for stacked in (0, 1):
            more = f", scan_input_directions = [{backwards}], scan_output_directions = [{stacked}]"
            yield Form(
                f"{backwards} {stacked}", [normal(2), normal(4, 2)], outputs=2, text=SCAN % more
            )


@forms("Constant")
def constants(op: str, version: int) -> Iterator[Form]:
    import onnx

    for dtype in (np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_):
        for shape in ((2, 3), (), (0,)):
            value = onnx.numpy_helper.from_array(np.ones(shape, dtype))
            yield Form(f"{np.dtype(dtype)} {shape}", [], {"value": value})
    if version >= 12:
        values = {
            "value_int": 3,
            "value_ints": [3, 4],
            "value_float": 0.5,
            "value_floats": [0.5, 1.5],
        }
        for name, plain in values.items():
            yield Form(name, [], {name: plain})


@forms("SplitToSequence")
def pieces(op: str, version: int) -> Iterator[Form]:
    for axis in (0, 1):
        for keep in (0, 1):
            yield Form(f"{axis} {keep}", [normal(4, 4)], {"axis": axis, "keepdims": keep})
        yield Form(
            f"{axis} sizes", [normal(4, 4), ints(1, 3)], {"axis": axis}, fixed=frozenset({1})
        )
