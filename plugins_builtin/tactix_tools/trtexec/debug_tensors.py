"""Debug tensors of one query in files, as trtexec names and describes them."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.files import replacing
from tactix_tensorrt import api as trt
from tactix_tensorrt.api.values import native
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.models import TrtexecFailure
from tactix_tools.trtexec.options import ReportingOptions

if TYPE_CHECKING:
    from tactix.contracts.device import Device

SUMMARY = "tensor_summary.json"


class DebugTensorFiles(trt.IDebugListener):
    """Writes what it is told of. ``files``: names of raw files by tensor; ``formats``: in which all
    are written, to files of the current folder that begin with a number; ``wait``: for the run.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        formats: Sequence[str],
        device: Device,
        wait: Callable[[], None],
        lines: ReportLines,
    ) -> None:
        super().__init__()
        self._files, self._formats = files, formats
        self._device, self._wait, self._lines = device, wait, lines
        self._rows: list[dict[str, object]] = []

    def process_debug_tensor(
        self,
        addr: int,
        location: trt.TensorLocation,
        type: trt.DataType,
        shape: trt.Dims,
        name: str,
        stream: int,
    ) -> bool:
        self._wait()
        array = self._content(addr, type, shape)
        files: dict[str, str] = {}
        if name in self._files:
            files["assigned"] = self._files[name]
            with replacing(files["assigned"]) as f:
                f.write(array.tobytes())
        for form in ("numpy", "string", "raw"):
            if form in self._formats:
                files[form] = self._write(array, name, form)
        self._lines.info(f"Wrote debug tensor {name}: {', '.join(files.values()) or SUMMARY}")
        self._rows.append(_row(name, array, type, files))
        return True

    def _content(self, addr: int, type: trt.DataType, shape: trt.Dims) -> Any:
        """A copy: the memory is the next run's, too."""
        import numpy as np

        array = np.empty(tuple(shape), native(type).numpy)
        if array.nbytes:
            self._device.copy_out(array, addr)
        return array

    def _write(self, array: Any, name: str, form: str) -> str:
        """The file's name."""
        import numpy as np

        safe = re.sub(r"[^\w.-]", "_", name)
        path = f"{len(self._rows):04}_{safe}"
        if form == "numpy":
            known = array.dtype.kind != "V"
            np.save(f"{path}.npy", array if known else array.astype(np.float32))
            return f"{path}.npy"
        content = array.tobytes() if form == "raw" else _text(array, name).encode()
        path += ".raw" if form == "raw" else ".txt"
        Path(path).write_bytes(content)
        return path

    def finish(self, engine: str) -> None:
        """Write the summary, if it is asked for. ``engine``: its name."""
        if "summary" not in self._formats:
            return
        now = datetime.datetime.now().astimezone()
        about = {
            "title": "Tensor Summary Report",
            "time_generated": now.isoformat(timespec="seconds"),
            "engine_name": engine,
            "command_line": shlex.join(sys.argv),
        }
        with replacing(SUMMARY) as f:
            f.write(json.dumps({"metadata": about, "tensors": self._rows}, indent=1).encode())


def _text(array: Any, name: str) -> str:
    values = "\n".join(str(v) for v in array.ravel().tolist())
    return f"{name}: ({as_trtexec(array.shape)})\n{values}\n"


def _row(name: str, array: Any, dtype: trt.DataType, files: Mapping[str, str]) -> dict[str, object]:
    import numpy as np

    wide = array.astype(np.float64).ravel()
    kinds = {"nan": np.isnan(wide), "inf": np.isinf(wide), "zero": wide == 0}
    statistics: dict[str, object] = {f"{k}_count": int(v.sum()) for k, v in kinds.items()}
    if wide.size:
        low, high, mean = wide.min(), wide.max(), wide.mean()
        statistics |= {"min": float(low), "max": float(high), "average": float(mean)}
    row: dict[str, object] = {
        "name": name,
        "shape": list(array.shape),
        "type": dtype.name,
        "statistics": statistics,
    }
    return row | ({"files": dict(files)} if files else {})


def save(context: trt.IExecutionContext, options: ReportingOptions, lines: ReportLines) -> None:
    """Write the debug tensors of one more query. Raises TrtexecFailure."""
    device = context.engine.native.device
    stream = None if device.host_memory else device.create_stream()
    files = DebugTensorFiles(
        options.debug_files,
        options.debug_formats,
        device,
        stream.synchronize if stream else lambda: None,
        lines,
    )
    _switch_on(context, list(options.debug_files), bool(options.debug_formats))
    context.set_debug_listener(files)
    if not context.execute_async_v3(stream.handle if stream else 0):
        raise TrtexecFailure("Error occurred during inference")
    context.set_debug_listener(None)
    files.finish(context.engine.name)


def _switch_on(context: trt.IExecutionContext, names: Sequence[str], every: bool) -> None:
    """Let a context tell of these, or of all. Raises TrtexecFailure for what is no debug tensor."""
    if every:
        context.set_all_tensors_debug_state(True)
        context.unfused_tensors_debug_state = True
    for name in names:
        if not context.set_tensor_debug_state(name, True):
            raise TrtexecFailure(f"{name} is no debug tensor of the engine: Build with --markDebug")
