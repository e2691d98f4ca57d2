"""The language of PyTorch's allocator variable. Pure Python: nothing here needs PyTorch."""
