"""Convolutions and attention by cuDNN's graph API, which is looked for when a network is built or a plan loaded."""

LAUNCHER = "tactix.cuda.cudnn@1"
FUNCTION = "cudnnBackendExecute"
"""The symbol of the launch, which is a call of the library."""
