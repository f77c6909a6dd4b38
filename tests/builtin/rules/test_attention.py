"""Attention as exporters spell it out."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules
from tactix_sdk.evaluate import evaluate


def heads(net, name, positions, dim=4):
    """A network input as (n, 3, positions, dim)."""
    return net.add("Transpose", net.x("n", positions, 3, dim, name=name), perm=(0, 2, 1, 3))


def spelt(
    net,
    *,
    query=None,
    key=None,
    scale=None,
    divide=False,
    mask=None,
    keep=None,
    fill=-np.inf,
    guard=False,
):
    """q k' with factors, mask and guard, layer by layer; the output is y."""
    q, v = heads(net, "q", "s"), heads(net, "v", "t")
    k = net.add("Transpose", net.x("n", "t", 3, 4, name="k"), perm=(0, 2, 3, 1))
    q = q if query is None else net.add("Mul", q, net.c(query))
    k = k if key is None else net.add("Mul", net.c(key), k)
    y = net.add("MatMul", q, k)
    y = y if scale is None else net.add("Div" if divide else "Mul", y, net.c(scale))
    y = y if mask is None else net.add("Add", mask, y)
    y = y if keep is None else net.add("Where", keep, y, net.c(fill))
    p = net.add("Softmax", y, axis=-1)
    if guard:
        p = net.add("Where", net.add("IsNaN", p), net.c(0), p)
    net.mark_output(net.add("MatMul", p, v), "y")


def only_attention(out, *beside):
    """Over tokens as they lie; the output alone is transposed."""
    kinds = [n.layer.name for n in out.nodes if n.layer.name != "Reshape"]
    assert sorted(kinds) == sorted(["TokenAttention", "Transpose", *beside])
    return next(n for n in out.nodes if n.layer.name == "TokenAttention")


@pytest.mark.parametrize(
    ("how", "scale"),
    [({}, 1.0), ({"query": 0.5, "key": 0.5}, 0.25), ({"scale": 0.125}, 0.125), ({"scale": 8.0, "divide": True}, 0.125),
     ({"query": 0.5, "scale": 2.0, "divide": True}, 0.25), ({"key": 0.5, "guard": True}, 0.5)],
)  # fmt: skip
def test_factors_become_the_scale(net, apply, how, scale):
    spelt(net, **how)
    n = only_attention(apply(net)[1])
    assert n.attrs.scale == pytest.approx(scale)
    assert n.attrs.nan_to_zero is how.get("guard", False)
    assert len(n.inputs) == 3


@pytest.mark.parametrize(
    "shape", [("n", 1, 1, "t"), ("n", 1, "s", "t"), (1, 1, "s", "t"), ("s", "t"), (1, 3, 1, 1)]
)
def test_added_masks(net, apply, shape):
    spelt(net, query=0.5, mask=net.x(*shape, name="mask"))
    n = only_attention(apply(net)[1])
    assert n.inputs[3].name == "mask"


def test_a_bias_is_added_to_the_mask(net, apply):
    """Positions relative to each other, beside a mask: as T5 adds both."""
    q, k, v = heads(net, "q", "s"), heads(net, "k", "t"), heads(net, "v", "t")
    y = net.add("MatMul", q, net.add("Transpose", k, perm=(0, 1, 3, 2)))
    y = net.add(
        "Add",
        net.add("Add", y, net.x(1, 3, "s", "t", name="bias")),
        net.x("n", 1, 1, "t", name="mask"),
    )
    net.mark_output(net.add("MatMul", net.add("Softmax", y, axis=-1), v), "y")
    only_attention(apply(net)[1], "Add")


