"""`torch.backends.mkl`: whether products run on Intel's library."""


def is_available() -> bool:
    """NumPy brings its own BLAS: False.

    >>> import tensorgrad as torch
    >>> torch.backends.mkl.is_available()
    False
    """
    return False
