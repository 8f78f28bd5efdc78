"""Memory formats and layouts: names that PyTorch programs pass around. Tensors here are always strided."""

from __future__ import annotations


class memory_format:
    """How the dimensions of a dense tensor lie in memory: which one varies fastest.

    >>> import tensorgrad as torch
    >>> x = torch.zeros(1, 4, 5, 3).permute(0, 3, 1, 2)
    >>> x.is_contiguous(memory_format=torch.channels_last)
    True
    """

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(memory_format):
    """How a tensor's elements are stored at all: only `strided` exists here.

    >>> import tensorgrad as torch
    >>> torch.ones(2).layout
    torch.strided
    """

    __slots__ = ()


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
