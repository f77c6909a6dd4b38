"""Plugins of TensorRT that networks name: the package's functions import the rest."""

from __future__ import annotations

from tactix.plugins.pack import BasePack
from tactix_trtops import converters

pack = BasePack("tactix")
pack.converter(converters)
