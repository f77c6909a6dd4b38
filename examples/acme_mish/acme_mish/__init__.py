"""The acme pack: one activation for tactix."""
