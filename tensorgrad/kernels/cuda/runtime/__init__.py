"""The base of the CUDA kernels: NVIDIA's libraries, the CUDA C compiler, and what CuPy lacks."""
