"""Metadata of installed distributions: the standard library's from 3.12 on, before that its
backport.
"""

import sys

if sys.version_info >= (3, 12):
    from importlib import metadata
else:
    import importlib_metadata as metadata

__all__ = ["metadata"]
