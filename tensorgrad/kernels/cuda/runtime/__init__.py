"""What CUDA kernels stand on: NVIDIA's libraries, the compiler of CUDA C, what CuPy lacks."""
