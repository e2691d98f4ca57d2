"""Measured ratios, each against a yardstick in the same run. Scripts, not tests: nothing here fails for being slow."""
