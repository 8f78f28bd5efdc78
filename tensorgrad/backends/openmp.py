"""`torch.backends.openmp`: threads of compiled loops."""


def is_available() -> bool:
    """Returns False: OpenMP is not used.

    >>> torch.backends.openmp.is_available()
    False
    """
    return False
