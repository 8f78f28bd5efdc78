"""Random tensors, and random numbers written into tensors."""
