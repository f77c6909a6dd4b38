"""Tactics that order and choose elements."""
