"""Packs inside of plans: ``embed`` puts their wheels there at build time, ``carried`` imports them
at run time.
"""
