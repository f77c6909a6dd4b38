"""The acme-blas pack: a tactic source over the BLAS of this machine."""
