"""Scaled dot-product attention, as products and a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.onnx.builder import Builder, Value, bool, int64
from tensorgrad.onnx.translations.nn import turned
from tensorgrad.onnx.translations.pointwise import number
from tensorgrad.onnx.translations.table import translates


@translates("attention")
def attention(
    g: Builder, query: Value, key: Value, value: Value, attn_mask: Any, dropout_mask: Any, is_causal: Any, scale: Any
) -> Value:
    scores = g.op("MatMul", g.op("Mul", query, number(g, scale)), turned(g, key))
    hidden = number(g, float("-inf"))
    if is_causal:
        scores = g.op("Where", _below_diagonal(g, query.shape[-2], key.shape[-2]), scores, hidden, dtype=g.dtype)
    if attn_mask is not None:
        if attn_mask.dtype is bool:
            scores = g.op("Where", attn_mask, scores, hidden, dtype=g.dtype)
        else:
            scores = g.op("Add", scores, g.cast(attn_mask, g.dtype))
    weights = g.op("Softmax", scores, axis=-1)
    if attn_mask is not None:  # a query that sees no key has weights of 0
        weights = g.op("Where", g.op("IsNaN", weights, dtype=bool), number(g, 0), weights, dtype=g.dtype)
    if dropout_mask is not None:
        weights = g.op("Mul", weights, dropout_mask)
    return g.op("MatMul", weights, value)


def _below_diagonal(g: Builder, rows: Any, columns: Any) -> Value:
    if isinstance(rows, int) and isinstance(columns, int):
        return g.constant(np.tri(rows, columns, dtype=np.bool_))
    ones = g.op("Expand", g.constant(1, int64), g.ints([rows, columns]))
    return g.cast(g.op("Trilu", ones, g.constant(0, int64), upper=0), bool)
