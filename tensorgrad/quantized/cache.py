"""The keys and values of a decoder's tokens, in 8 bits.

A token looks at the keys and values of all tokens before it, in every layer. In int8, with a scale for each token and
head, they take little more than a quarter of the memory that they take in float32, and attention reads no more than
that (kernels/compiled/attention_int8.py).
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.ops.nn.small_weights import int8_attention
from tensorgrad.tensor import Tensor

_LEAST = 1e-12  # a scale, for a token whose numbers are all zero
_FEW = 16  # queries of a head, up to which keys and values are read as they are stored


class Int8Cache:
    """What one layer of a decoder keeps of the tokens so far.

    `append` stores keys and values, (batch, heads, tokens, features), `attend` is attention on all that is stored. More
    heads of queries may share those of keys and values, as in grouped-query attention. Gradients flow to the queries
    only.

    Args:
        capacity: for how many tokens there is memory at first. It doubles when it is full.

    >>> from tensorgrad.quantized import Int8Cache
    >>> _ = torch.manual_seed(0)
    >>> query, key, value = torch.randn(3, 1, 2, 10, 64)
    >>> cache = Int8Cache()
    >>> cache.append(key, value)
    >>> found = cache.attend(query)
    >>> expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    >>> (found - expected).abs().max() < 0.02, len(cache), cache.nbytes
    (tensor(True), 10, 2720)
    """

    def __init__(self, capacity: int = 256) -> None:
        if capacity < 1:
            raise ValueError(f"Int8Cache: expected a capacity of at least 1, got {capacity}")
        self._capacity, self._length = capacity, 0
        self._memory: tuple[Tensor, ...] = ()  # keys, their scales, values, their scales, with room for more

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        """The bytes of what is stored."""
        return sum(t.nbytes for t in self._stored())

    def append(self, key: Tensor, value: Tensor) -> None:
        """Stores the keys and values of the next tokens.

        Raises: ValueError for shapes that do not fit each other, or what is stored.
        """
        if key.ndim != 4 or value.ndim != 4 or key.shape[:3] != value.shape[:3]:
            raise ValueError(
                "Int8Cache.append: expected key and value of shape (batch, heads, tokens, features), but got "
                f"{tuple(key.shape)} and {tuple(value.shape)}"
            )
        given = [part for numbers in (key, value) for part in _int8(numbers.detach())]
        for held, new in zip(self._memory, given, strict=False):
            if held.shape[:2] != new.shape[:2] or held.shape[3:] != new.shape[3:]:
                raise ValueError(
                    f"Int8Cache.append: got key and value of shapes {tuple(key.shape)} and {tuple(value.shape)}, but "
                    f"stored are {tuple(self._memory[0].shape)} and {tuple(self._memory[2].shape)}"
                )
        last = self._length + key.shape[2]
        if last > self._capacity or not self._memory:
            while self._capacity < last:
                self._capacity *= 2
            made = [t.new_zeros((*t.shape[:2], self._capacity, *t.shape[3:])) for t in given]
            for t, held in zip(made, self._stored(), strict=False):
                t[:, :, : self._length] = held
            self._memory = tuple(made)
        for held, new in zip(self._memory, given, strict=True):
            held[:, :, self._length : last] = new
        self._length = last

    def attend(self, query: Tensor, attn_mask: Tensor | None = None, scale: float | None = None) -> Tensor:
        """Attention of the last tokens, whose keys and values are stored, on themselves and all before them.

        Args:
            query: (batch, heads, tokens, features).
            attn_mask: as that of `scaled_dot_product_attention`. None: a token sees itself and those before it.
            scale: of the scores; None: 1 / √features.

        Raises:
            ValueError: if fewer tokens are stored than there are queries.
        """
        tokens = query.shape[2] if query.ndim == 4 else -1
        if not 0 <= tokens <= self._length or not self._memory:
            raise ValueError(
                "Int8Cache.attend: expected a query of shape (batch, heads, tokens, features) with at most the "
                f"{self._length} tokens that are stored, but got {tuple(query.shape)}"
            )
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        if attn_mask is None and tokens > 1:
            attn_mask = torch.ones(tokens, self._length, dtype=torch.bool, device=query.device)
            attn_mask = attn_mask.tril(self._length - tokens)
        if tokens <= _FEW:
            return int8_attention(query, *self._stored(), attn_mask, scale)
        key, value = (t.to(query.dtype) for t in self.dequantize())
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, scale=scale, enable_gqa=True
        )

    def dequantize(self) -> tuple[Tensor, Tensor]:
        """Returns the keys and values that attention computes with, in float32."""
        key, key_scales, value, value_scales = self._stored()
        return key * key_scales.unsqueeze(-1), value * value_scales.unsqueeze(-1)

    def crop(self, length: int) -> None:
        """Forgets all tokens but the first ones, such as those that a check of drafted tokens refused."""
        if not 0 <= length <= self._length:
            raise ValueError(f"Int8Cache.crop: expected a length from 0 to {self._length}, got {length}")
        self._length = length

    def reorder(self, beams: Tensor) -> None:
        """Takes the sequences of these numbers from the batch, as a search with several beams does."""
        self._memory = tuple(t.index_select(0, beams) for t in self._memory)

    def _stored(self) -> Any:
        return [t[:, :, : self._length] for t in self._memory]


def _int8(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers as int8, from -127 to 127, and the scale of each row."""
    numbers = numbers.float()
    scales = (numbers.abs().amax(-1, keepdim=True) / 127).clamp(min=_LEAST)
    return (numbers / scales).round().to(torch.int8), scales.squeeze(-1)
