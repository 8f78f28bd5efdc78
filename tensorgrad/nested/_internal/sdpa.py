"""Attention within each piece of a batch: sequences of different lengths, without padding."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nested._internal.nested_tensor import NestedTensor, offsets_of
from tensorgrad.nn import functional as F

__all__ = ["jagged_scaled_dot_product_attention"]


def _check(query: Any, key: Any, value: Any, attn_mask: Any) -> None:
    """Raises: ValueError, with PyTorch's texts, for arguments that do not go together."""
    given = (query, key, value)
    if not all(isinstance(x, NestedTensor) for x in given):
        raise ValueError(
            f"Expected query, key, and value to be nested tensors, but got query.is_nested: {query.is_nested}, "
            f"key.is_nested: {key.is_nested}, and value.is_nested: {value.is_nested} instead."
        )
    for what, name in (("dtype", "dtype"), ("device", "device type")):
        found = [getattr(x, what) for x in given]
        if found.count(found[0]) < 3:
            raise ValueError(
                f"Expected query, key, and value to have the same {name}, but got query.{what}: {found[0]}, "
                f"key.{what}: {found[1]}, and value.{what}: {found[2]} instead."
            )
    if any(x.dim() < 3 for x in given):
        raise ValueError(
            "Expected query, key, and value to all be at least 3 dimensional, but got query.dim: "
            f"{query.dim()}, key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if len({x._ragged_idx for x in given}) > 1:
        raise ValueError(
            "Expected query, key, and value to all be ragged on the same dimension, but got ragged dims "
            f"{query._ragged_idx}, {key._ragged_idx}, and {value._ragged_idx}, respectively."
        )
    if attn_mask is not None:
        raise ValueError("Masks are not yet supported!")


def jagged_scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention of each piece's queries to the same piece's keys.

    Args:
        query: (B, heads, j1, D).
        key: (B, heads, j2, D).
        value: (B, heads, j2, E).
        attn_mask: None.
        (Others as in `scaled_dot_product_attention`.)

    Returns:
        (B, heads, j1, E). Its transpose (B, j1, heads, E) is contiguous.

    Raises:
        ValueError: the arguments are not nested tensors of the same kind, or there is a mask.
        RuntimeError: they differ in batch size or heads, or have three dimensions.
    """
    _check(query, key, value, attn_mask)
    options: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if query.dim() > 3 and key.dim() > 3 and value.dim() > 3 and query._ragged_idx == 1:
        # The batch is ragged, not the sequences: (B, j1, L, D).
        return query._with(F.scaled_dot_product_attention(query._values, key._values, value._values, **options))
    if query.dim() != 4 or query._ragged_idx != 2:
        raise RuntimeError("No viable backend for scaled_dot_product_attention was found.")
    if len({x._size[0] for x in (query, key, value)}) > 1 or len({x._size[1] for x in (query, key, value)}) > 1:
        raise RuntimeError("This path is currently not implemented for jagged layout NT.")
    made = [
        F.scaled_dot_product_attention(*piece, **options).transpose(0, 1)  # (length, heads, E)
        for piece in zip(query._pieces(), key._pieces(), value._pieces())
    ]
    values = torch.cat(made)
    if query._lengths is None:
        return NestedTensor(values, query._offsets, _metadata_cache=query._metadata_cache).transpose(1, 2)
    return NestedTensor(values, offsets_of(query._lengths)).transpose(1, 2)  # without gaps
