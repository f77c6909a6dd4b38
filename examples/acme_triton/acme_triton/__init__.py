"""The acme-triton pack: matrix products written in Triton, sealed into plans as cubins."""
