"""Hostile plans by name: which sample each is made of, the change of its header, and a part of the
refusal.

The digests of all of them are right: what refuses them is the check that the text belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plan_mutations import look_deep

Change = Callable[[dict[str, Any]], None]
Case = tuple[str, Change, str]


def put(*path: Any, value: Any) -> Change:
    """A change that sets one place of the header."""

    def change(h: dict[str, Any]) -> None:
        held: Any = h
        for k in path[:-1]:
            held = held[k]
        held[path[-1]] = value

    return change


def artifact(field: str, value: Any, step: int = 0) -> Change:
    return put("steps", step, "artifact", field, value=value)


def argument(*row: Any) -> Change:
    """The first argument of the first launch."""
    return put("steps", 0, "artifact", "launches", 0, "args", 0, value=list(row))


def launch(field: str, value: Any) -> Change:
    return put("steps", 0, "artifact", "launches", 0, field, value=value)


def first_of(kind: str, **fields: Any) -> Change:
    """Fields of the first buffer of a kind."""

    def change(h: dict[str, Any]) -> None:
        next(b for b in h["buffers"] if b["kind"] == kind).update(fields)

    return change


def requirement(field: str, value: Any) -> Change:
    """A field of whatever is embedded."""

    def change(h: dict[str, Any]) -> None:
        for r in h["requirements"]:
            if r["embedded"]:
                r[field] = value

    return change


def another_name(h: dict[str, Any]) -> None:
    """A wheel under the name of other content."""
    (digest,) = {r["digest"] for r in h["requirements"] if r["embedded"]}
    h["blobs"]["f" * 64] = h["blobs"].pop(digest)
    requirement("digest", "f" * 64)(h)


def weight_as_wheel(h: dict[str, Any]) -> None:
    digest = next(b["blob"] for b in h["buffers"] if b["blob"])
    h["requirements"].append({**REQUIREMENT, "digest": digest, "embedded": True})


def operand(index: int, value: Any, side: str = "inputs", step: int = 0) -> Change:
    return put("steps", step, side, 0, index, value=value)


def in_itself(times: int) -> Change:
    """The plan as a body of its own first step, so many times."""

    def change(h: dict[str, Any]) -> None:
        body = {k: v for k, v in h.items() if k != "blobs"}
        for _ in range(times):
            step = {**body["steps"][0], "plans": [body]}
            body = {**body, "steps": [step, *body["steps"][1:]]}
        h.update(body)

    return change


def swapped(h: dict[str, Any]) -> None:
    """The last step first: it reads what is not there yet."""
    h["steps"].reverse()
    for b in h["buffers"]:
        if b["kind"] in ("arena", "workspace"):
            b.update(first=0, last=len(h["steps"]) - 1)


def fewer_steps(h: dict[str, Any]) -> None:
    """The output is nobody's: it would hold what was in memory."""
    h["steps"] = []
    h["buffers"] = [
        b | {"first": 0, "last": 0} if b["kind"] in ("arena", "workspace") else b
        for b in h["buffers"]
    ]


def wide_row(h: dict[str, Any]) -> None:
    """A table of 100000 blobs of no bytes, for one name each."""
    h["blobs"] |= {str(i): [0, 0, ""] for i in range(100_000)}


SUM = ["+", *(f"s{i}" for i in range(40))]
REQUIREMENT = {
    "key": "x.Y@1",
    "dist": "",
    "version": "",
    "digest": "",
    "embedded": False,
    "host_code": False,
}

