"""Text of CUDA kernels: arguments, scalar expressions, entries, results, products, windows."""
