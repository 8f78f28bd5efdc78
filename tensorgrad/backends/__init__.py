"""`torch.backends`: switches of the libraries behind PyTorch. Those of `cuda` and `cudnn` decide how products and
convolutions run on GPUs; behind the others there is nothing but NumPy's BLAS: they can be set and read, no more."""

from tensorgrad.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
