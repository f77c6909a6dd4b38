"""A pack whose Python plans need: a layer without a kernel, and a launcher of its own."""
