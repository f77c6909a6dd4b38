"""Layers on strings: what they give for odd strings, and what they refuse."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import onnx
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix_ops.layers import all_layers
from tactix_ops.layers.text_pattern import compiled

LAYERS = {x.name: x for x in all_layers()}
N = sym("n")


def strings(*values: Any) -> Any:
    return np.array(values, object)


def run(name: str, *inputs: Any, **attrs: Any) -> list[Any]:
    layer = LAYERS[name]
    return list(layer.reference(layer.Attrs(**attrs), *inputs))


def infer(name: str, *inputs: TensorSpec, **attrs: Any) -> list[TensorSpec]:
    layer = LAYERS[name]
    return layer.infer(layer.Attrs(**attrs), inputs)


def text(*shape: Any) -> TensorSpec:
    return TensorSpec(DType.STRING, shape)


def test_known_strings() -> None:
    (y,) = run("Text", values=("a", "é", "", "b"), shape=(2, 2))
    assert (y.dtype, y.tolist()) == (np.dtype(object), [["a", "é"], ["", "b"]])
    assert run("Text", values=("a",), shape=())[0].shape == ()
    assert run("Text", shape=(0, 3))[0].shape == (0, 3)
    with pytest.raises(ShapeError, match="2 values"):
        infer("Text", values=("a", "b"), shape=(3,))


def test_scalars_stay_arrays() -> None:
    a = np.array("a", object)
    assert run("StringConcat", a, a)[0].dtype == object
    assert run("TextEqual", a, a)[0].dtype == bool
    assert run("StringConcat", a, a)[0].item() == "aa"


@pytest.mark.parametrize(
    ("attrs", "parts"),
    [
        ({}, [["a", "b,,c"], []]),
        ({"delimiter": ","}, [[" a b", "", "c "], [""]]),
        ({"maxsplit": 0}, [["a b,,c "], []]),
        ({"delimiter": ",", "maxsplit": 1}, [[" a b", ",c "], [""]]),
        ({"delimiter": ",,"}, [[" a b", "c "], [""]]),
    ],
)
def test_strings_are_cut(attrs: dict[str, Any], parts: list[list[str]]) -> None:
    y, lengths = run("StringSplit", strings(" a b,,c ", ""), **attrs)
    widest = max(map(len, parts))
    assert lengths.tolist() == [len(p) for p in parts]
    assert y.tolist() == [p + [""] * (widest - len(p)) for p in parts]


MONDAY = strings("Monday", "tuesday", "été", "", "MONDAY")


@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({}, ["Monday", "tuesday", "été", "", "MONDAY"]),
        ({"case_change_action": "UPPER"}, ["MONDAY", "TUESDAY", "ÉTÉ", "", "MONDAY"]),
        ({"stopwords": ("monday", "")}, ["tuesday", "été"]),
        (
            {"stopwords": ("Monday", "ÉTÉ"), "is_case_sensitive": True},
            ["tuesday", "été", "", "MONDAY"],
        ),
        ({"stopwords": ("MONDAY", "TUESDAY", "ÉTÉ", "")}, [""]),
    ],
)
def test_strings_are_normalized(attrs: dict[str, Any], want: list[str]) -> None:
    assert run("StringNormalizer", MONDAY, **attrs)[0].tolist() == want
    assert run("StringNormalizer", MONDAY[None], **attrs)[0].tolist() == [want]


def test_shapes_of_normalized_strings() -> None:
    assert infer("StringNormalizer", text(1, 7))[0].shape == (1, 7)
    assert infer("StringNormalizer", text(0))[0].shape == (1,)
    assert run("StringNormalizer", strings())[0].tolist() == [""]
    assert infer("StringNormalizer", text(7), stopwords=("a",), symbol="left")[0].shape == (
        sym("left"),
    )
    with pytest.raises(ShapeError):
        infer("StringNormalizer", text(2, 7))
    with pytest.raises(ShapeError):
        run("StringNormalizer", np.stack([MONDAY, MONDAY]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint64, bool])
def test_numbers_come_back_from_text(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(200) * 100).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[:5] = [np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny]
    (s,) = run("FormatText", x)
    assert s.tolist() == x.astype(np.str_).tolist()
    (y,) = run("ParseText", s, to=DType.of(np.dtype(dtype)))
    assert y.tobytes() == x.tobytes()


def test_text_as_numbers() -> None:
    (y,) = run("ParseText", strings("+INF", "-inf", "NaN", " 1e-5 ", "1E8", "-.5"), to=DType.FP64)
    np.testing.assert_array_equal(y, [np.inf, -np.inf, np.nan, 1e-5, 1e8, -0.5])
    assert run("ParseText", strings("100.5", "-7", "9007199254740993"), to=DType.INT64)[
        0
    ].tolist() == [100, -7, 9007199254740993]
    assert run("ParseText", strings("0", "0.5", "True", "False"), to=DType.BOOL)[0].tolist() == [
        0,
        1,
        1,
        0,
    ]
    for wrong, to in [
        ("hello", DType.FP32),
        ("1_0", DType.FP32),
        ("", DType.INT8),
        ("inf", DType.INT32),
    ]:
        with pytest.raises(InvalidArgument, match="is no number"):
            run("ParseText", strings(wrong), to=to)


SUBJECTS = strings(
    "abc",
    "12",
    "é",
    "É",
    "ab",
    "aa",
    "a.b",
    "a",
    "aab",
    "\v",
    " ",
    "\n",
    "]",
    "a{,2}",
    "xY",
    "xy",
    "A",
    "[a]",
    "a]",
    "&",
    "",
    "٣",
    "a\n",
    "ab\nab",
    "_",
    "-",
    "+a",
    "ſ",
    "a b",
    "\\",
    "$",
    "^",
    "a-z",
    "x|y",
    "~",
)
PATTERNS = (
    r"[[:alpha:]]+", r"\d+", r"(?i)é", r"\Qa.b\E", r"\Qa.b", r"a\z", r"\w+", r"\x{e9}", r"(?U)a+", r"(?P<x>a)b",
    r"(?<x>a)b", r"[^[:^digit:]]", r"[^[:alpha:]\d]", r"\s", r"(?s).", r".", r"]", r"a{,2}", r"(?i:x)y",
    r"(?i)X(?-i:Y)",
    r"[[a]]", r"[a&&b]", r"$a", r"a|", r"\_", r"a$\n?", r"(?m)ab$\nab", r"[\D]", r"\D", r"[\W\n]", r"\S+", r"a\b b|a\b",
    r".*\B.*", r"[]a]", r"[^]a]", r"[a\]]", r"[*+]a", r"[|~]", r"a{1,2}", r"(?:a|b)+?", r"()", r"a{2}",
    r"[a-c]+", r"[+--]", r"\x41", r"^a$", r"\$", r"[$]", r"(?i)[k-t]",
)  # fmt: skip
REFUSED = (r"a(?=b)b", r"(a)\1", r"a*+", r"\Z", r"\u0041", r"a**", r"\8", r"(?#x)a", r"(?x)a", r"(?P=a)", r"(", r"[",
           r"(?<=a)b", r"\é", r"[[:foo:]]", r"a{2}+", r"[\Qa\E]", r"[\b]", "\\")  # fmt: skip


def runtime(op: str, x: Any, **attrs: Any) -> Any:
    """What ONNX Runtime gives for one node."""
    import onnxruntime as ort

    node = onnx.helper.make_node(op, ["x"], ["y"], **attrs)
    code = onnx.TensorProto.STRING if x.dtype == object else onnx.TensorProto.INT64
    inputs = [onnx.helper.make_tensor_value_info("x", code, x.shape)]
    graph = onnx.helper.make_graph(
        [node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")]
    )
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_they_mean_to_onnx_runtime(pattern: str) -> None:
    assert (
        run("RegexFullMatch", SUBJECTS, pattern=pattern)[0].tolist()
        == runtime("RegexFullMatch", SUBJECTS, pattern=pattern).tolist()
    )


@pytest.mark.parametrize("pattern", [*REFUSED, r"\pL+", r"\C", r"x(?i)y"])
def test_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="pattern"):
        infer("RegexFullMatch", text(3), pattern=pattern)


@pytest.mark.parametrize(
    "pattern", [r"(a|aa)*b", r"(a*)*b", r"(a|a)+", r"((a?){20}){20}b", r"(.*){1,30}[bc]"]
)
def test_no_pattern_takes_more_time_than_a_product_of_sizes(pattern: str) -> None:
    """Each of them is for ever under way where alternatives are tried one after the other."""
    (found,) = run("RegexFullMatch", strings("a" * 4000, "a" * 4000 + "b"), pattern=pattern)
    assert found.tolist() == (
        [True, False] if pattern == r"(a|a)+" else [False, pattern != r"((a?){20}){20}b"]
    )


@pytest.mark.parametrize("pattern", [r"((a{100}){100}){100}", r"a{1001}", r"(a|b){0,2000}"])
def test_patterns_that_repeat_too_often_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="pattern"):
        infer("RegexFullMatch", text(3), pattern=pattern)


PIECES = (
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "(",
    "(?:",
    ")",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{1,3}",
    "{2,}",
    "*?",
    "^",
    r"\b",
    r"\B",
    "",
)


def test_random_patterns_mean_what_they_mean_to_python() -> None:
    rng, tried = random.Random(5), 0
    texts = ["".join(t) for n in range(5) for t in itertools.product("ab ", repeat=n)]
    while tried < 300:
        pattern = "".join(rng.choices(PIECES, k=rng.randrange(1, 9)))
        try:
            wanted = re.compile(pattern.replace(r"\b", r"(?a:\b)").replace(r"\B", r"(?!(?a:\b))"))
            automaton = compiled(pattern)
        except (re.error, InvalidArgument):
            continue
        tried += 1
        for t in texts:
            assert automaton.matches(t) == (wanted.fullmatch(t) is not None), (pattern, t)


def longest(pattern: re.Pattern[str], t: str, start: int) -> tuple[int, int] | None:
    """The longest of the first matches, by trying all places."""
    for begin in range(start, len(t) + 1):
        for end in range(len(t), begin - 1, -1):
            before, behind = f"(?s:.{{{begin}}})", f"(?=(?s:.{{{len(t) - end}}})\\Z)"
            if re.compile(f"{before}(?:{pattern.pattern}){behind}").match(t):
                return begin, end
    return None


def test_longest_of_the_first_matches_are_found() -> None:
    rng, tried = random.Random(7), 0
    while tried < 60:
        pattern = "".join(rng.choices([p for p in PIECES if p != "^"], k=rng.randrange(1, 7)))
        try:
            wanted = re.compile(pattern.replace(r"\b", r"(?a:\b)").replace(r"\B", r"(?!(?a:\b))"))
            automaton = compiled(pattern)
        except (re.error, InvalidArgument):
            continue
        tried += 1
        for t in ("".join(rng.choices("ab ", k=rng.randrange(7))) for _ in range(5)):
            for start in range(len(t) + 1):
                found = automaton.find(t, start)
                assert found == longest(wanted, t, start), (pattern, t, start)


RUNS = (
    "a",
    ".",
    "[ab]+",
    "[^a]*",
    "b{2,}",
    "a{1,2}",
    "b?",
    "[ab]+?",
    "a*?",
    "b{1,3}?",
    "a??",
    "(?:a)+",
    "(a){2}",
    "a+b*",
)


@pytest.mark.parametrize("pattern", RUNS)
def test_rows_of_one_kind_of_character_are_found_whole(pattern: str) -> None:
    """Which Python's ``re`` looks for itself, where it takes as many as there are."""
    automaton, wanted = compiled(pattern), re.compile(pattern)
    for n in range(6):
        for t in map("".join, itertools.product("ab\n", repeat=n)):
            for start in range(n + 1):
                assert automaton.find(t, start) == longest(wanted, t, start), (t, start)


