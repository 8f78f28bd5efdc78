"""`torch.backends.opt_einsum`: how `einsum` orders its contractions (by NumPy's `einsum_path`, always)."""

enabled = True
strategy = "auto"


def is_available() -> bool:
    """Whether an order is looked for: yes, with or without the package opt_einsum.

    >>> import tensorgrad as torch
    >>> torch.backends.opt_einsum.is_available()
    True
    """
    return True
