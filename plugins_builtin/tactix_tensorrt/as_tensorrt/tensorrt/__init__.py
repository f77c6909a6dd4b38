"""``tensorrt`` where this folder is on PYTHONPATH: what ``tactix_tensorrt.api`` has."""

from tactix_tensorrt.installing import take_name

take_name()
