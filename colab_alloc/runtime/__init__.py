"""This process: which PyTorch, has CUDA started, what is in effect, and changing it."""
