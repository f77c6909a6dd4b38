"""``torch.compile(model, backend="tactix")``."""
