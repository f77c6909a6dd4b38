"""What a program of TensorRT finds when it imports ``tensorrt``."""

from __future__ import annotations

__version__ = "10.16.0"
