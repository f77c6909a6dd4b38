"""Programs written against other engines' faces: ``torch.compile``, and ONNX Runtime's sessions."""
