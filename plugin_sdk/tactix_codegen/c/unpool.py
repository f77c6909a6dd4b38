"""MaxUnpool in C and CUDA C: where an element goes."""

from __future__ import annotations

from tactix.base.dims import Shape
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args


def target(args: Args, small: Shape, shape: Shape, skip: str) -> list[str]:
    """Declare ``at``, where ``place`` of the smallest result lies in a result of ``shape``;
    ``skip``: the statement for one that the result ends before.
    """
    if small == shape:
        return ["const int64_t at = place;"]
    names = [f"i{i}" for i in range(len(shape))]
    beyond = [
        f"{name} >= {args.dim(d)}" for name, d, s in zip(names, shape, small, strict=True) if d != s
    ]
    return [
        c_text.decode("place", names, [args.dim(d) for d in small]),
        f"if ({' || '.join(beyond)}) {skip}",
        f"const int64_t at = {args.offset(c_text.contiguous_strides(shape), names)};",
    ]