@pytest.mark.parametrize("pattern", [r"(a|aa)*b", r"a*b", r"(a*)*$b", r"(.*){1,30}[bc]"])
def test_no_search_takes_more_time_than_a_product_of_sizes(pattern: str) -> None:
    """Each is for ever under way where every place is tried as the first."""
    assert compiled(pattern).find("a" * 50_000) is None


@pytest.mark.parametrize("pattern", REFUSED)
def test_onnx_runtime_refuses_them_too(pattern: str) -> None:
    with pytest.raises(Exception, match="pattern"):
        runtime("RegexFullMatch", SUBJECTS, pattern=pattern)


GRAMS = {
    "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),
    "ngram_counts": (0, 4),
    "ngram_indexes": tuple(range(7)),
}


def random_pool(rng: np.random.Generator, as_strings: bool) -> tuple[dict[str, Any], int]:
    """Attributes of distinct 1-, 2- and 3-grams of tokens 0 to 3, and how many they are."""
    grams = [
        sorted({tuple(g) for g in rng.integers(0, 4, (most, n)).tolist()})
        for n, most in ((1, 3), (2, 5), (3, 4))
    ]
    flat = tuple(token for level in grams for g in level for token in g)
    starts = np.cumsum([0, *(n * len(level) for n, level in enumerate(grams, 1))])[:-1]
    pool = {"pool_strings": tuple(map(str, flat))} if as_strings else {"pool_int64s": flat}
    return {**pool, "ngram_counts": tuple(starts.tolist())}, sum(map(len, grams))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(
    ("shortest", "longest", "skips"), [(1, 1, 3), (1, 2, 0), (1, 2, 5), (2, 2, 2), (1, 3, 1)]
)
@pytest.mark.parametrize("as_strings", [False, True])
def test_ngrams_agree_with_onnx_runtime(
    mode: str, shortest: int, longest: int, skips: int, as_strings: bool
) -> None:
    rng = np.random.default_rng(5)
    attrs, count = random_pool(rng, as_strings)
    attrs |= {
        "mode": mode,
        "min_gram_length": shortest,
        "max_gram_length": longest,
        "max_skip_count": skips,
    }
    attrs |= {
        "ngram_indexes": tuple(rng.permutation(count).tolist()),
        "weights": tuple(map(float, range(2, count + 2))),
    }
    x = rng.integers(0, 5, (3, 11))
    x = x.astype(str).astype(object) if as_strings else x
    for array in (x, x[0]):
        want = runtime("TfIdfVectorizer", array, **attrs)
        assert want.any()
        np.testing.assert_array_equal(run("TfIdfVectorizer", array, **attrs)[0], want)


