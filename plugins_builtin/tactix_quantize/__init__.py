"""Quantisation: ranges from sample data, and what reads integers by them."""
