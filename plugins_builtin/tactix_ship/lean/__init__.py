"""The lean runtime: what running a plan needs, generated from these sources as the wheel
``tactix_lean``.
"""
