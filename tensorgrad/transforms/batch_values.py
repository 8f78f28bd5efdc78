"""What batching rules of rows (transforms/batch_rules.py) do with values: tensors that hold all samples."""

from __future__ import annotations

from typing import Any


def each(size: int, mapped: set[str], **given: Any) -> list:
    """Values with the batch first, also those that are the same for all samples; None stays None.

    >>> from tensorgrad.transforms.batch_values import each
    >>> x, y = each(3, {"x"}, x=torch.ones(3, 2), y=torch.ones(4))
    >>> x.shape, y.shape
    (torch.Size([3, 2]), torch.Size([3, 4]))
    """
    return [x if x is None or name in mapped else x.expand(size, *x.shape) for name, x in given.items()]