@pytest.mark.parametrize(
    ("tokens", "rows", "products"), [("x", (), 1), ("z", (), 2), ("x", (2, 2), 1), ("z", (2, 2), 2)]
)
def test_products_are_joined(net, apply, tokens, rows, products):
    """q, k and v of the same tokens, k and v of others; rows of windows are seen as rows of all."""
    given = {
        name: net.x("n", *(rows or (4,)), 6, name=name) for name in dict.fromkeys(("x", tokens))
    }
    n = given["x"].spec.shape[0]
    parts = []
    for x, width in ((given["x"], 8), (given[tokens], 8), (given[tokens], 4)):
        y = net.add("MatMul", x, net.random(6, width))
        if len(parts) != 1 or rows:  # Whisper's keys have no bias
            y = net.add("Add", y, net.random(width))
        y = net.add("Reshape", y, shape=(n, 4, 2, width // 2))
        parts.append(net.add("Transpose", y, perm=(0, 2, 1, 3)))
    net.mark_output(net.add("Transpose", net.add("Attention", *parts), perm=(0, 2, 1, 3)), "y")
    kinds = apply(net)[0]
    assert kinds.count("MatMul+Add") == products
    assert kinds.count("TokenAttention") == 1


def test_chosen_masks(net, apply):
    spelt(net, keep=net.x("n", 1, 1, "t", name="keep", dtype="bool"), fill=-3.4e38)
    only_attention(apply(net)[1], "Where")


@pytest.mark.parametrize("fill", [-1e4, 0.0])
def test_a_small_fill_is_another_meaning(net, apply, fill):
    spelt(net, keep=net.x("n", 1, 1, "t", name="keep", dtype="bool"), fill=fill)
    kinds, _, trace = apply(net)
    assert "Attention" not in "".join(kinds)
    assert any("attention replaces" in m.reason for m in trace.near_misses)


@pytest.mark.parametrize("guard", [True, False])
def test_a_query_without_keys(net, guard):
    """A whole row of minus infinity: zeros with the guard, NaN without, before and after."""
    keep = net.x("n", 1, 1, "t", name="keep", dtype="bool")
    spelt(net, mask=net.add("Where", keep, net.c(0), net.c(-np.inf)), guard=guard)
    out, _ = fuse(net, all_rules())
    rng = np.random.default_rng(5)
    inputs = {k: rng.standard_normal((2, 3, 3, 4), dtype=np.float32) for k in "qkv"}
    inputs["keep"] = np.array([[True, False, True], [False] * 3]).reshape(2, 1, 1, 3)
    before, after = evaluate(net, inputs)["y"], evaluate(out, inputs)["y"]
    assert any(n.layer.name == "TokenAttention" for n in out.nodes)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    assert np.all(after[1] == 0) if guard else np.isnan(after[1]).all()
    assert np.isfinite(after[0]).all()


def test_a_mask_of_zeros_is_no_mask(net, apply):
    spelt(
        net, mask=net.add("Where", net.c(np.ones((1, 1, 1, 1)), np.bool_), net.c(0), net.c(-np.inf))
    )
    assert len(only_attention(apply(net)[1]).inputs) == 3


def test_an_expanded_mask_is_read_narrow(net, apply):
    mask = net.add(
        "Expand", net.x("n", 1, 1, "t", name="mask"), shape=(sym("n"), 1, sym("s"), sym("t"))
    )
    spelt(net, mask=mask)
    assert only_attention(apply(net)[1]).inputs[3].name == "mask"


def test_heads_that_share_keys_are_read_in_rows_of_tokens(net, apply):
    """Grouped queries as exporters write them: keys and values repeated for groups of heads."""
    q = net.add("Transpose", net.x("n", "s", 12, 4, name="q"), perm=(0, 2, 1, 3))
    few = []
    for x in (heads(net, name, "t") for name in "kv"):
        n, own, t, dim = x.spec.shape
        x = net.add("Reshape", x, shape=(n, own, 1, t, dim))
        x = net.add("Expand", x, shape=(n, own, 4, t, dim))
        few.append(net.add("Reshape", x, shape=(n, 12, t, dim)))
    mask = net.x("n", 12, "s", "t", name="mask")
    net.mark_output(net.add("Attention", q, *few, mask), "y")
    attrs = only_attention(apply(net)[1]).attrs
    assert (attrs.heads, attrs.key_heads) == (12, 3)


def test_keys_through_flat_heads(net, apply):
    """The transposed keys as torch's newer exporter emits them."""
    q, k, v = heads(net, "q", "s"), heads(net, "k", "t"), heads(net, "v", "t")
    n, t = sym("n"), sym("t")
    flat = net.add("Transpose", net.add("Reshape", k, shape=(n * 3, t, 4)), perm=(0, 2, 1))
    kt = net.add("Mul", net.add("Reshape", flat, shape=(n, 3, 4, t)), net.c(0.5))
    p = net.add("Softmax", net.add("MatMul", net.add("Mul", q, net.c(0.5)), kt), axis=-1)
    net.mark_output(net.add("MatMul", p, v), "y")
    node = only_attention(apply(net)[1])
    assert node.attrs.scale == pytest.approx(0.25)


@pytest.mark.parametrize("case", ["axis", "rank", "weights read", "scale per head", "heads differ"])
def test_what_is_not_attention(net, apply, case):
    shape = ("s", 4) if case == "rank" else ("n", 3, "s", 4)
    q = net.x(*shape, name="q")
    other = ("n", 1, "s", 4) if case == "heads differ" else shape
    k, v = net.x(*other, name="k"), net.x(*other, name="v")
    perm = (1, 0) if case == "rank" else (0, 1, 3, 2)
    y = net.add("MatMul", q, net.add("Transpose", k, perm=perm))
    y = net.add("Mul", y, net.random(3, 1, 1)) if case == "scale per head" else y
    p = net.add("Softmax", y, axis=-2 if case == "axis" else -1)
    if case == "weights read":
        net.mark_output(p, "p")
    net.mark_output(net.add("MatMul", p, v), "y")
    assert "Attention" not in "".join(apply(net)[0])


def test_a_factor_per_channel_stays_before(net, apply):
    q, k, v = (net.x("n", 3, "s", 4, name=name) for name in "qkv")
    net.mark_output(net.add("Attention", net.add("Mul", q, net.random(4)), k, v), "y")
    assert apply(net)[0] == ["Mul", "Attention"]


def test_a_quotient_by_the_query_stays_before(net, apply):
    q, k, v = (net.x("n", 3, "s", 4, name=name) for name in "qkv")
    net.mark_output(net.add("Attention", net.add("Div", net.c(2), net.add("Exp", q)), k, v), "y")
    assert apply(net)[0] == ["Exp+Div", "Attention"]


@pytest.mark.parametrize("batch", [1, 2, "n"])
def test_sequences_first(net, apply, batch):
    """As torch's MultiheadAttention computes it: one product over swapped rows, of which q, k and v
    are slices.
    """
    x = net.x(batch, "s", 6)
    n, s = x.spec.shape[:2]
    y = net.add("MatMul", net.add("Transpose", x, perm=(1, 0, 2)), net.random(6, 18))
    y = net.add("Reshape", net.add("Add", y, net.random(18)), shape=(1, s, n, 3, 6))
    y = net.add("Reshape", net.add("Transpose", y, perm=(3, 1, 2, 0, 4)), shape=(3, s, n, 6))
    parts = []
    for i in range(3):
        part = net.add("Slice", y, begins=(i,), sizes=(1,), axes=(0,), steps=(1,))
        part = net.add("Transpose", net.add("Reshape", part, shape=(s, n * 2, 3)), perm=(1, 0, 2))
        parts.append(net.add("Reshape", part, shape=(n, 2, s, 3)))
    q, k, v = parts
    p = net.add(
        "Softmax", net.add("MatMul", q, net.add("Transpose", k, perm=(0, 1, 3, 2))), axis=-1
    )
    y = net.add("Transpose", net.add("MatMul", p, v), perm=(2, 0, 1, 3))
    y = net.add("MatMul", net.add("Reshape", y, shape=(s * n, 6)), net.random(6, 6))
    y = net.add("Transpose", net.add("Reshape", y, shape=(s, n, 6)), perm=(1, 0, 2))
    net.mark_output(net.add("Add", x, y), "y")
    kinds, out, _ = apply(net)
    assert kinds == ["MatMul+Add", "TokenAttention", "MatMul+Add"]
    assert out.nodes[1].attrs.columns == (0, 6, 12)


LEADS = [("n",), (6,), (2, 3, 4), ("n", 2, 3), (2, 1, 2, 3)]


def of_rank(net, lead, mask=None, keep=None):
    """q k' with axes ``lead`` before those of rows, and a mask of that shape."""
    q, k, v = (net.x(*lead, rows, 4, name=name) for name, rows in (("q", 3), ("k", 5), ("v", 5)))
    rank = len(lead) + 2
    k = net.add("Transpose", k, perm=(*range(rank - 2), rank - 1, rank - 2))
    y = net.add("MatMul", net.add("Mul", q, net.c(0.5)), k)
    if mask is not None:
        y = net.add("Add", y, net.random(*mask))
    if keep is not None:
        y = net.add("Where", net.c(net.rng.random(keep) > 0.3, bool), y, net.c(-np.inf))
    p = net.add("Softmax", y)
    net.mark_output(net.add("Softmax", net.add("MatMul", p, v)), "y")


@pytest.mark.parametrize("lead", LEADS)
def test_other_ranks_are_batches_of_heads(net, apply, lead):
    of_rank(net, lead)
    assert [k for k in apply(net)[0] if k != "Reshape"] == ["Attention", "Softmax"]


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize(
    ("lead", "mask"),
    [((6,), (6, 3, 5)), ((6,), (3, 5)), ((6,), (6, 1, 5)), ((2, 3, 4), (2, 3, 4, 3, 5)), ((2, 3, 4), (4, 3, 5)),
     ((2, 3, 4), (1, 1, 4, 1, 5)), ((2, 3, 4), (2, 3, 1, 3, 5)), ((2, 3, 4), (5,))],
)  # fmt: skip
def test_masks_of_other_ranks(net, apply, lead, mask, chosen):
    of_rank(net, lead, **{"keep" if chosen else "mask": mask})
    assert "Attention" in apply(net)[0]


def test_a_mask_that_repeats_along_a_part_of_the_batch_is_another_meaning(net, apply):
    of_rank(net, (2, 3, 4), (1, 3, 4, 3, 5))
    assert "Attention" not in apply(net)[0]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("scaled", ["q", "k"])
def test_windows_by_einsum_attend_to_columns_of_one_product(net, apply, batch, scaled):
    """As in MaxViT: windows beside batches, q, k and v of one product, a batch of 1, too."""
    x = net.add("MatMul", net.x(batch, 5, 7, 12), net.random(12, 36))
    parts = net.add_layer("tactix.Split", [x], axis=3, sizes=(12, 12, 12))
    q, k, v = (
        net.add(
            "Transpose", net.add("Reshape", part, shape=(batch, 5, 7, 3, 4)), perm=(0, 1, 3, 2, 4)
        )
        for part in parts
    )
    q = net.add("Mul", q, net.c(0.5)) if scaled == "q" else q
    k = net.add("Mul", k, net.c(0.5)) if scaled == "k" else k
    y = net.add("Einsum", q, k, equation="BGHID,BGHJD->BGHIJ")
    y = net.add("Softmax", net.add("Add", y, net.random(3, 7, 7)))
    y = net.add("Einsum", y, v, equation="BGHIJ,BGHJD->BGHID")
    y = net.add("Reshape", net.add("Transpose", y, perm=(0, 1, 3, 2, 4)), shape=(batch, 5, 7, 12))
    net.mark_output(net.add("Softmax", net.add("MatMul", y, net.random(12, 12))), "y")
    kinds = [k for k in apply(net)[0] if k != "Reshape"]
    assert kinds == ["MatMul", "TokenAttention", "MatMul", "Softmax"]
