"""`torch._VF`: the functions of `torch`, by the name under which PyTorch's own modules call them."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns the function of `torch` that has this name.

    >>> from tensorgrad import _VF
    >>> _VF.dropout(torch.ones(2), 0.5, False)
    tensor([1., 1.])
    """
    import tensorgrad

    return getattr(tensorgrad, name)
