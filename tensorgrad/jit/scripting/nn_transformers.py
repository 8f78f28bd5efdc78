"""The `forward` of attention and transformers, written in TorchScript: see `nn_modules.py`.

Blocks are methods of the layers' classes (`_sa_block`), which subclasses may override.
"""

from __future__ import annotations

from typing import Optional

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.jit.scripting.functional import additive_mask
from tensorgrad.nn import functional as F
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors


def attention(
    self,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Optional[Tensor] = None,
    need_weights: bool = True,
    attn_mask: Optional[Tensor] = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Optional[Tensor]]:
    swap = self.batch_first and query.dim() == 3
    if swap:
        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    out, weights = F.multi_head_attention_forward(
        query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
        self.bias_k, self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
        training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
        use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
        k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
        average_attn_weights=average_attn_weights, is_causal=is_causal,
    )  # fmt: skip
    if swap:
        out = out.transpose(0, 1)
    return out, weights


def encoder_layer(
    self,
    src: Tensor,
    src_mask: Optional[Tensor] = None,
    src_key_padding_mask: Optional[Tensor] = None,
    is_causal: bool = False,
) -> Tensor:
    padding, mask = additive_mask(src_key_padding_mask, src), additive_mask(src_mask, src)
    if self.norm_first:
        src = src + self._sa_block(self.norm1(src), mask, padding, is_causal)
        return src + self._ff_block(self.norm2(src))
    src = self.norm1(src + self._sa_block(src, mask, padding, is_causal))
    return self.norm2(src + self._ff_block(src))


def decoder_layer(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Optional[Tensor] = None,
    memory_mask: Optional[Tensor] = None,
    tgt_key_padding_mask: Optional[Tensor] = None,
    memory_key_padding_mask: Optional[Tensor] = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    if self.norm_first:
        tgt = tgt + self._sa_block(self.norm1(tgt), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        tgt = tgt + self._mha_block(
            self.norm2(tgt), memory, memory_mask, memory_key_padding_mask, memory_is_causal
        )  # fmt: skip
        return tgt + self._ff_block(self.norm3(tgt))
    tgt = self.norm1(tgt + self._sa_block(tgt, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
    tgt = self.norm2(tgt + self._mha_block(tgt, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
    return self.norm3(tgt + self._ff_block(tgt))


def is_causal_mask(mask: Optional[Tensor], hint: Optional[bool], length: int) -> bool:
    if hint is not None:
        return hint
    if mask is None or mask.size() != [length, length]:
        return False
    causal = torch.full([length, length], float("-inf"), dtype=mask.dtype, device=mask.device).triu(1)
    return bool((mask == causal).all())


def encoder(
    self,
    src: Tensor,
    mask: Optional[Tensor] = None,
    src_key_padding_mask: Optional[Tensor] = None,
    is_causal: Optional[bool] = None,
) -> Tensor:
    padding, mask = additive_mask(src_key_padding_mask, src), additive_mask(mask, src)
    hidden: Optional[Tensor] = None  # positions that nested tensors skip
    if self.use_nested_tensor and not self.training and mask is None and padding is not None and src.dim() == 3:
        graded = torch.is_grad_enabled() and (src.requires_grad or self.layers[0].linear1.weight.requires_grad)
        found = padding != 0
        if not graded and not (self.mask_check and bool((found[:, :-1] & ~found[:, 1:]).any())):
            hidden = found
    length = src.size(0)
    if src.dim() == 3 and self.layers[0].self_attn.batch_first:
        length = src.size(1)
    causal = is_causal_mask(mask, is_causal, length)
    for layer in self.layers:
        src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
    if hidden is not None:
        src = src.masked_fill(hidden.unsqueeze(-1), 0.0)
    if self.norm is not None:
        src = self.norm(src)
    return src


def decoder(
    self,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Optional[Tensor] = None,
    memory_mask: Optional[Tensor] = None,
    tgt_key_padding_mask: Optional[Tensor] = None,
    memory_key_padding_mask: Optional[Tensor] = None,
    tgt_is_causal: Optional[bool] = None,
    memory_is_causal: bool = False,
) -> Tensor:
    length = tgt.size(0)
    if tgt.dim() == 3 and self.layers[0].self_attn.batch_first:
        length = tgt.size(1)
    causal = is_causal_mask(tgt_mask, tgt_is_causal, length)
    for layer in self.layers:
        tgt = layer(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=causal,
            memory_is_causal=memory_is_causal,
        )
    if self.norm is not None:
        tgt = self.norm(tgt)
    return tgt


FORWARDS = {
    nn.MultiheadAttention: attention, nn.TransformerEncoderLayer: encoder_layer,
    nn.TransformerDecoderLayer: decoder_layer, nn.TransformerEncoder: encoder, nn.TransformerDecoder: decoder,
}  # fmt: skip
