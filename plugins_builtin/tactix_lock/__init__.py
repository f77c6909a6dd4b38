"""Locks: what a build chose and what it was built from and with, so that it can be done again to
the byte.
"""
