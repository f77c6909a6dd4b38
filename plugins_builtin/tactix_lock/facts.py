"""Digests of what a build is made of: model, constants, the tools, the packs, the device."""

from __future__ import annotations

import hashlib
import json
import platform
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tactix.base.errors import LockError
from tactix.contracts import region
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition, inner_networks
from tactix.plan.encode import plain
from tactix.plugins.identity import Provider
from tactix.plugins.session import Session
from tactix.run.link import device_of
from tactix.select.compile import Toolchain

CALIBRATED = frozenset({"tactix.QuantizeLinear@1", "tactix.DequantizeLinear@1"})
"""Layers whose second and third inputs, scale and zero point, are what calibration found."""


def model(network: NetworkDefinition) -> dict[str, Any]:
    """Name, number of layers, and a digest of all but the content of constants."""
    text = json.dumps(_structure(network), sort_keys=True)
    layers = sum(len(net.nodes) for _, net in _networks(network))
    return {
        "name": network.name,
        "layers": layers,
        "digest": hashlib.sha256(text.encode()).hexdigest(),
    }


def constants(network: NetworkDefinition) -> tuple[dict[str, str], dict[str, str]]:
    """sha256 of dtype, shape and content of each constant that is used: weights, and scales and
    zero points.
    """
    weights: dict[str, Value] = {}
    calibration: dict[str, Value] = {}
    for path, net in _networks(network):
        for node in net.nodes:
            for i, v in enumerate(node.inputs):
                if v is not None and v.const is not None:
                    found = calibration if i and node.layer.key in CALIBRATED else weights
                    found[path + v.name] = v
    values = {**weights, **calibration}
    with ThreadPoolExecutor() as pool:
        digests = dict(zip(values, pool.map(_digest, values.values()), strict=True))
    return {k: digests[k] for k in weights}, {k: digests[k] for k in calibration}


def layers(network: NetworkDefinition) -> set[str]:
    """Keys of the layers of packs and of tactix, in bodies, too."""
    return {n.layer.key for _, net in _networks(network) for n in net.nodes}


def _networks(
    network: NetworkDefinition, path: str = ""
) -> Iterator[tuple[str, NetworkDefinition]]:
    """The network and all bodies in it, with a prefix for the names of each."""
    yield path, network
    for node in network.nodes:
        for i, body in enumerate(inner_networks(node)):
            yield from _networks(body, f"{path}{node.name}/{i}/")


def _structure(network: NetworkDefinition) -> Any:
    inputs = [[v.name, str(v.spec.plain())] for v in network.inputs]
    outputs = [
        [name, v.name] for name, v in zip(network.output_names, network.outputs, strict=True)
    ]
    return [inputs, [_node(n) for n in network.nodes], outputs, network.limits]


def _node(n: Node) -> Any:
    values = [v and [v.name, str(v.spec.plain())] for v in (*n.inputs, *n.outputs)]
    bodies = [_structure(body) for body in inner_networks(n)]
    return [n.name, region.encode(n.layer, n.attrs), values, list(n.origin), bodies]


def _digest(v: Value) -> str:
    import numpy as np

    data = np.ascontiguousarray(v.const)
    h = hashlib.sha256(f"{v.spec.dtype.value}{data.shape}".encode())
    h.update(data.reshape(-1).view(np.uint8).data if data.size else b"")
    return h.hexdigest()


def device(key: str, p: DeviceProperties) -> dict[str, Any]:
    """JSON of a device's facts; ``properties`` is its inverse."""
    return {
        "key": key,
        "kind": p.kind,
        "name": p.name,
        "features": sorted(p.features),
        "vector_bits": p.vector_bits,
        "cores": p.cores,
        "memory": p.memory,
        "facts": plain(p.facts),
    }


def properties(j: Mapping[str, Any]) -> DeviceProperties:
    """Of ``device``'s JSON."""
    fields = {k: v for k, v in j.items() if k not in ("key", "features")}
    return DeviceProperties(features=frozenset(j["features"]), **fields)


def targeted(session: Session, key: str, target: str) -> DeviceProperties:
    """What a build for that device is for. Raises LockError if the device is not here and no target
    stands for it.
    """
    found = device_of(session, key)
    if not target and (why := found.available()):
        raise LockError(
            f"device {key} is not here", why=why, do="Lock with a --target to build without it"
        )
    return found.target(target) if target else found.properties()


def toolchain(session: Session, kind: str, launchers: Iterable[str]) -> dict[str, str]:
    """Identities of the compilers that make code for those launchers."""
    own, used = {k for k, x in session.launchers.items() if x.device == kind}, set(launchers)
    chain = Toolchain(c for c in session.active_compilers() if c.launcher in own)
    return {c.key: c.identity() for c in chain.by_language.values() if c.launcher in used}


def versions() -> dict[str, str]:
    """Of what packs weights and writes files, beside tactix."""
    import numpy as np

    return {
        "numpy": np.__version__,
        "python": platform.python_version(),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def providers(session: Session) -> dict[str, Provider]:
    """Every distribution that has plugins in use, by name."""
    found = [e.provider for kind in session.kinds for e in getattr(session, kind).entries()]
    return {p.dist: p for p in sorted(found) if p.dist}
