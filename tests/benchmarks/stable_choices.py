"""Whether a busy neighbour changes what a build chooses: rebuilds without a timing cache beside a
process that spins.

    python tests/benchmarks/stable_choices.py model.onnx ... [--builds 50] [--threads 1] [--quiet]

For every layer the choices are counted. A change is explained if one of the two builds has the
other's choice among its near-ties. Printed for each model: layers whose choice changed, pairs of
builds that differ, and those not explained.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import tactix
from tactix.api import configure

Choices = dict[str, tuple[str, frozenset[str]]]
"""By layer the choice, and its near-ties."""


def _spin() -> None:
    x = 0
    while True:
        x += 1


@contextmanager
def neighbour(there: bool) -> Iterator[None]:
    process = multiprocessing.Process(target=_spin, daemon=True)
    if there:
        process.start()
    yield
    if there:
        process.kill()


def choices(plan: tactix.Plan) -> Choices:
    out = {}
    for name, row in plan.ledger["nodes"].items():
        titles = [(f"{c['tactic']} [{c['variant']}]", c) for c in row["candidates"]]
        (chosen,) = (t for t, c in titles if c["chosen"])
        out[name] = chosen, frozenset(t for t, c in titles if c.get("near_tie"))
    return out


def compare(name: str, builds: Sequence[Choices]) -> None:
    changed = {n for a, b in combinations(builds, 2) for n in a if a[n][0] != b.get(n, a[n])[0]}
    pairs = unexplained = 0
    shown: Counter[Any] = Counter()
    for n in changed:
        for (a, near_a), (b, near_b) in combinations([x[n] for x in builds], 2):
            pairs += a != b
            if a != b and b not in near_a and a not in near_b:
                unexplained += 1
                shown[n, *sorted((a, b))] += 1
    print(
        f"{name}: {len(builds)} builds of {len(builds[0])} layers; {len(changed)} layers changed,"
        f" {pairs} pairs of choices differ, {unexplained} are not near-ties"
    )
    for (n, a, b), times in shown.most_common(5):
        print(f"    {times:5} times {n}: {a} / {b}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--builds", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quiet", action="store_true", help="No neighbour.")
    options = parser.parse_args()
    builder = tactix.Builder()
    for model in options.models:
        network = builder.import_model(model)
        config = configure(timing_cache=False, threads=options.threads)
        with neighbour(not options.quiet):
            compare(
                model, [choices(builder.build_plan(network, config)) for _ in range(options.builds)]
            )


if __name__ == "__main__":
    main()
