"""A build: prepare, fuse, select, assemble, finish."""
