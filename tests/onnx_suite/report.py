"""docs/onnx.md from the results of the suite: totals, a table by operator, and every failure's
reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite import Result

HEAD = """# ONNX operators

Written by `tests/onnx_suite/suite.py --write docs/onnx.md`: onnx's own conformance cases (`onnx.backend.test`, of onnx
{version}), each imported, built and run by tactix. All tactics bid, generated C included; the best by estimate is
taken. A case passes if every output has the expected dtype and shape and agrees within the case's own tolerance (of
DFT and STFT, within the rounding of the float32 transform that made the expected values too).
Nothing is skipped: what is not supported counts as failed.

The newest forms alone are in there. `tests/opsets` compares every operator at every version at which it changed, in
10,000 small models, with ONNX Runtime (with onnx's reference where that has no kernel); `differences.txt` beside it
lists what is not the same, and why. Operators of ai.onnx.ml are among them.

Where the standard leaves the result open, tactix may give another one than ONNX Runtime; its kernels and references
agree with each other:

| case | tactix | ONNX Runtime |
|---|---|---|
| integer `Div` and `Mod` by 0 | 0 | an error |
| the lowest integer divided by -1 | the lowest integer; `Mod` gives 0 | not defined |
| `ReduceMean` of no elements | NaN, as in numpy; of integers the lowest one | 0 |
| global pooling of no elements | NaN for `GlobalAveragePool`, -inf for `GlobalMaxPool` | an error |
| NaN in `ArgMax`, `ArgMin`, `ReduceMax`, `ReduceMin`, `MaxPool` | taken first, as in numpy | some are passed over |
| `Compress`, condition longer than the axis | an error if slices beyond it are asked for | the rest is ignored |
| `Resize` by scales that leave every size as it is, as 1.1 of 5 | resized, as by the standard | copied |
| scale of `DynamicQuantizeLinear` of zeros | 0, by the standard's function (onnx's reference: 1/255) | 1 |

Numbers and types of inputs and outputs are held against onnx's description of each operator at the version that the
model imports, as by ONNX Runtime. What only a newer version permits, which ONNX Runtime refuses, is taken with a
warning: bfloat16 under an operator set that does not have it yet, for example.

Two things are taken more narrowly than by ONNX Runtime, on every device:

- The branches of an `If` may give different ranks only where all that reads the result broadcasts it: a rank is known
  when a model is imported. An output of the model, for example, is refused.
- An input of the graph that has an initializer is a constant of the plan. It cannot be given when running: the error
  is "no input is named" so. Take the initializer out of the model to make it an input.

"""

ON_CUDA = "## On CUDA\n"

CUDA_HEAD = """
Written by `tests/onnx_suite/suite.py --device tactix.cuda@1 --write docs/onnx.md` on a machine with a GPU: the same
cases, with onnx {version}. What has no kernel runs on the host, between copies; a case
counts as *on the GPU alone* where nothing did. Kernels may have come since this was written: layers
that lack one today are listed in [CUDA](cuda.md#what-runs-on-the-host).

"""

REASONS = ((r"^wrong result", "another reading of the standard"),)
"""What an error says, and the reason in a few words."""


def reason(error: str, name: str = "") -> str:
    """Why a case fails, in a few words; the error itself, without the node's name, if it is none of
    the known ones.
    """
    if "bernoulli" in name:
        return "random numbers of onnx's own generator"
    if re.search("attention.*fp16", name) and error.startswith("wrong result"):
        return "weights of attention rounded to float16 before the second product"
    for pattern, words in REASONS:
        if re.search(pattern, error):
            return words
    return re.sub(r"node '[^']*' |\S*\.onnx: ", "", error)[:160]


def document(results: Sequence[Result]) -> str:
    """The Markdown text."""
    import onnx

    parts = [
        HEAD.format(version=onnx.__version__),
        _totals(results),
        _operators(results),
        _failures(results),
    ]
    return "\n".join(parts)


def on_cuda(results: Sequence[Result]) -> str:
    """The part of the document about a GPU."""
    import onnx

    groups: dict[str, list[Result]] = defaultdict(list)
    hosted: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        groups[r.kind].append(r)
        for layer in r.host:
            hosted[layer].append(r)
    rows = [(kind, *_on_gpu(own)) for kind, own in groups.items()]
    head = ("kind", "on the GPU alone", "passed", "total")
    by_layer = sorted(hosted.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(
        [
            ON_CUDA
            + CUDA_HEAD.format(version=onnx.__version__)
            + _table(head, [*rows, ("all", *_on_gpu(results))]),
            "### Layers that ran on the host\n",
            _table(("layer", "cases"), [(f"`{layer}`", len(own)) for layer, own in by_layer]),
            _failures(results).replace("## Failures", "### Failures on CUDA"),
        ]
    )


def _on_gpu(results: Sequence[Result]) -> tuple[int, int, int]:
    return sum(not r.error and not r.host for r in results), *_count(results)


def joined(before: str, part: str) -> str:
    """The document with one part written anew: that about CUDA, which is its end, or all before it."""
    general, _, cuda = before.partition(ON_CUDA)
    if part.startswith(ON_CUDA):
        return f"{general.rstrip()}\n\n{part}" if general else part
    return f"{part.rstrip()}\n\n{ON_CUDA}{cuda}" if cuda else part


def _totals(results: Sequence[Result]) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        groups[r.kind].append(r)
    rows = [(kind, *_count(own)) for kind, own in groups.items()]
    return "## Totals\n\n" + _table(("kind", "passed", "total"), [*rows, ("all", *_count(results))])


def _operators(results: Sequence[Result]) -> str:
    """Cases of the kind ``node`` by the operator that they are about, functions' expanded forms
    included.
    """
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        if r.kind == "node":
            groups[r.operator].append(r)
    rows = [(op, _versions(own), *_count(own)) for op, own in sorted(groups.items())]
    title = "## Operators\n\nVersions are those of the operator sets that the cases import.\n\n"
    return title + _table(("operator", "versions", "passed", "total"), rows)


def _failures(results: Sequence[Result]) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in results:
        if r.error:
            groups[reason(r.error, r.name)].append(r)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = ["## Failures\n"]
    for words, own in ordered:
        lines.append(f"**{len(own)}: {words}**\n")
        lines.append(", ".join(f"`{r.name}`" for r in own) + "\n")
    return "\n".join(lines)


def _count(results: Iterable[Result]) -> tuple[int, int]:
    own = list(results)
    return sum(not r.error for r in own), len(own)


def _versions(results: Iterable[Result]) -> str:
    found = sorted({r.opset for r in results})
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
