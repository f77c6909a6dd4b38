"""Operators on strings through the importer, against ONNX Runtime where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tactix.base.errors import ModelImportError
from tactix_sdk.evaluate import evaluate

STRING = onnx.TensorProto.STRING
X = np.array([["a", "b,c", ""], ["été", "a b", "B"]], object)
Y = np.array(["a", "?", ""], object)


def run(proto: Any, feed: dict[str, Any], imported: Any) -> dict[str, Any]:
    return evaluate(imported(proto), feed)


def check(
    op: str, arrays: list[Any], attrs: dict[str, Any], outputs: int, imported: Any, model: Any
) -> None:
    """The same as ONNX Runtime, with shapes fixed and with symbols."""
    import onnxruntime as ort

    names = [f"o{i}" for i in range(outputs)]
    feed = {f"i{i}": a for i, a in enumerate(arrays)}
    node = onnx.helper.make_node(op, list(feed), names, **attrs)
    for symbolic in (False, True):
        shapes = {
            k: [f"{k}{i}" for i in range(a.ndim)] if symbolic else a.shape for k, a in feed.items()
        }
        kinds = {k: STRING if a.dtype == object else a.dtype for k, a in feed.items()}
        proto = model([node], {k: (kinds[k], shapes[k]) for k in feed}, names, opset=20)
        session = ort.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found = run(proto, feed, imported)
        for name, want in zip(names, session.run(None, feed), strict=True):
            assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
            assert found[name].tolist() == want.tolist()


POOL = {"pool_strings": ["a", "B", "a", "b,c"], "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 2], "mode": "TFIDF",
        "weights": [0.5, 2.0, 3.0], "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1}  # fmt: skip
CASES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("StringConcat", [X, Y], {}, 1),
    ("StringConcat", [X[0, 0:1].reshape(()), Y], {}, 1),
    ("StringSplit", [X], {"maxsplit": 2}, 2),
    ("StringSplit", [X[:, :2]], {"delimiter": ","}, 2),
    ("RegexFullMatch", [X], {"pattern": "[a-z ,]+"}, 1),
    ("TfIdfVectorizer", [X], POOL, 1),
    ("TfIdfVectorizer", [np.array([3, 4, 3], np.int32)],
     {**POOL, "pool_strings": None, "pool_int64s": [3, 5, 3, 4], "mode": "IDF"}, 1),
    ("Equal", [X, Y], {}, 1),
    ("Cast", [np.array(["1", "2.5", " 7", "1e3", "-INF"], object)], {"to": 1}, 1),
    ("Cast", [np.array(["100", "-7", "9007199254740993"], object)], {"to": 7}, 1),
    ("Cast", [np.array([100, -7])], {"to": STRING}, 1),
    ("Cast", [np.array([0.5, -2.25, 1e-7], np.float32)], {"to": STRING}, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "outputs"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_agrees_with_onnx_runtime(
    op: str, arrays: list[Any], attrs: dict[str, Any], outputs: int, imported: Any, model: Any
) -> None:
    check(op, arrays, {k: v for k, v in attrs.items() if v is not None}, outputs, imported, model)


@pytest.mark.parametrize(
    "to", [10, 11, 16, 17, 20, 3, 9], ids=["f16", "f64", "bf16", "f8", "f8fnuz", "i8", "bool"]
)
def test_text_becomes_what_the_number_becomes(to: int, imported: Any, model: Any) -> None:
    numbers = (
        np.float32([0, 0.125 if to == 11 else 0.1, -3.75, 100])
        if to != 3
        else np.float32([0, 1, -3, 100])
    )
    nodes = [onnx.helper.make_node("Cast", [name], [f"y{name}"], to=to) for name in ("s", "x")]
    inputs = {"s": (STRING, [4]), "x": (np.float32, [4])}
    found = run(model(nodes, inputs, ["ys", "yx"], opset=19),
                {"s": np.array([str(v) for v in numbers], object), "x": numbers}, imported)  # fmt: skip
    assert found["ys"].dtype == found["yx"].dtype
    assert found["ys"].tobytes() == found["yx"].tobytes()


def test_like_a_string(imported: Any, model: Any) -> None:
    nodes = [onnx.helper.make_node("CastLike", ["x", "s"], ["t"]), onnx.helper.make_node("CastLike", ["t", "x"], ["y"]),
             onnx.helper.make_node("CastLike", ["s", "t"], ["z"])]  # fmt: skip
    inputs = {"x": (np.int32, [3]), "s": (STRING, [])}
    feed = {"x": np.array([5, -6, 0], np.int32), "s": np.array("q", object)}
    found = run(model(nodes, inputs, ["t", "y", "z"], opset=19), feed, imported)
    assert found["t"].tolist() == ["5", "-6", "0"]
    assert found["y"].tolist() == [5, -6, 0]
    assert found["z"].item() == "q"


def test_the_locale_counts_for_nothing(imported: Any, model: Any) -> None:
    node = onnx.helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER", locale="tr_TR",
                                 stopwords=["B"])  # fmt: skip
    y = run(
        model([node], {"x": (STRING, ["n"])}, ["y"]),
        {"x": np.array(["i", "b", "é"], object)},
        imported,
    )["y"]
    assert y.tolist() == ["I", "É"]


def test_text_of_constants_is_no_weight(imported: Any, model: Any) -> None:
    """Strings that follow from constants stay layers: plans hold no constants of that kind."""
    node = onnx.helper.make_node("Cast", ["c"], ["y"], to=STRING)
    net = imported(model([node], {}, ["y"], {"c": np.array([1, 2])}))
    assert net.outputs[0].const is None
    assert evaluate(net, {})["y"].tolist() == ["1", "2"]


def test_what_does_not_fit_is_refused(imported: Any, model: Any) -> None:
    wrong = onnx.helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(")
    with pytest.raises(ModelImportError, match="does not compile"):
        imported(model([wrong], {"x": (STRING, [3])}, ["y"], opset=20))
    mixed = onnx.helper.make_node("Equal", ["x", "n"], ["y"])
    with pytest.raises(ModelImportError, match="takes one type"):
        imported(model([mixed], {"x": (STRING, [3]), "n": (np.int64, [3])}, ["y"], opset=20))


TEXTS = np.array(["ab|abc cat", "", "x", "é è", " a1b22c ", "the the\nEnd,,x"], object)
CUTS: list[tuple[Any, dict[str, Any]]] = [
    (TEXTS, {"tokenexp": "[a-zA-Z0-9_]+"}),
    (TEXTS, {"tokenexp": "a|ab|abc"}),
    (TEXTS, {"tokenexp": "b*?"}),
    (TEXTS, {"tokenexp": "^[^ ]", "mark": 1}),
    (TEXTS, {"tokenexp": r"\b[a-z]", "mark": 1, "pad_value": ""}),
    (TEXTS, {"tokenexp": "[^ ]+", "mincharnum": 2}),
    (TEXTS.reshape(2, 3), {"tokenexp": "[a-z]$", "mark": 1}),
    (TEXTS, {"tokenexp": "Z", "mark": 1}),
    (TEXTS, {"separators": [" ", ","], "mark": 1}),
    (TEXTS, {"separators": ["[0-9]+", "^a", r"\s"], "tokenexp": "a"}),
    (TEXTS, {"separators": ["b", r"\b"]}),
    (TEXTS, {"separators": ["", "b"]}),
    (TEXTS, {"separators": [""], "mark": 1}),
    (TEXTS[1:2], {"separators": [""], "mark": 1}),
]


@pytest.mark.parametrize(("x", "attrs"), CUTS, ids=range(len(CUTS)))
def test_tokens_are_those_of_onnx_runtime(
    x: Any, attrs: dict[str, Any], imported: Any, model: Any
) -> None:
    """What skl2onnx writes for CountVectorizer and TfidfVectorizer."""
    import onnxruntime as ort

    asked = {"mincharnum": 1, "mark": 0, "pad_value": "#", **attrs}
    node = onnx.helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **asked)
    shape = ["n", *x.shape[1:]]
    proto = model([node], {"x": (STRING, shape)}, ["y"])
    want = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    found = run(proto, {"x": x}, imported)["y"]
    assert found.shape == want.shape
    assert found.tolist() == want.tolist()


def test_tokens_need_a_pattern(imported: Any, model: Any) -> None:
    node = onnx.helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", mark=0)
    with pytest.raises(ModelImportError, match="a pattern of tokens or separators"):
        imported(model([node], {"x": (STRING, [3])}, ["y"]))
