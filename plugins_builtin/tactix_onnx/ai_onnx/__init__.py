"""Converters of the domain ``ai.onnx``."""
