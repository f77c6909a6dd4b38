"""Networks with Q/DQ at random places: ``python tests/qdq/fuzz_qdq.py --cases 2000 --first 0``.

Networks are numbered; ``--first N --cases 1`` tries one again. Each is imported, rewritten and, unless
``--rules`` says that this is enough, built, and its results are compared with ONNX Runtime's. ``--times``
builds each in larger sizes as well, with and without its Q/DQ, and compares the processor's time.
Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))

from qdq_networks import TIMED, grown
from qdq_trial import Outcome, Trial


def tried(trial: Trial, seed: int, timed: bool) -> Outcome:
    out = trial(grown(seed))
    if timed:
        out.seconds = trial.timed(
            grown(seed, sizes=TIMED), grown(seed, quantized=False, sizes=TIMED)
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--rules", action="store_true", help="build nothing")
    parser.add_argument("--times", action="store_true", help="compare the time with float32")
    args = parser.parse_args()
    trial, tally, found = Trial(engines=not args.rules), collections.Counter[str](), 0
    for seed in range(args.first, args.first + args.cases):
        try:
            out = tried(trial, seed, args.times)
        except Exception as e:
            found += 1
            print(f"{seed}: {type(e).__name__}: {e}", flush=True)
            continue
        for fault in out.faults:
            print(f"{seed}: {', '.join(grown(seed).operators)}: {fault}", flush=True)
        found += bool(out.faults)
        tally.update({"numbers": out.elements, "of these one integer off": out.off_by_one})
        tally[f"compared with {out.oracle}"] += 1
        if out.seconds:
            tally["timed"] += 1
            tally["slower than float32 by more than 1.3"] += out.slow
    for k, n in tally.items():
        print(f"{n:>10} {k}")
    print(f"{found} of {args.cases} networks with a fault")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
