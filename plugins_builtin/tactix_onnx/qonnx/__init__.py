"""Converters of QONNX, the form in which Brevitas and its like export quantised networks."""
