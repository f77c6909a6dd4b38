"""Tensors as arrays and back, without a copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]

NOT_NUMPYS: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.int8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.int8, np.dtype(ml_dtypes.float8_e5m2)),
}
"""Dtypes that torch does not hand to numpy: integers of their size, and what these stand for."""

BACK = {array: (np.dtype(f"i{array.itemsize}"), dtype) for dtype, (_, array) in NOT_NUMPYS.items()}
"""The same the other way."""


def array_of(tensor: torch.Tensor) -> Array:
    """The memory of a tensor on the processor."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    special = NOT_NUMPYS.get(tensor.dtype)
    if special is None:
        array: Array = tensor.numpy()
        return array
    stored, dtype = special
    stand_ins: Array = tensor.view(stored).numpy()
    return stand_ins.view(dtype)


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor in the memory of an array."""
    special = BACK.get(array.dtype)
    if special is None:
        return torch.from_numpy(array)
    integers, dtype = special
    return torch.from_numpy(array.view(integers)).view(dtype)
