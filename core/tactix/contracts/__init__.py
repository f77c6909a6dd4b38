"""Everything that a plugin may provide, one noun per file. Read this floor to write a plugin."""
