"""Layers that write elements where indices say."""
