"""A pack of a layer and a tactic in C: its plans need nothing of it."""
