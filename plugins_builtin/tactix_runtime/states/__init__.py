"""States that grow in memory that contexts reserve for them."""
