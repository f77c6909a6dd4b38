"""Matrix products and 1x1 convolutions by cuBLASLt, which is looked for when a network is built or a plan loaded."""

LAUNCHER = "tactix.cuda.cublaslt@1"
FUNCTION = "cublasLtMatmul"
"""The symbol of the launch that is a call of the library."""
