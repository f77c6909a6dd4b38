"""A CPU plan as a C library: header, sources, machine code and weights, for programs without
Python.
"""
