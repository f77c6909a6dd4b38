"""A home for programs that are written against TensorRT's Python API, with or without a GPU."""
