"""Groups of GPUs that communicate by NVIDIA's library NCCL, which CuPy brings."""
