"""Layers that move, pick or make elements."""
