"""Layers that programs name and tactix's adapter does not make: their ``add_*`` return None."""

from __future__ import annotations

from tactix_tensorrt.api.enums import LayerType
from tactix_tensorrt.api.layer import ILayer


class IPluginLayer(ILayer):
    TYPE = LayerType.PLUGIN


class IDistCollectiveLayer(ILayer):
    TYPE = LayerType.DIST_COLLECTIVE
