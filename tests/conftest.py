"""Tests sign and trust plans in a folder of their own, not in the user's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "TACTIX_HOME" not in os.environ:  # before any test module loads a plan; child processes see it, too
    os.environ["TACTIX_HOME"] = tempfile.mkdtemp(prefix="tactix-home-")
    atexit.register(shutil.rmtree, os.environ["TACTIX_HOME"], ignore_errors=True)
