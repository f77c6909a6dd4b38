"""Converters of the domain ``com.microsoft``."""
