"""docs/tensorrt-plugins.md, made from the plugins that the pack knows.

python tests/documents/plugin_operators_page.py    # writes it anew
"""

from __future__ import annotations

from pathlib import Path

from tactix_trtops import operators
from tactix_trtops.operator import FOREIGN, PluginOperator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensorrt-plugins.md"
COMMAND = "python tests/documents/plugin_operators_page.py"

HEAD = f"""# Plugins of TensorRT in ONNX files

Written by `{COMMAND}` from `plugins_builtin/tactix_trtops`; a test holds that it is current.

Models that were exported for TensorRT name its plugins as operators. tactix reads those below, with
`tactix.build("model.onnx")` as with `OnnxParser` ([programs of TensorRT](tensorrt.md)), on every device: each becomes
layers of tactix's own, and fields that a plugin does not have are refused. They may be in ONNX's own domain or in
{", ".join(f"`{d}`" for d in FOREIGN)}; names that ONNX itself has are read as
plugins in the latter alone. `plugin_version` and `plugin_namespace` are not needed.

Of names that are TensorRT's own `trt.init_libnvinfer_plugins` registers creators; what programs make with these becomes
the same layers.

Meant is what TensorRT's kernels compute, with these differences:

- Of equal scores the lower box comes first in `EfficientNMS`, where TensorRT leaves it open; the lower class does in
  `BatchedNMS` and `NMS`.
- Overlaps are computed in float32 from boxes of float16, too.
- Boxes that do not touch never overlap; TensorRT takes one unit for it if they are pixels.
- `EfficientNMS` gives no boxes below a threshold under 0.007, nor the background, which TensorRT may fill up with.
- Rows and columns of `CoordConvAC` are as documented for images that are not square, too.
"""


def rows(o: PluginOperator) -> str:
    names = ", ".join(f"`{n}`" for n in o.names)
    fields = ", ".join(f"`{n}`" for n in o.fields)
    return f"| {names} | {o.summary} | {fields or '-'} |"


def page() -> str:
    table = ["| operator | what it does | fields |", "|---|---|---|", *map(rows, operators())]
    return HEAD + "\n" + "\n".join(table) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
