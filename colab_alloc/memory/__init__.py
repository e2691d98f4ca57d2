"""Looking at the GPU's memory: one reading, readings over time, every block."""
