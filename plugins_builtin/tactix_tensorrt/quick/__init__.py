"""``tensorrt.plugin``: plugins that are a few functions with a decorator each."""
