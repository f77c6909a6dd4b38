"""INT8 as TensorRT 10 has it: calibrators of programs, their caches, and ranges of tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import ConfigError, InvalidArgument
from tactix.contracts.calibrator import Calibration, Calibrator
from tactix_quantize import cache
from tactix_quantize.calibrators import QUANTILE, Entropy, Entropy2, Legacy, MinMax
from tactix_quantize.kept import ranges_of
from tactix_quantize.numbers import usable
from tactix_quantize.points import is_quantized
from tactix_tensorrt import device
from tactix_tensorrt.api.callbacks import IInt8Calibrator
from tactix_tensorrt.api.enums import CalibrationAlgoType

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.profile import IOptimizationProfile
    from tactix_tensorrt.api.tensor import ITensor

Range = tuple[float, float]


@dataclass(frozen=True)
class Asked:
    """What a program says of INT8. ``profile``: that has the sizes of batches, None where all sizes
    are fixed.
    """

    calibrator: IInt8Calibrator | None
    tensors: Sequence[ITensor]
    profile: IOptimizationProfile | None

    def calibration(
        self, net: NetworkDefinition, warn: Callable[[str], None]
    ) -> Calibration | None:
        """For tactix; None where the network has Q/DQ layers, or nothing tells ranges, with a
        warning. Raises ConfigError, InvalidArgument for what the calibrator gives.
        """
        given = {t.name: _symmetric(t.dynamic_range) for t in self.tensors if t.dynamic_range}
        if is_quantized(net):
            if self.calibrator is not None:
                warn("the network has Q/DQ layers: The calibrator is not asked. Leave it out")
            return None
        known = {*net.model_tensors, *(v.name for v in net.values)}
        given = {name: r for name, r in given.items() if name in known}
        kept = self.calibrator.read_calibration_cache() if self.calibrator is not None else None
        if kept:
            found = ranges_of(bytes(kept), "the calibration cache", net, warn)
            ranges = {name: r for name, r in found.items() if name in known}
            return Calibration(ranges={**ranges, **given}, symmetric=True)
        if self.calibrator is not None:
            asking = ProgramCalibrator(self.calibrator, net.inputs, self.profile)
            return Calibration(calibrator=asking, ranges=given, symmetric=True)
        if not given:
            what = "INT8 without a calibrator, ranges of tensors or Q/DQ layers: It changes nothing"
            warn(f"{what}. Give one of them")
            return None
        return Calibration(ranges=given, symmetric=True)


def _symmetric(limits: Range | None) -> Range:
    most = max(map(abs, limits or (0.0,)))
    return -most, most


class ProgramCalibrator(Calibrator):
    """A program's calibrator as tactix asks one. What it finds goes into the program's cache."""

    def __init__(
        self,
        program: IInt8Calibrator,
        inputs: Sequence[Value],
        profile: IOptimizationProfile | None,
    ) -> None:
        self._program, self._inputs, self._profile = program, inputs, profile
        self._finds = _algorithm(program)
        self.key = self._finds.key

    def batches(self) -> Iterator[Mapping[str, Array]]:
        names, any_yet = [v.name for v in self._inputs], False
        while addresses := self._program.get_batch(names):
            if len(addresses) != len(names):
                what = f"get_batch gave {len(addresses)} addresses for {len(names)} inputs"
                raise InvalidArgument(what, do=f"Give one for each of: {', '.join(names)}")
            pairs = zip(self._inputs, addresses, strict=True)
            any_yet = True
            yield {v.name: _read(v, int(at), self._shape(v)) for v, at in pairs}
        if not any_yet:
            who = f"calibrator {type(self._program).__name__}"
            do = "Give addresses of all inputs until there is no more, or a calibration cache"
            raise InvalidArgument("its get_batch gave no batch", who=who, do=do)

    def observe(self, tensor: str, values: Array) -> None:
        self._finds.observe(tensor, values)

    def ranges(self) -> Mapping[str, Range]:
        """Those that the cache holds, which is written."""
        text = cache.encode(usable(self._finds.ranges()), self.key)
        self._program.write_calibration_cache(memoryview(text))
        return cache.decode(text)

    def _shape(self, v: Value) -> tuple[int, ...]:
        """Raises ConfigError for an open size that no profile tells."""
        if all(isinstance(d, int) for d in v.spec.shape):
            return tuple(int(str(d)) for d in v.spec.shape)
        if self._profile is None or v.name not in self._profile.shapes:
            do = "Call set_calibration_profile, or add an optimization profile"
            raise ConfigError(f"nothing tells the size of calibration's {v.name!r}", do=do)
        return tuple(self._profile.shapes[v.name].opt)


def _algorithm(program: IInt8Calibrator) -> Calibrator:
    kind = program.get_algorithm()
    if kind is CalibrationAlgoType.LEGACY_CALIBRATION:
        asked = getattr(program, "get_quantile", lambda: QUANTILE)  # not in every release
        return Legacy(quantile=float(asked()))
    makers: Mapping[CalibrationAlgoType, type[MinMax] | type[Entropy]] = {
        CalibrationAlgoType.ENTROPY_CALIBRATION: Entropy,
        CalibrationAlgoType.ENTROPY_CALIBRATION_2: Entropy2,
        CalibrationAlgoType.MINMAX_CALIBRATION: MinMax,
    }
    return makers[kind]()


def _read(v: Value, address: int, shape: tuple[int, ...]) -> Array:
    """A copy of an input's numbers from the device's memory. Raises InvalidArgument."""
    if not address:
        raise InvalidArgument(f"get_batch gave no address for {v.name!r}")
    out: Array = np.empty(shape, v.spec.dtype.numpy)
    if device.chosen() == "cpu":
        ctypes.memmove(out.ctypes.data, address, out.nbytes)
        return out
    from cuda.bindings import runtime

    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    (status,) = runtime.cudaMemcpy(out.ctypes.data, address, out.nbytes, kind)
    if int(status):
        what = f"the batch of {v.name!r} cannot be read"
        raise InvalidArgument(what, why=str(status), do=f"Give {out.nbytes} bytes")
    return out
