"""Traced arrays: content as numpy has it, recipes that give it again, and looks that are noticed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.plan.schema import Plan
from tactix_refit.build import RefitBuild, _Flat
from tactix_refit.recipe import Recipes, needs
from tactix_refit.replay import Replay
from tactix_refit.trace import Traced, Tracer

BF16 = DType.BF16.numpy
WORK: dict[str, Callable[[Any, Any], Any]] = {
    "fold": lambda w, v: w * (v.astype(np.float64) / np.sqrt(v * v + 1e-5)).astype(np.float32).reshape(-1, 1, 1),
    "operators": lambda w, v: -w + 2 * w / 3 - abs(w) ** np.float32(2),
    "reflected": lambda w, v: np.float32(3) - np.ones((4, 1, 1), np.float32) / (w * w + 1),
    "turned": lambda w, v: w.T.transpose(1, 0, 2).reshape(6, -1).ravel(),
    "moved": lambda w, v: np.moveaxis(np.swapaxes(w, 0, 2), [0, 1], [2, 0]),
    "axes": lambda w, v: np.transpose(np.squeeze(np.expand_dims(w, 1), 1), (2, 0, 1)),
    "cut": lambda w, v: w[1:, None, ::-1, ..., 2],
    "split": lambda w, v: np.concatenate(np.split(w, [1, 3], axis=1)[::-1], axis=1),
    "joined": lambda w, v: np.stack([v, w[:, 0, 0], np.arange(4, dtype=np.float32)], axis=-1),
    "padded": lambda w, v: np.pad(w, ((0, 3), (1, 0), (0, 0))).astype(BF16),
    "bits": lambda w, v: w.astype(BF16).view(np.uint16),
    "product": lambda w, v: (np.kron(np.eye(2), [[1, 2]]) @ w.reshape(4, -1).astype(np.float64)).astype(np.float32),
    "spread": lambda w, v: np.broadcast_to(v.reshape(-1, 1, 1), (4, 5, 6)) + w,
    "sums": lambda w, v: w.sum(axis=(0, 2), keepdims=True) + w.sum() + np.sum(v),
    "taken": lambda w, v: np.take(w, np.array([[0, 5], [2, -1]]), axis=2),
    "halves": lambda w, v: np.where(np.isfinite(w), np.clip(w, -1.0, 1.0), w).astype(np.float16),
    "minmax": lambda w, v: np.maximum(np.minimum(w, np.float32(1)), np.tanh(w)),
    "blocks": lambda w, v: np.pad(w.reshape(4, 30), ((0, 4), (0, 2))).reshape(2, 4, 8, 4).transpose(0, 2, 1, 3),
}  # fmt: skip


def arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((4, 5, 6), dtype=np.float32),
        "v": rng.standard_normal(4, dtype=np.float32),
    }


def replayed(tracer: Tracer, made: Traced, weights: dict[str, Any], threads: int = 1) -> Any:
    """What the recipe gives for these weights."""
    flat = _Flat({}, tracer.literals)
    place = flat.add(made.term)
    terms = tuple(flat.steps)
    plan = Plan("", (), (), (), (), (), blobs=flat.literals)
    out = np.empty(terms[place].nbytes, np.uint8)
    Replay(plan, Recipes({}, {}, terms, {"b": place}, needs(terms))).run(
        ["b"], weights, {"b": out}, threads
    )
    return out.view(terms[place].dtype.numpy).reshape(terms[place].shape)


@pytest.mark.parametrize("name", WORK)
def test_the_recipe_gives_what_numpy_gives(name: str) -> None:
    work, first, other = WORK[name], arrays(1), arrays(2)
    tracer = Tracer()
    made = work(tracer.weight("w", first["w"]), tracer.weight("v", first["v"]))
    assert isinstance(made, Traced)
    for given in (first, other):
        want = work(given["w"], given["v"])
        got = replayed(tracer, made, given)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(made.value, work(first["w"], first["v"]))
    assert not tracer.fixed


LOOKS: dict[str, Callable[[Any], Any]] = {
    "truth": lambda w: bool(w[0, 0, 0] > 0), "number": lambda w: float(w[0, 0, 0]), "item": lambda w: w[0, 0, 0].item(),
    "array": np.asarray, "bytes": lambda w: w.tobytes(), "largest": lambda w: w.max(), "flat": lambda w: w.flat[0],
    "order": np.sort, "stored": lambda w: np.zeros((4, 5, 6)).__setitem__(..., w), "places": lambda w: w[[0, 2]],
    "inplace": lambda w: np.add(w, 1, out=np.zeros((4, 5, 6), np.float32)), "elements": list,
    "pickled": pickle.dumps, "other padding": lambda w: np.pad(w, 1, mode="edge"), "reduced": np.add.reduce,
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_whatever_shows_the_content_is_noticed(name: str) -> None:
    tracer = Tracer()
    assert not isinstance(LOOKS[name](tracer.weight("w", arrays(1)["w"])), Traced)
    assert tracer.fixed.keys() == {"w"}
    assert (
        __name__ in tracer.fixed["w"]
        or "conftest" in tracer.fixed["w"]
        or "_pytest" in tracer.fixed["w"]
    )


def test_facts_and_finiteness_are_no_looks() -> None:
    tracer = Tracer()
    w = tracer.weight("w", arrays(1)["w"])
    assert (w.shape, w.dtype, w.ndim, w.size, w.nbytes, len(w)) == (
        (4, 5, 6),
        np.float32,
        3,
        120,
        480,
        4,
    )
    assert np.isfinite(w).all()
    assert np.isfinite(w.sum())
    assert w.flags.c_contiguous
    assert not tracer.fixed


def test_scopes_collect_and_pauses_forget() -> None:
    tracer = Tracer()
    w, v = (tracer.weight(n, a) for n, a in arrays(1).items())
    with tracer.scope() as looks:
        assert float((w.sum() * v.sum()).value) != 0
        assert not looks
        float(w.sum())
    assert looks == {"w"}
    with tracer.pause():
        assert not isinstance(w + v[0], Traced)
        np.asarray(v)
    assert not tracer.fixed


def test_identical_weights_may_be_looked_at() -> None:
    build = RefitBuild(identical=True, strip=False)
    float(build.weight("w", arrays(1)["w"]).sum())
    assert not build.fixed


def test_equal_work_is_one_term() -> None:
    tracer = Tracer()
    w = tracer.weight("w", arrays(1)["w"])
    a, b = (w * np.float32(2) + 1 for _ in range(2))
    assert a.term is b.term
    assert (w * np.float32(3)).term is not (w * np.float32(2)).term
    both = (a * a) - (b * b).reshape(4, 5, 6)
    np.testing.assert_array_equal(replayed(tracer, both, arrays(2), threads=3), np.zeros((4, 5, 6)))
