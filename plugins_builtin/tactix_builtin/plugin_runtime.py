"""What the built-ins offer at run time: the meaning of layers, launchers, devices, allocators, flavours, trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.device import Device
    from tactix.contracts.flavour import RuntimeFlavour
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.layer import Layer
    from tactix.contracts.trust import TrustStore


@hookimpl
def tactix_layers() -> list[Layer]:
    from tactix_ops.layers import all_layers

    return all_layers()


@hookimpl
def tactix_launchers() -> list[Launcher]:
    import tactix_cublaslt as cublaslt
    import tactix_cuda as cuda
    import tactix_cudnn as cudnn
    from tactix_cpu import launchers
    from tactix_ops import launchers as reference_launchers

    return [*reference_launchers(), *launchers(), *cuda.launchers(), *cublaslt.launchers(), *cudnn.launchers()]


@hookimpl
def tactix_devices() -> list[Device]:
    import tactix_cuda as cuda
    from tactix_cpu import devices

    return [*devices(), *cuda.devices()]


@hookimpl
def tactix_allocators() -> list[Allocator]:
    import tactix_cuda as cuda
    from tactix_cpu import allocators

    return [*allocators(), *cuda.allocators()]


@hookimpl
def tactix_flavours() -> list[RuntimeFlavour]:
    from tactix_runtime import flavours
    from tactix_ship.flavour import LeanFlavour

    return [*flavours(), LeanFlavour()]


@hookimpl
def tactix_trust_stores() -> list[TrustStore]:
    from tactix_trust import trust_stores

    return trust_stores()
