"""Selection of an attention kernel. There is only one here, so the selection has no effect."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels for scaled dot product attention, softmax(Q Kᵀ / √d) V. Here they are only names.

    >>> from tensorgrad.nn.attention import SDPBackend
    >>> SDPBackend.MATH.name, SDPBackend.MATH.value
    ('MATH', 0)
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[dict]:
    """A context manager without effect: attention inside it is computed as elsewhere.

    Args:
        backends: an `SDPBackend`, or a list of them.

    Raises:
        AssertionError: `backends` is neither.

    >>> from tensorgrad.nn.attention import SDPBackend, sdpa_kernel
    >>> q = torch.zeros(1, 1, 2, 3)
    >>> with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    ...     y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    """
    if not isinstance(backends, list | SDPBackend):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    yield {}