CASES: dict[str, Case] = {
    # the header as JSON
    "deep_arrays": ("numpy", put("meta", "x", value=look_deep([], 300)), "nested more than 200 deep"),
    "many_values": ("numpy", put("meta", "x", value=[[]] * 200_000), "commas and brackets"),
    "half_a_character": ("numpy", put("name", value="\ud800"), "the header is no JSON"),
    "huge_integer": ("numpy", put("buffers", 0, "first", value=10**4200), "an integer from -1"),
    "float_for_integer": ("numpy", put("buffers", 0, "first", value=1.0), "expected an integer"),
    "flag_for_integer": ("numpy", put("inputs", 0, "buffer", value=True), "expected an integer"),
    "unknown_field": ("numpy", put("buffers", 0, "address", value=4096), "fields missing or unknown: address"),
    "no_steps": ("numpy", lambda h: h.pop("steps"), "fields missing or unknown: steps"),
    "many_empty_blobs": ("numpy", wide_row, "commas and brackets"),
    # dims
    "division_by_zero": ("numpy", put("buffers", 0, "nbytes", value=["//", "batch", 0]), "divided by zero"),
    "remainder_by_zero": ("numpy", put("buffers", 0, "nbytes", value=["%", 4, 0]), "expected a dimension"),
    "product_of_sums": ("numpy", put("buffers", 0, "nbytes", value=["*", SUM, SUM]), "not a dimension expression"),
    "endless_product": ("numpy", put("buffers", 0, "nbytes", value=["*", *["batch"] * 5000]), "not a dimension"),
    "endless_sum": ("numpy", put("buffers", 0, "nbytes", value=["+", *["batch"] * 5000]), "not a dimension"),
    "deep_dim": ("numpy", put("buffers", 0, "nbytes", value=look_deep("batch", 80)), "expected a dimension"),
    "huge_product": ("numpy", put("buffers", 0, "nbytes", value=["*", 1 << 61, 1 << 61]), "an integer from"),
    "unknown_symbol": ("native", artifact("workspace", "elsewhere"), "'elsewhere' follows from no input shape"),
    "negative_dim": ("numpy", put("buffers", 0, "shape", value=[-1, 20]), "an integer from 0"),
    "rank_1000": ("numpy", put("buffers", 0, "shape", value=[1] * 1000), "at most 32 dimensions"),
    # buffers
    "input_larger_than_its_tensor": ("numpy", first_of("input", nbytes=1 << 40), "does not fit buffer"),
    "output_larger_than_its_tensor": ("numpy", first_of("output", nbytes=["*", 4096, "batch"]), "does not fit buffer"),
    "weight_larger_than_its_blob": ("numpy", first_of("weight", nbytes=1 << 60), "but the blob has"),
    "weight_without_blob": ("numpy", first_of("weight", blob="gone"), "no blob 'gone'"),
    "arena_that_ends_before_it_begins": ("numpy", first_of("arena", first=1, last=0), "live from step 1 to 0"),
    "arena_beyond_the_steps": ("numpy", first_of("arena", first=0, last=1 << 40), "live from step 0 to"),
    "arena_dead_when_used": ("numpy", first_of("arena", first=0, last=0), "is not live"),
    "two_names_for_an_input": ("numpy", lambda h: h["inputs"].append({**h["inputs"][0], "name": "z"}), "buffer 0"),
    "object_seen_as_numbers": ("objects", operand(1, "f32", "inputs", 1), "as f32"),
    "sequence_of_nothing": ("objects", put("outputs", 0, "element", value=None), "have elements"),
    "element_of_text": (
        "objects", put("outputs", 0, "element", value=[{"dtype": "f32"}, "x", 0, 0]), "expected an array",
    ),
    "arena_of_2_60_bytes": ("numpy", first_of("arena", nbytes=1 << 60), "makes no sense"),
    "arena_of_2_46_bytes": ("numpy", first_of("arena", nbytes=1 << 46), "cannot have"),
    "arena_too_small": ("numpy", first_of("arena", nbytes=1), "larger than its buffer"),
    # steps
    "reads_what_comes_later": ("numpy", swapped, "before it is written"),
    "output_that_nobody_writes": ("numpy", fewer_steps, "no step writes it"),
    "writes_a_weight": ("numpy", operand(0, 1, "outputs"), "which is a weight"),
    "buffer_out_of_range": ("numpy", operand(0, 1 << 40), "no buffer"),
    "operand_larger_than_its_buffer": ("numpy", operand(2, ["batch", 1 << 20]), "larger than its buffer"),
    "unknown_launcher": ("numpy", artifact("launcher", "evil.launcher@1"), "no launcher 'evil.launcher@1'"),
    "unknown_layer": ("numpy", artifact("params", {"layer": "evil.Layer@1", "attrs": {}}), "no layer 'evil.Layer@1'"),
    "layers_in_each_other": ("numpy", artifact("params", {"x": look_deep({"layer": "e.L@1"}, 150)}), "no layer 'e.L@1"),
    "attributes_in_a_list": ("numpy", artifact("params", {"layer": "tactix.Softmax@1", "attrs": []}), "cannot be had"),
    "branch_without_bodies": ("numpy", artifact("launcher", "tactix.control@1"), "it is no branch or loop"),
    "branch_of_a_kind_that_is_none": (
        "loop", put("steps", -1, "artifact", "params", "control", value=["Loop"]), "it is no branch or loop",
    ),
    "loop_without_states": (
        "loop", put("steps", -1, "artifact", "params", "states", value=None), "it cannot be run",
    ),
    "plans_in_plans": ("numpy", in_itself(18), "deep in each other"),
    "given_by_nobody": ("numpy", put("given", value=["z"]), "nothing gives it"),
    "missing_feature": ("numpy", artifact("requires", ["time travel"]), "need time travel"),
    "shell_in_a_requirement": (
        "numpy", put("requirements", value=[{**REQUIREMENT, "dist": "a; rm -rf ~"}]), "no name and version",
    ),
    # packs
    "wheel_that_is_not_there": ("packs", requirement("digest", "0" * 64), "no blob with its wheel"),
    "wheel_that_is_another_blob": ("packs", another_name, "does not fit its sha256"),
    "weight_as_a_wheel": ("numpy", weight_as_wheel, "no wheel"),
    "pack_that_is_left_at_home": ("packs", requirement("embedded", False), "pip install acme-half==1"),
    # launches
    "input_out_of_range": ("native", argument("input", 99, "", 0), "argument input 99"),
    "negative_input": ("native", argument("input", -1, "", 0), "argument input -1"),
    "unknown_constant": ("native", argument("constant", 0, "nobody", 0), "argument constant 0 nobody"),
    "unknown_kind": ("native", argument("pointer", 0, "", 1 << 40), "argument pointer"),
    "argument_beyond_int64": ("native", argument("scalar", 0, "", 1 << 62), "an integer from"),
    "argument_of_five": ("native", argument("scalar", 0, "", 1, 2), "an array of 4"),
    "grid_of_text": ("native", launch("grid", "many"), "expected an array"),
    "negative_grid": ("native", launch("grid", [-1]), "an integer from 0"),
    "stride_in_a_launch": ("native", launch("stride", 1), "fields missing or unknown: stride"),
    "symbol_that_is_no_text": ("native", launch("symbol", ["system"]), "expected text"),
    "no_code": ("native", put("steps", 0, "artifact", "code", "blob", value="0" * 64), "no blob '000"),
    "weight_as_code": (
        "native", lambda h: h["steps"][0]["artifact"]["code"].update(blob=h["buffers"][1]["blob"]), "sha256|no blob",
    ),
}  # fmt: skip
