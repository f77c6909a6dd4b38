"""Sequences that are put together and taken apart at known places are tensors after the import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tactix
from tactix.network.definition import NetworkDefinition
from tactix_onnx.sequences import MOST_ELEMENTS

HEADER = '<ir_version: 8, opset_import: ["" : 18]>\n'

KNOWN = {
    "pieces of equal sizes": """g (float[5, 4] x) => (float[?, ?] y) {
        two = Constant <value = int64 {2}> ()
        last = Constant <value = int64 {-1}> ()
        s = SplitToSequence <axis = 0> (x, two)
        y = SequenceAt (s, last) }""",
    "pieces of sizes": """g (float[n, 6] x) => (float[?, ?] y) {
        sizes = Constant <value = int64[3] {1, 3, 2}> ()
        one = Constant <value = int64 {1}> ()
        s = SplitToSequence <axis = -1> (x, sizes)
        y = SequenceAt (s, one) }""",
    "pieces of one": """g (float[n, 3] x) => (float[?, ?] y) {
        s = SplitToSequence <axis = 1> (x)
        y = ConcatFromSequence <axis = 0> (s) }""",
    "pieces without their axis": """g (float[n, 3] x) => (float[?, ?] y) {
        s = SplitToSequence <axis = 1, keepdims = 0> (x)
        y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }""",
    "one piece": """g (float[n, 3] x) => (float[?, ?] y) {
        three = Constant <value = int64 {3}> ()
        zero = Constant <value = int64 {0}> ()
        s = SplitToSequence <axis = 1> (x, three)
        y = SequenceAt (s, zero) }""",
    "pieces of an open axis": """g (float[3, n] x) => (float[?, ?] y, float[?, ?] row, int64 length) {
        last = Constant <value = int64 {-1}> ()
        s = SplitToSequence <axis = 1> (x)
        row = SequenceAt (s, last)
        t = SequenceInsert (s, row)
        length = SequenceLength (t)
        y = ConcatFromSequence <axis = -2> (t) }""",
    "pieces of an open axis without it": """g (float[3, n] x) => (float[?, ?] y, float[?] row) {
        last = Constant <value = int64 {-1}> ()
        s = SplitToSequence <axis = -1, keepdims = 0> (x)
        row = SequenceAt (s, last)
        y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }""",
    "changes": """g (float[n, 3] x) => (float[?, ?] y, int64 length) {
        zero = Constant <value = int64 {0}> ()
        second = Constant <value = int64 {-2}> ()
        r = Relu (x)
        a = Abs (x)
        none = SequenceEmpty ()
        s = SequenceInsert (none, x)
        t = SequenceInsert (s, r, zero)
        u = SequenceInsert (t, a, second)
        v = SequenceInsert (u, a)
        w = SequenceErase (v, second)
        length = SequenceLength (w)
        y = ConcatFromSequence <axis = 1> (w) }""",
}


def _feed(model: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    (x,) = model.graph.input
    shape = [d.dim_value or 2 for d in x.type.tensor_type.shape.dim]
    return {x.name: rng.standard_normal(shape).astype(np.float32)}


def _left(net: NetworkDefinition) -> set[str]:
    return {n.layer.name for n in net.nodes if "Sequence" in n.layer.name}


@pytest.mark.parametrize("text", KNOWN.values(), ids=KNOWN.keys())
def test_known_places_leave_no_sequence(text: str) -> None:
    model = onnx.parser.parse_model(HEADER + text)
    feed = _feed(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    engine = tactix.build(model, level=0, timing_cache=False)
    assert not [key for s in engine.plan.steps for key in s.info["layers"] if "Sequence" in key]
    found = engine(feed)
    arrays = list(found.values()) if isinstance(found, dict) else [found]
    for a, b in zip(arrays, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


UNKNOWN = {
    "in a branch, which sees no further than its inputs": """g (float[n, 3] x, bool which) => (float[?, ?] y) {
        zero = Constant <value = int64 {0}> ()
        s = SequenceConstruct (x)
        y = If (which) <
            then_branch = yes () => (float[a, 3] t) { t = SequenceAt (s, zero) },
            else_branch = no () => (float[b, 3] e) { e = Relu (x) }
        > }""",
    "a place that data tell": """g (float[n, 3] x, int64 i) => (float[?, ?] y) {
        s = SequenceConstruct (x, x)
        y = SequenceAt (s, i) }""",
    "a place beyond the end": """g (float[n, 3] x) => (float[?, ?] y) {
        i = Constant <value = int64 {2}> ()
        s = SequenceConstruct (x, x)
        y = SequenceAt (s, i) }""",
    "a removal beyond the end": """g (float[n, 3] x) => (int64 y) {
        i = Constant <value = int64 {-3}> ()
        s = SequenceConstruct (x, x)
        t = SequenceErase (s, i)
        y = SequenceLength (t) }""",
    "sizes that do not fit": """g (float[n, 3] x) => (int64 y) {
        sizes = Constant <value = int64[2] {1, 3}> ()
        s = SplitToSequence <axis = 1> (x, sizes)
        y = SequenceLength (s) }""",
    "more pieces than are taken apart": f"""g (float[n, {MOST_ELEMENTS + 1}] x) => (int64 y) {{
        one = Constant <value = int64 {{1}}> ()
        s = SplitToSequence <axis = 1> (x, one)
        y = SequenceLength (s) }}""",
    "pieces of no size": """g (float[n, 3] x) => (int64 y) {
        zero = Constant <value = int64 {0}> ()
        s = SplitToSequence <axis = 1> (x, zero)
        y = SequenceLength (s) }""",
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_is_told_by_running(
    text: str, imported: Callable[..., NetworkDefinition]
) -> None:
    assert _left(imported(onnx.parser.parse_model(HEADER + text)))
