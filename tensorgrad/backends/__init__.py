"""`torch.backends`: settings of the libraries behind PyTorch.

Those of `cuda` and `cudnn` control matrix products and convolutions on GPUs; the others can be set and read, but have
no effect, since NumPy's BLAS is used.
"""

from tensorgrad.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
