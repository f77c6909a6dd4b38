"""A folder for PYTHONPATH of processes that programs start: ``tensorrt`` is tactix's there."""
