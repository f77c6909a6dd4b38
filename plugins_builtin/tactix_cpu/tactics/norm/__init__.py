"""Normalizations and softmax: row by row."""
