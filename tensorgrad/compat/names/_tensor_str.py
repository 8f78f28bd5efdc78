"""`torch._tensor_str`: the values of a tensor as text, without `tensor(`."""

from __future__ import annotations

from tensorgrad.printing import (
    PRINT_OPTIONS,
    get_printoptions,
    printoptions,
    set_printoptions,
    suffixed,
    values_as_text,
)
from tensorgrad.tensor import Tensor

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]

PRINT_OPTS = PRINT_OPTIONS


def _tensor_str(self: Tensor, indent: int) -> str:
    """Returns the values of a tensor as they are printed, with lines after the first indented by `indent`.

    >>> torch._tensor_str._tensor_str(torch.tensor([[1.0, 2.5]]), indent=0)
    '[[1.0000, 2.5000]]'
    """
    return values_as_text(self, indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """Returns the text of a tensor with what its values do not show, and the last bracket.

    >>> torch._tensor_str._add_suffixes("Index([0, 1]", ["dim_size=3"], 6, force_newline=False)
    'Index([0, 1], dim_size=3)'
    """
    return suffixed(tensor_str, suffixes, indent, force_newline)
