"""`torch.backends.mps`: Apple GPUs, which are not supported."""


def is_available() -> bool:
    """Returns whether Apple GPUs can be used: always False.

    >>> torch.backends.mps.is_available()
    False
    """
    return False


def is_built() -> bool:
    """Returns whether support for Apple GPUs is included: always False.

    >>> torch.backends.mps.is_built()
    False
    """
    return False
