"""Plans as ONNX files: the network after fusion, in operators that other programs know."""
