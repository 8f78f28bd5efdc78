"""`torch.backends`: switches of the libraries behind PyTorch. There are none behind tensorgrad but NumPy's BLAS: the
switches can be set and read, and decide nothing."""

from tensorgrad.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
