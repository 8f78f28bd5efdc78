"""The transformer: stacks of attention layers (Vaswani et al., 2017, *Attention Is All You Need*)."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn import init
from tensorgrad.nn.activation import GELU, ReLU
from tensorgrad.nn.attention import MultiheadAttention
from tensorgrad.nn.container import ModuleList
from tensorgrad.nn.dropout import Dropout
from tensorgrad.nn.functional_attention import additive_mask
from tensorgrad.nn.linear import Linear
from tensorgrad.nn.module import Module
from tensorgrad.nn.normalization import LayerNorm
from tensorgrad.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


def causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """Returns (size, size) with minus infinity above the diagonal, to mask later positions, and 0 elsewhere."""
    return torch.full((size, size), -math.inf, device=device, dtype=dtype).triu(1)


def _is_causal(mask: Tensor | None, hint: bool | None, x: Tensor, batch_first: bool) -> bool:
    """Returns whether `mask` is the causal mask: the caller's hint or, without a hint, by comparison."""
    if hint is not None or mask is None:
        return hint is True
    length = x.shape[0] if x.dim() == 2 else x.shape[1 if batch_first else 0]
    causal = causal_mask(length, mask.device, mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return F.relu if given == "relu" else F.gelu


class _Layer(Module):
    """Attention blocks and a two-layer network, each with a dropout, a residual connection and a layer norm."""

    attentions: tuple[str, ...]  # the names of the attention blocks
    activation: Callable[[Tensor], Tensor]
    norm_first: bool
    # Named as in PyTorch, for subclasses that override a block.
    linear1: Linear
    dropout: Dropout
    linear2: Linear

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        blocks = range(1, len(self.attentions) + 2)
        for name in self.attentions:
            self.add_module(name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options))
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        for i in blocks:
            self.add_module(f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, **options))
        for i in blocks:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)
        is_relu = self.activation is F.relu or isinstance(activation, ReLU)
        is_gelu = self.activation is F.gelu or isinstance(activation, GELU)
        self.activation_relu_or_gelu = 1 if is_relu else 2 if is_gelu else 0

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):  # pickled by an old PyTorch
            self.activation = F.relu

    def _residual(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a two-layer network on each position; both with a residual connection and a layer norm.

    Args:
        d_model: the number of features of the input and of the result.
        nhead: the number of attention heads; must divide `d_model`.
        dim_feedforward: the number of features between the two linear layers.
        dropout: the probability of the four dropouts.
        activation: `"relu"`, `"gelu"` or a function.
        layer_norm_eps: the `eps` of the layer norms.
        batch_first: tensors are (batch, length, features), not (length, batch, features).
        norm_first: normalize before each block, not after it (Xiong et al., 2020).
        bias: whether linear layers and norms have a bias.

    Raises:
        RuntimeError: `activation` is another string.

    >>> layer = torch.nn.TransformerEncoderLayer(d_model=16, nhead=4)
    >>> layer(torch.zeros(10, 2, 16)).shape
    torch.Size([10, 2, 16])
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Returns a tensor of the input's shape.

        A mask is True, or minus infinity, at the positions to ignore.

        Args:
            src: (length, batch, d_model). The batch is first with `batch_first`, and may be absent.
            src_mask: (length, length) or (batch·heads, length, length), what each position ignores.
            src_key_padding_mask: (batch, length), what all positions ignore.
            is_causal: a hint that `src_mask` is the causal mask.
        """
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src_mask, src.dtype, "src_mask")
        mask = additive_mask(src_mask, "src_mask", None, src.dtype)
        if is_causal and mask is None and _could_be_fused(self, src):
            is_causal = False  # PyTorch's fused kernel, used only in inference, ignores the hint
        x = self._residual(src, self.norm1, lambda x: self._sa_block(x, mask, padding, is_causal))
        return self._residual(x, self.norm2, self._ff_block)

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self.dropout1(self.self_attn(x, x, x, key_padding_mask, False, attn_mask, is_causal=is_causal)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then a two-layer network on each position.

    Each of the three has a residual connection and a layer norm.

    Args:
        d_model: the number of features of the input and of the result.
        nhead: the number of attention heads; must divide `d_model`.
        dim_feedforward: the number of features between the two linear layers.
        dropout: the probability of all dropouts.
        activation: `"relu"`, `"gelu"` or a function.
        layer_norm_eps: the `eps` of the layer norms.
        batch_first: tensors are (batch, length, features), not (length, batch, features).
        norm_first: normalize before each block, not after it (Xiong et al., 2020).
        bias: whether linear layers and norms have a bias.

    Raises:
        RuntimeError: `activation` is another string.

    >>> layer = torch.nn.TransformerDecoderLayer(d_model=16, nhead=4)
    >>> layer(torch.zeros(20, 2, 16), torch.zeros(10, 2, 16)).shape
    torch.Size([20, 2, 16])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Returns a tensor of `tgt`'s shape.

        Args:
            tgt: (length, batch, d_model). The batch is first with `batch_first`, and may be absent.
            memory: (source length, batch, d_model), the encoder's result.
            tgt_mask, tgt_key_padding_mask, tgt_is_causal: the masks of the self-attention, as in the encoder layer.
            memory_mask: (length, source length), the positions of `memory` that each position ignores.
            memory_key_padding_mask: (batch, source length), the positions of `memory` that all positions ignore.
            memory_is_causal: a hint that `memory_mask` is the causal mask.
        """

        def attend_to_memory(x: Tensor) -> Tensor:
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = self._residual(
            tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        )  # fmt: skip
        x = self._residual(x, self.norm2, attend_to_memory)
        return self._residual(x, self.norm3, self._ff_block)

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self.dropout1(self.self_attn(x, x, x, key_padding_mask, False, attn_mask, is_causal=is_causal)[0])

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        attended, _ = self.multihead_attn(x, mem, mem, key_padding_mask, False, attn_mask, is_causal=is_causal)
        return self.dropout2(attended)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """A stack of copies of one encoder layer.

    Args:
        encoder_layer: the layer; the copies start with its weights.
        num_layers: the number of copies.
        norm: applied to the result of the last layer.
        enable_nested_tensor: in evaluation, skip padding at the end of sequences: the result is 0 there.
        mask_check: check that the padding is at the end.

    >>> layer = torch.nn.TransformerEncoderLayer(d_model=16, nhead=4, batch_first=True)
    >>> encoder = torch.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(torch.zeros(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        obstacles = _obstacles(encoder_layer)
        if enable_nested_tensor and obstacles:
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {obstacles[0]}",
                stacklevel=2,
            )
        self.use_nested_tensor = enable_nested_tensor and not obstacles

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Returns a tensor of the input's shape. All arguments are passed to each layer's `forward`.

        With `is_causal=None`, `mask` is compared with the causal mask.
        """
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", mask, src.dtype, "mask")
        mask = additive_mask(mask, "mask", None, src.dtype)
        first: Any = self.layers[0]
        hidden = None if mask is not None or padding is None else self._hidden(src, padding)
        is_causal = _is_causal(mask, is_causal, src, first.self_attn.batch_first)
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=is_causal, src_key_padding_mask=padding)
        if hidden is not None:
            x = x.masked_fill(hidden.unsqueeze(-1), 0.0)
        return x if self.norm is None else self.norm(x)

    def _hidden(self, src: Tensor, padding: Tensor) -> Tensor | None:
        """Returns which positions PyTorch's nested tensors would skip, (batch, length), or None if it used none."""
        if not getattr(self, "use_nested_tensor", False) or not _could_be_fused(self.layers[0], src):
            return None
        hidden = padding != 0
        if self.mask_check and bool((hidden[:, :-1] & ~hidden[:, 1:]).any()):
            return None  # something follows the padding
        return hidden


