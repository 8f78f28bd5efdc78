"""`torch.backends.openmp`: threads of compiled loops."""


def is_available() -> bool:
    """There are no compiled loops: False.

    >>> import tensorgrad as torch
    >>> torch.backends.openmp.is_available()
    False
    """
    return False
