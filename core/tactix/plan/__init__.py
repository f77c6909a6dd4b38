"""The plan: a serialized engine as data, its file format, and the arithmetic of its memory."""
