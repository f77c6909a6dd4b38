"""Convolutions with their epilogue by cuDNN's graph API: looked for when a network is built or a plan loaded."""

LAUNCHER = "tactix.cuda.cudnn@1"
FUNCTION = "cudnnBackendExecute"
"""The symbol of the launch, which is a call of the library."""
