"""`torch.backends.openmp`: threads of compiled loops."""


def is_available() -> bool:
    """Returns False: OpenMP is not used.

    >>> import tensorgrad as torch
    >>> torch.backends.openmp.is_available()
    False
    """
    return False
