"""A folder for PYTHONPATH: Python processes put the stand-in in when they start."""
