"""Causal masks for `scaled_dot_product_attention` that are described, not stored."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import tensorgrad as torch
from tensorgrad.errors import warn
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """The corner of the matrix from which the diagonal of a causal mask starts, if it is not square."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask (`seq_len_q`, `seq_len_kv`), to be passed as the `attn_mask` of `scaled_dot_product_attention`.

    Raises:
        AssertionError: The variant is not a `CausalVariant`.
        ValueError: `is_causal` is given beside it.

    >>> from tensorgrad.nn.attention.bias import causal_lower_right
    >>> causal_lower_right(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    >>> q, k = torch.ones(1, 2, 4), torch.ones(1, 3, 4)
    >>> torch.nn.functional.scaled_dot_product_attention(q, k, k, causal_lower_right(2, 3)).shape
    torch.Size([1, 2, 4])
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        made: Any = torch.empty(0).as_subclass(cls)
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant is CausalVariant.LOWER_RIGHT:
            warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")

    def _materialize(self, device: Any = None) -> Tensor:
        """Returns the mask as a tensor of booleans: True where a query may attend."""
        offset = 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q
        return torch.ones(self.seq_len_q, self.seq_len_kv, dtype=torch.bool, device=device).tril(offset)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return repr(self._materialize())


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
    **options: Any,
) -> Tensor:  # fmt: skip
    if is_causal:
        raise ValueError("CausalBias should not be used with causal=True")
    corner = attn_mask.variant is CausalVariant.UPPER_LEFT or attn_mask.seq_len_q == attn_mask.seq_len_kv
    mask = None if corner else attn_mask._materialize(query.device)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, corner, **options)


def causal_upper_left(*size: int) -> CausalBias:
    """Returns the mask whose diagonal starts in the upper left corner, as that of `is_causal=True` does.

    Raises: AssertionError unless two sizes are given.
    """
    if len(size) != 2:
        raise AssertionError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """Returns the mask whose diagonal ends in the lower right corner: the last query attends to all keys.

    Raises: AssertionError unless two sizes are given.
    """
    if len(size) != 2:
        raise AssertionError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
