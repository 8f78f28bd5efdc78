"""`torch.backends.mkl`: whether matrix products use Intel MKL."""


def is_available() -> bool:
    """Returns False: NumPy's BLAS is used.

    >>> torch.backends.mkl.is_available()
    False
    """
    return False
