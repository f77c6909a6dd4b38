"""Profiles and pictures of plans, and where a fast one departs from its references."""
