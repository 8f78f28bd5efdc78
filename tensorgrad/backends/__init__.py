"""`torch.backends`: settings of the libraries behind PyTorch.

Those of `cuda` and `cudnn` control matrix products and convolutions on GPUs; the others can be set and read, but have
no effect, since NumPy's BLAS is used. All can be set at any time: there is nothing that freezes them.
"""

from contextlib import nullcontext as __allow_nonbracketed_mutation  # MONAI sets them in it

from tensorgrad.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum, quantized

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized"]


def flags_frozen() -> bool:
    """Returns whether settings must not be changed: always False.

    >>> torch.backends.flags_frozen()
    False
    """
    return False
