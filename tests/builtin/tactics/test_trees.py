"""c_trees: random trees of every mode and aggregate, NaN, sets, odd numbers of samples."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check_all, node, spec

from tactix.base.dtypes import DType
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.trees import TreeEnsembleTactic

TACTIC = TreeEnsembleTactic()
TABLES = range(1, 13)
LEAF = 7


def forest(modes=(0,), trees=5, depth=4, features=6, targets=1, code="f32", missing=False, seed=0):
    """The inputs but for x: trees of which some branches end early."""
    rng = np.random.default_rng(seed)
    nodes, roots = [], []

    def grow(left):
        at = len(nodes)
        nodes.append(None)
        if left == 0 or rng.random() < 0.2:
            nodes[at] = (0, LEAF, 0.0, at, at)
            return at
        yes, no = grow(left - 1), grow(left - 1)
        nodes[at] = (rng.integers(features), rng.choice(modes), rng.integers(-4, 5), yes, no)
        return at

    for _ in range(trees):
        roots.append(grow(depth))
    feature, mode, split, yes, no = (np.array(c) for c in zip(*nodes, strict=True))
    leaves = np.nonzero(mode == LEAF)[0]
    leaf = np.repeat(leaves, 2 if targets > 1 else 1)
    target = rng.integers(0, targets, len(leaf))
    sets = np.nonzero(mode == 6)[0].repeat(3)
    t = DType(code).numpy
    return [
        feature.astype(np.int64), mode.astype(np.int64), split.astype(t), yes.astype(np.int64),
        no.astype(np.int64), (rng.random(len(mode)) < 0.5) if missing else np.zeros(len(mode), bool),
        np.array(roots), leaf, target, rng.standard_normal(len(leaf)).astype(t),
        rng.permutation(sets), rng.integers(-4, 5, len(sets)).astype(t),
    ]  # fmt: skip


def samples(count, code="f32", features=6, nan=False):
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (count, features)).astype(DType(code).numpy)
    if nan:
        x[rng.random(x.shape) < 0.3] = np.nan
    return x


def case(x, tables, **attrs):
    made = node("TreeEnsemble", [x, *tables], list(TABLES)[: len(tables)], **attrs)
    return Case(made, TACTIC, [x, *tables], nt=(1, 3))


@pytest.mark.parametrize("mode", range(7))
@pytest.mark.parametrize("missing", [False, True])
def test_every_mode(mode, missing):
    tables = forest((mode,), missing=missing)
    x = samples(37, nan=True)
    check_all([case(x, tables)])


@pytest.mark.parametrize("code", ["f32", "f64", "f16", "bf16"])
def test_modes_of_all_kinds_and_every_dtype(code):
    x = samples(70, code, nan=True)
    check_all([case(x, forest(tuple(range(7)), code=code, missing=True))])


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_every_aggregate(aggregate, targets):
    tables = forest(targets=targets, trees=7)[:10]
    cases = [
        case(samples(n), tables, targets=targets, aggregate=aggregate) for n in (1, 16, 65, 200)
    ]
    check_all(cases)


def test_trees_of_one_leaf_and_no_trees():
    leaves = forest(depth=0)[:10]
    none = forest(depth=2)[:10]
    none[6] = none[6][:0]
    check_all([case(samples(5), leaves), case(samples(5), none, aggregate="AVERAGE")])


def test_splits_of_float64_for_samples_of_float32():
    tables = forest(code="f64")[:10]
    check_all([case(samples(33), tables)])


@pytest.mark.parametrize(("rows", "features"), [(0, 6), (9, 6), (9, 3)])
def test_symbolic_sizes_and_too_few_features(rows, features):
    x, tables = samples(rows, features=features), forest()[:10]
    made = node("TreeEnsemble", [spec(x, ("n", "f")), *tables], list(TABLES)[:10])
    one = Case(made, TACTIC, [x, *tables], env={"n": rows, "f": features})
    if features == 6:
        check_all([one])
        return
    ((variant, artifact),) = _compile(one)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(made, variant, artifact, one.env)
    run(getattr(_library(binary), binary.symbol), [x, *tables], 1)
    assert run.reported


@pytest.mark.parametrize(("table", "value"), [(0, 99), (3, 99), (4, -1), (6, 500), (7, -2), (8, 4)])
def test_tables_that_name_what_is_not_there_stay_with_numpy(table, value):
    tables = forest()[:10]
    tables[table] = np.full_like(tables[table], value)
    made = node("TreeEnsemble", [samples(3), *tables], list(TABLES)[:10])
    assert isinstance(asked.variants(TACTIC, made, NATIVE), Reject)


def test_trees_that_never_end_stay_with_numpy():
    tables = forest(trees=1, depth=3, seed=4)[:10]
    tables[3] = np.zeros_like(tables[3])
    made = node("TreeEnsemble", [samples(3), *tables], list(TABLES)[:10])
    assert isinstance(asked.variants(TACTIC, made, NATIVE), Reject)
