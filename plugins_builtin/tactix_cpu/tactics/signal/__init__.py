"""Tactics for signals and for products over time."""
