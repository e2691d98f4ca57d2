"""Conformance: what this package says PyTorch does, against PyTorch's own code on the virtual GPU."""
