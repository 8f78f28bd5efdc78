"""`torch.backends.mps`: Apple's GPUs, which are not used here."""


def is_available() -> bool:
    """Whether they can be used: no.

    >>> import tensorgrad as torch
    >>> torch.backends.mps.is_available()
    False
    """
    return False


def is_built() -> bool:
    """Whether there is any code for them: no.

    >>> import tensorgrad as torch
    >>> torch.backends.mps.is_built()
    False
    """
    return False