class TransformerDecoder(Module):
    """A stack of copies of one decoder layer.

    Args:
        decoder_layer: the layer; the copies start with its weights.
        num_layers: the number of copies.
        norm: applied to the result of the last layer.

    >>> layer = torch.nn.TransformerDecoderLayer(d_model=16, nhead=4)
    >>> decoder = torch.nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(torch.zeros(20, 2, 16), torch.zeros(10, 2, 16)).shape
    torch.Size([20, 2, 16])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Returns a tensor of `tgt`'s shape. All arguments are passed to each layer's `forward`.

        With `tgt_is_causal=None`, `tgt_mask` is compared with the causal mask.
        """
        first: Any = self.layers[0]
        tgt_is_causal = _is_causal(tgt_mask, tgt_is_causal, tgt, first.self_attn.batch_first)
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """A sequence-to-sequence model: an encoder, and a decoder that attends to the encoder's result.

    Args:
        d_model: the number of features of the inputs and of the result.
        nhead: the number of attention heads; must divide `d_model`.
        num_encoder_layers, num_decoder_layers: the number of layers of each stack.
        custom_encoder, custom_decoder: modules to use instead of the standard ones.
        dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias: the layers' arguments,
            explained in `TransformerEncoderLayer`.

    >>> model = torch.nn.Transformer(16, 4, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
    >>> model(torch.zeros(2, 10, 16), torch.zeros(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()

        def stack(stack_class: type, layer_class: type, layers: int) -> Any:
            layer = layer_class(
                d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                device, dtype,
            )  # fmt: skip
            return stack_class(
                layer, layers, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)
            )

        if custom_encoder is None:
            custom_encoder = stack(TransformerEncoder, TransformerEncoderLayer, num_encoder_layers)
        if custom_decoder is None:
            custom_decoder = stack(TransformerDecoder, TransformerDecoderLayer, num_decoder_layers)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Returns the causal mask: (sz, sz), minus infinity above the diagonal and 0 elsewhere.

        >>> torch.nn.Transformer.generate_square_subsequent_mask(3)
        tensor([[0., -inf, -inf],
                [0., 0., -inf],
                [0., 0., 0.]])
        """
        return causal_mask(sz, device, dtype)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Returns a tensor of `tgt`'s shape.

        Args:
            src, tgt: (length, batch, d_model). The batch is first with `batch_first`, and may be absent.
            others: masks and hints of the encoder (`src_...`) and of the decoder, explained in their layers.

        Raises:
            RuntimeError: the batches differ, or the features are not `d_model`.
        """
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )  # fmt: skip
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )


# --- what PyTorch does differently in inference ----------------------------------------------------------------------


_NORM_FIRST = "encoder_layer.norm_first was True"


def _obstacles(layer: Any) -> list[str]:
    """Returns why PyTorch would not use nested tensors for stacks of this layer; empty if it would."""
    name = "encoder_layer"
    if not isinstance(layer, TransformerEncoderLayer):
        return [f"{name} was not TransformerEncoderLayer"]
    attention: Any = layer.self_attn
    obstacles = (
        (layer.norm_first, _NORM_FIRST),
        (
            not attention.batch_first,
            f"{name}.self_attn.batch_first was not True(use batch_first for better inference performance)",
        ),
        (not attention._qkv_same_embed_dim, f"{name}.self_attn._qkv_same_embed_dim was not True"),
        (attention.in_proj_bias is None, f"{name}.self_attn was passed bias=False"),
        (not layer.activation_relu_or_gelu, f"{name}.activation_relu_or_gelu was not True"),
        (layer.norm1.eps != layer.norm2.eps, f"{name}.norm1.eps was not equal to {name}.norm2.eps"),
        (attention.num_heads % 2 == 1, f"{name}.self_attn.num_heads is odd"),
    )
    return [text for found, text in obstacles if found]


def _could_be_fused(layer: Any, src: Tensor) -> bool:
    """Returns whether PyTorch would run its fused inference kernel for this layer."""
    if layer.training or src.dim() != 3 or any(text != _NORM_FIRST for text in _obstacles(layer)):
        return False
    return not (torch.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in layer.parameters())))
