"""Other weights for a plan that is built: which stored constants follow from which named weights,
and how.
"""
