"""Reading tensors between their elements, or at places that data gives: resizing, sampling."""
