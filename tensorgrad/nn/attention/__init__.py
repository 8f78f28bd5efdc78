"""The attention layer and, as in `torch.nn.attention`, the selection of a kernel."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import init
from tensorgrad.nn.functional_attention import additive_mask, merged_mask, multi_head_attention_forward, self_attention
from tensorgrad.nn.linear import Linear
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.nn.sdpa import SDPBackend, sdpa_kernel
from tensorgrad.tensor import Tensor

__all__ = ["MultiheadAttention", "NonDynamicallyQuantizableLinear", "SDPBackend", "sdpa_kernel"]


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` with the name that PyTorch prints for the output projection of an attention layer.

    Args:
        in_features, out_features: the sizes of the last dimension of the input and of the result.
        bias: whether a bias is added.

    >>> torch.nn.MultiheadAttention(4, 2).out_proj
    NonDynamicallyQuantizableLinear(in_features=4, out_features=4, bias=True)
    """


class MultiheadAttention(Module):
    """Multi-head attention: several attentions in parallel, each on a part of the features (Vaswani et al., 2017).

    Args:
        embed_dim: the number of features of the query and of the result.
        num_heads: the number of heads; must divide `embed_dim`.
        dropout: the probability that an attention weight is dropped in training.
        bias: whether the projections have a bias.
        add_bias_kv: append a learned key and value.
        add_zero_attn: append a key and value of zeros, so that a query can attend to nothing.
        kdim, vdim: the numbers of features of key and value; by default `embed_dim`.
        batch_first: tensors are (batch, length, features), not (length, batch, features).

    Raises:
        ValueError, AssertionError: the sizes are invalid.

    >>> x = torch.zeros(2, 5, 16)
    >>> y, weights = torch.nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x)
    >>> y.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def made(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        # The order is that of PyTorch's state_dict.
        packed = self._qkv_same_embed_dim
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        separate = zip(names, (embed_dim, self.kdim, self.vdim), strict=True)
        if packed:
            self.in_proj_weight = made(3 * embed_dim, embed_dim)
        for name, features in separate:
            self.register_parameter(name, None if packed else made(embed_dim, features))
        if not packed:
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.bias_k = made(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = made(1, 1, embed_dim) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes, for every query, the mean of the values weighted by how well their keys match the query.

        A mask is True, or minus infinity, at the positions to ignore.

        Args:
            query: (L, N, embed_dim). N is first with `batch_first`, and absent without a batch.
            key: (S, N, kdim), likewise.
            value: (S, N, vdim), likewise.
            key_padding_mask: (N, S), the keys that all queries ignore.
            need_weights: also return the attention weights; the computation is faster without.
            attn_mask: (L, S) or (N·heads, L, S), the keys that each query ignores.
            average_attn_weights: return the mean of the heads' weights instead of the weights of each head.
            is_causal: a hint that `attn_mask` is the causal mask.

        Returns:
            The result, in the query's shape, and the weights or `None`.
        """
        if query.is_nested or key.is_nested or value.is_nested:
            masked = key_padding_mask is not None or attn_mask is not None
            return self._of_nested(query, query is key is value, masked, need_weights, average_attn_weights)
        key_padding_mask = additive_mask(key_padding_mask, "key_padding_mask", attn_mask, query.dtype)
        attn_mask = additive_mask(attn_mask, "attn_mask", None, query.dtype)
        swap = self.batch_first and query.dim() == 3
        if swap and query is key is value and self._is_plain(query, key_padding_mask, attn_mask, is_causal):
            batch, length, _ = query.shape
            causal = is_causal and key_padding_mask is None and not need_weights  # it replaces the mask, and is faster
            mask = merged_mask(None if causal else attn_mask, key_padding_mask, batch, self.num_heads, length)
            return self_attention(
                query, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias,
                self.dropout if self.training else 0.0, need_weights, average_attn_weights,
                mask, causal, batch_dim=0, rows_first=self.training,
            )  # fmt: skip
        if swap:
            same_key, same_value = key is query, value is key
            query = query.transpose(0, 1)
            # Equal inputs must remain the same object, which saves matrix products.
            key = query if same_key else key.transpose(0, 1)
            value = key if same_value else value.transpose(0, 1)
        out, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
            self.bias_k, self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return (out.transpose(0, 1) if swap else out), weights

    def _of_nested(self, x: Any, itself: bool, masked: bool, need_weights: bool, average: bool) -> Any:
        """Attention within each piece of a nested tensor, each a sequence (L, embed_dim).

        The weights are those of each piece, filled up with zeros: (N, longest, longest), or (N, heads, ...).

        Raises: AssertionError in the cases in which PyTorch does not take nested tensors.
        """
        graded = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        obstacles = (
            ("query, key and value are not the same tensor", not itself),
            ("batch_first was not True", not self.batch_first), ("training is enabled", self.training),
            ("grad is enabled and query or parameters require grad", graded),
            ("a mask was given with nested tensors", masked),
        )  # fmt: skip
        why = next((why for why, applies in obstacles if applies), "")
        if why:
            raise AssertionError(
                "MultiheadAttention does not support NestedTensor outside of its fast path. The fast path was not hit "
                f"because {why}"
            )
        from tensorgrad.nested import nested_tensor

        weights = []

        def attend(piece: Tensor) -> Tensor:
            batch = piece[None]
            made, found = self.forward(batch, batch, batch, need_weights=need_weights, average_attn_weights=average)
            if found is not None:
                weights.append(found[0])
            return made[0]

        made = x._map(attend)
        return made, nested_tensor(weights).to_padded_tensor(0.0) if need_weights else None

    def _is_plain(self, x: Tensor, padding: Any, mask: Any, is_causal: bool) -> bool:
        """Returns whether `self_attention` handles the call. Invalid arguments are left to the general function."""
        if self.bias_k is not None or self.add_zero_attn or not self._qkv_same_embed_dim:
            return False
        batch, length, features = x.shape
        if padding is not None and padding.shape != (batch, length):
            return False
        if mask is None:
            return features == self.embed_dim and not is_causal
        of_all, of_each = (length, length), (batch * self.num_heads, length, length)
        return features == self.embed_dim and mask.shape in (of_all, of_each)

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Merges both masks into one and returns it with its type.

        The merged mask is (N, heads, L, L) with type 2. Without `attn_mask` it is the padding mask, (N, L), with
        type 1, or None with None. Both masks are floating-point; `query` is (N, L, embed_dim).
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2
