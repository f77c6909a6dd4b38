"""The acme-onednn pack: a tactic source over oneDNN, bound by ctypes."""
