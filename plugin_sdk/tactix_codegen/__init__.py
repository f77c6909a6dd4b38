"""The ground floor of all kernels: what operations are, scalar expressions over numpy and as text
of C and CUDA.

Imports the core alone.
"""
