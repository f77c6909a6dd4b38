"""How a compiled kernel of a plugin is started."""

from __future__ import annotations

from tactix_tensorrt.api.plugin_sizes import IDimensionExpr
from tactix_tensorrt.quick.sizes import SymInt32, SymIntExpr

Number = int | IDimensionExpr | SymIntExpr


class KernelLaunchParams:
    """Blocks of a grid, threads of a block, and bytes of shared memory, which sizes may tell.

    Raises AttributeError for another name.
    """

    grid_x: SymInt32
    grid_y: SymInt32
    grid_z: SymInt32
    block_x: SymInt32
    block_y: SymInt32
    block_z: SymInt32
    shared_mem: SymInt32

    def __init__(
        self,
        grid_x: Number = 1,
        grid_y: Number = 1,
        grid_z: Number = 1,
        block_x: Number = 1,
        block_y: Number = 1,
        block_z: Number = 1,
        shared_mem: Number = 0,
    ) -> None:
        given = {k: v for k, v in locals().items() if k in KernelLaunchParams.__annotations__}
        for name, value in given.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Number) -> None:
        if name not in KernelLaunchParams.__annotations__:
            raise AttributeError(f"KernelLaunchParams has no attribute {name!r}")
        super().__setattr__(name, SymInt32(value))
