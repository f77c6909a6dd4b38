"""Converters of the domain ``ai.onnx.preview.training``, and gradients."""