def test_ngrams_may_share_a_column() -> None:
    attrs: dict[str, Any] = {
        "pool_int64s": (5, 7),
        "ngram_counts": (0,),
        "ngram_indexes": (1, 1),
        "weights": (2.0, 3.0),
    }
    assert run("TfIdfVectorizer", np.array([5, 7, 7]), **attrs)[0].tolist() == [0, 3]
    assert run("TfIdfVectorizer", np.array([5, 7, 7]), mode="TFIDF", **attrs)[0].tolist() == [0, 8]
    with pytest.raises(InvalidArgument, match="share a column"):
        infer("TfIdfVectorizer", TensorSpec(DType.INT64, (3,)), mode="IDF", **attrs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "XX"}, {"pool_strings": ("a",)}, {"ngram_indexes": (0,)}, {"ngram_counts": (1, 4)},
        {"weights": (1.0,)}, {"pool_int64s": ()}, {"ngram_counts": (0, 5)}, {"ngram_indexes": (-1, *range(6))},
    ],
)  # fmt: skip
def test_ngrams_that_do_not_fit(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        infer("TfIdfVectorizer", TensorSpec(DType.INT64, (N, 5)), **{**GRAMS, **wrong})


def test_shapes_and_dtypes() -> None:
    assert infer("TfIdfVectorizer", TensorSpec(DType.INT32, (N, 5)), **GRAMS)[0].shape == (N, 7)
    assert run("TfIdfVectorizer", np.zeros((2, 0), np.int64), **GRAMS)[0].tolist() == [[0] * 7] * 2
    assert [s.shape for s in infer("StringSplit", text(N, 2), symbol="k")] == [
        (N, 2, sym("k")),
        (N, 2),
    ]
    assert infer("StringConcat", text(N, 1), text(3))[0].shape == (N, 3)
    for name in ("StringConcat", "TextEqual"):
        with pytest.raises(DTypeError, match="takes strings"):
            infer(name, text(3), TensorSpec(DType.FP32, (3,)))
    with pytest.raises(DTypeError):
        infer("TfIdfVectorizer", text(5), **GRAMS)


def test_n_grams_of_more_tokens_than_numbers_of_rows_hold() -> None:
    """Eight tokens of 400 in a row are more than 2 ** 62 rows."""
    pool = tuple(range(400))
    attrs = {
        "min_gram_length": 8,
        "max_gram_length": 8,
        "ngram_counts": (0,) * 8,
        "ngram_indexes": tuple(range(50)),
        "pool_int64s": pool,
    }
    found = run("TfIdfVectorizer", np.array([*range(8, 24), 7]), **attrs)[0]
    assert np.flatnonzero(found).tolist() == [1, 2]


def test_the_first_of_a_key_that_comes_again_counts() -> None:
    keys, values = strings("a", "b", "a"), np.array([1, 2, 3])
    found = run("Lookup", strings("a", "x", "b"), keys, values, np.array([9]))
    assert found[0].tolist() == [1, 9, 2]
    none = run("Lookup", strings("a"), keys[:0], values[:0], np.array([9]))
    assert none[0].tolist() == [9]
    named = run("Lookup", strings(["a", "x"]), keys, strings("p", "q", "r"), strings("-"))
    assert named[0].tolist() == [["p", "-"]]
