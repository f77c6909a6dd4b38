"""Matrix products, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator

from layer_cases.case import Case, halved


def products() -> Iterator[Case]:
    sizes = {
        "square": ("f32[256,256]", "f32[256,256]"), "row": ("f32[1,1024]", "f32[1024,1024]"),
        "tall": ("f32[1024,64]", "f32[64,64]"), "odd": ("f32[127,63]", "f32[63,129]"),
        "heads": ("f32[12,128,64]", "f32[12,64,128]"), "batch by one": ("f32[8,64,256]", "f32[256,256]"),
        "vectors": ("f32[64,1,128]", "f32[64,128,64]"), "column": ("f32[512,512]", "f32[512,1]"),
        "outer": ("f32[512,1]", "f32[1,512]"), "dot": ("f32[1,4096]", "f32[4096,1]"),
    }  # fmt: skip
    for note, (a, b) in sizes.items():
        yield from halved([Case("MatMul", (a, b), note=note, slack=8)])
        yield Case("MatMul", (a, f"= {b}"), note=f"{note}, constant", slack=8)
    for note, half in (("dense", "= f32[768,768]"), ("up", "= f32[768,3072]")):
        yield from halved([Case("MatMul", ("f32[1,64,768]", half), note=note, slack=16)])
    yield Case("MatMul", ("i32[128,128]", "i32[128,128]"), note="integers")
    weights = ("= f32[512,256]", "= f32[512]")
    yield from halved([Case("Gemm", ("f32[64,256]", *weights), {"transB": 1}, slack=8)])
    yield Case("Gemm", ("f32[1,256]", *weights), {"transB": 1}, slack=8)
    yield Case("Gemm", ("f32[256,65]", "f32[256,127]"), {"transA": 1, "alpha": 0.5}, slack=8)
    for name in ("FusedMatMul", "TransposeMatMul"):
        yield Case(
            f"com.microsoft::{name}", ("f32[12,128,64]", "f32[12,128,64]"), {"transB": 1}, slack=8
        )
    yield Case(
        "com.microsoft::FusedGemm",
        ("f32[64,256]", *weights),
        {"transB": 1, "activation": "Relu"},
        slack=8,
    )
    for equation, a, b in (
        ("bi,bij->bj", "f32[32,128]", "f32[32,128,64]"), ("bij,bjk->bik", "f32[12,64,128]", "f32[12,128,64]"),
        ("bhid,bhjd->bhij", "f32[1,12,128,64]", "f32[1,12,128,64]"), ("ij,j->i", "f32[512,512]", "f32[512]"),
        ("bshd,bthd->bhst", "f32[1,128,12,64]", "f32[1,128,12,64]"), ("i,j->ij", "f32[512]", "f32[512]"),
        ("bij,bij->b", "f32[32,64,64]", "f32[32,64,64]"), ("bchw,cd->bdhw", "f32[1,64,28,28]", "f32[64,64]"),
    ):  # fmt: skip
        yield from halved([Case("Einsum", (a, b), {"equation": equation}, equation, slack=16)])
    yield Case("Einsum", ("f32[256,512]",), {"equation": "ij->ji"}, "ij->ji")
    yield Case("Einsum", ("f32[64,65,66]",), {"equation": "ijk->ik"}, "ijk->ik", slack=8)
    yield Case(
        "com.microsoft::CDist", ("f32[256,64]", "f32[256,64]"), {"metric": "euclidean"}, slack=16
    )
    yield Case("Det", ("f32[64,8,8]",), slack=64)
    yield Case("com.microsoft::Inverse", ("f32[64,8,8]",), slack=1000)
