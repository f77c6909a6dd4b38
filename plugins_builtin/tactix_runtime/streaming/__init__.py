"""Running with fewer bytes of weights in memory than a plan has."""
