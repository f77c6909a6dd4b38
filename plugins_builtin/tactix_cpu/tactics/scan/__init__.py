"""Running folds along an axis."""
