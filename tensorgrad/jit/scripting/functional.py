"""Functions of `torch.nn.functional`, written in TorchScript: a program that calls one gets its source.

They are never run as Python. Those without an entry here are operators of the same name.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import tensorgrad as torch
from tensorgrad.jit.scripting.losses import LOSSES
from tensorgrad.jit.scripting.pooling import POOLS
from tensorgrad.tensor import Tensor

# ruff: noqa: UP045
# mypy: ignore-errors

RENAMED = {"logsigmoid": "log_sigmoid", "unfold": "im2col", "fold": "col2im"}


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.relu_(input)
    return torch.relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.leaky_relu_(input, negative_slope)
    return torch.ops.aten.leaky_relu(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.elu_(input, alpha)
    return torch.ops.aten.elu(input, alpha)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, min_val, max_val)
    return torch.ops.aten.hardtanh(input, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, 0.0, 6.0)
    return torch.ops.aten.hardtanh(input, 0.0, 6.0)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.mish(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.hardsigmoid(input)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.ops.aten.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.ops.aten.celu(input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return torch.ops.aten.gelu(input, approximate=approximate)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.dropout_(input, p, training)
    return torch.ops.aten.dropout(input, p, training)


def rrelu(
    input: Tensor, lower: float = 0.125, upper: float = 1.0 / 3.0, training: bool = False, inplace: bool = False
) -> Tensor:
    if inplace:
        return torch.ops.aten.rrelu_(input, lower, upper, training)
    return torch.ops.aten.rrelu(input, lower, upper, training)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.threshold_(input, threshold, value)
    return torch.ops.aten.threshold(input, threshold, value)


def feature_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.feature_dropout_(input, p, training)
    return torch.ops.aten.feature_dropout(input, p, training)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.alpha_dropout_(input, p, training)
    return torch.ops.aten.alpha_dropout(input, p, training)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.feature_alpha_dropout_(input, p, training)
    return torch.ops.aten.feature_alpha_dropout(input, p, training)


def softmax_dim(dim: Optional[int], dims: int) -> int:
    if dim is not None:
        return dim
    return 0 if dims in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    place = softmax_dim(dim, input.dim())
    if dtype is None:
        return torch.ops.aten.softmax(input, place)
    return torch.ops.aten.softmax(input, place, dtype=dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    place = softmax_dim(dim, input.dim())
    if dtype is None:
        return torch.ops.aten.log_softmax(input, place)
    return torch.ops.aten.log_softmax(input, place, dtype=dtype)


def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    place = softmax_dim(dim, input.dim())
    if dtype is None:
        return torch.ops.aten.softmax(-input, place)
    return torch.ops.aten.softmax(-input, place, dtype=dtype)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    size = torch.ops.aten.clamp_min(torch.ops.aten.norm(input, p, [dim], True), eps)
    return input / torch.ops.aten.expand_as(size, input)


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.layer_norm(input, normalized_shape, weight, bias, eps)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None:
        torch.ops.aten.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    place = -1
    if padding_idx is not None:
        place = padding_idx
        if place < 0:
            place = weight.size(0) + place
    return torch.ops.aten.embedding(weight, input, place, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Optional[Tensor] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Optional[Tensor] = None,
    include_last_offset: bool = False,
    padding_idx: Optional[int] = None,
) -> Tensor:
    if max_norm is not None:
        torch.ops.aten.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    number = 0
    if mode != "sum":
        assert mode == "mean" or mode == "max", "the mode of embedding_bag is sum, mean or max"
        number = 1 if mode == "mean" else 2
    if input.dim() == 2:
        assert offsets is None, "offsets are for indices of one dimension"
        offsets = torch.arange(0, input.numel(), input.size(1), dtype=torch.int64, device=input.device)
        input = torch.reshape(input, [-1])
        if per_sample_weights is not None:
            per_sample_weights = torch.reshape(per_sample_weights, [-1])
    assert offsets is not None, "indices of one dimension need offsets"
    return torch.ops.aten.embedding_bag(
        weight, input, offsets, scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset, padding_idx
    )[0]


def batch_norm(
    input: Tensor,
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(
    input: Tensor,
    running_mean: Optional[Tensor] = None,
    running_var: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return torch.ops.aten.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True
    )


def interpolate(
    input: Tensor,
    size: Optional[list[int]] = None,
    scale_factor: Optional[list[float]] = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
    recompute_scale_factor: Optional[bool] = None,
    antialias: bool = False,
) -> Tensor:
    dims = input.dim() - 2
    if size is not None:
        assert scale_factor is None, "only one of size or scale_factor should be defined"
        if len(size) == 1:
            size = size * dims
        assert len(size) == dims, "Input and output must have the same number of spatial dimensions"
    else:
        assert scale_factor is not None, "either size or scale_factor should be defined"
        if len(scale_factor) == 1:
            scale_factor = scale_factor * dims
        assert len(scale_factor) == dims, "Input and scale_factor must have the same number of spatial dimensions"
    recompute = mode == "area"
    if recompute_scale_factor is not None:
        recompute = recompute or recompute_scale_factor
    if recompute and scale_factor is not None:
        sizes: list[int] = []
        for i in range(dims):
            sizes.append(math.floor(float(input.size(i + 2)) * scale_factor[i]))
        size, scale_factor = sizes, None
    corners = False
    if align_corners is not None:
        corners = align_corners
    if mode == "nearest":
        if dims == 1:
            return torch.ops.aten.upsample_nearest1d(input, size, scale_factor)
        if dims == 2:
            return torch.ops.aten.upsample_nearest2d(input, size, scale_factor)
        return torch.ops.aten.upsample_nearest3d(input, size, scale_factor)
    if mode == "nearest-exact":
        if dims == 1:
            return torch.ops.aten._upsample_nearest_exact1d(input, size, scale_factor)
        if dims == 2:
            return torch.ops.aten._upsample_nearest_exact2d(input, size, scale_factor)
        return torch.ops.aten._upsample_nearest_exact3d(input, size, scale_factor)
    if mode == "area":
        assert size is not None, "the size is known"
        if dims == 1:
            return torch.ops.aten.adaptive_avg_pool1d(input, size)
        if dims == 2:
            return torch.ops.aten.adaptive_avg_pool2d(input, size)
        return torch.ops.aten.adaptive_avg_pool3d(input, size)
    if mode == "linear":
        assert dims == 1, "linear mode needs 3D input"
        return torch.ops.aten.upsample_linear1d(input, size, corners, scale_factor)
    if mode == "trilinear":
        assert dims == 3, "trilinear mode needs 5D input"
        return torch.ops.aten.upsample_trilinear3d(input, size, corners, scale_factor)
    if mode == "bilinear":
        assert dims == 2, "bilinear mode needs 4D input"
        if antialias:
            return torch.ops.aten._upsample_bilinear2d_aa(input, size, corners, scale_factor)
        return torch.ops.aten.upsample_bilinear2d(input, size, corners, scale_factor)
    assert mode == "bicubic", "this mode of interpolate is not in TorchScript here"
    assert dims == 2, "bicubic mode needs 4D input"
    if antialias:
        return torch.ops.aten._upsample_bicubic2d_aa(input, size, corners, scale_factor)
    return torch.ops.aten.upsample_bicubic2d(input, size, corners, scale_factor)


def affine_grid(theta: Tensor, size: list[int], align_corners: Optional[bool] = None) -> Tensor:
    corners = False
    if align_corners is not None:
        corners = align_corners
    return torch.ops.aten.affine_grid_generator(theta, size, corners)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Optional[bool] = None,
) -> Tensor:
    number = 0
    if mode != "bilinear":
        assert mode == "nearest" or mode == "bicubic", "the mode of grid_sample is bilinear, nearest or bicubic"
        number = 1 if mode == "nearest" else 2
    padding = 0
    if padding_mode != "zeros":
        assert padding_mode == "border" or padding_mode == "reflection", "padding is zeros, border or reflection"
        padding = 1 if padding_mode == "border" else 2
    corners = False
    if align_corners is not None:
        corners = align_corners
    return torch.ops.aten.grid_sampler(input, grid, number, padding, corners)


def transposed_padding(
    sizes: list[int], input: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> list[int]:
    made: list[int] = []
    dims = len(kernel)
    assert len(sizes) == dims or len(sizes) == dims + 2, "output_size has the size of each dimension of the image"
    for i in range(dims):
        wanted = sizes[len(sizes) - dims + i]
        least = (input.size(i + 2) - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1
        if wanted < least or wanted > least + stride[i] - 1:
            raise ValueError(
                f"requested an output of {wanted}, but valid sizes are from {least} to {least + stride[i] - 1}"
            )
        made.append(wanted - least)
    return made


def additive_mask(mask: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))
    assert mask.is_floating_point(), "only bool and floating types of masks are supported"
    return mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Optional[Tensor],
    in_proj_bias: Optional[Tensor],
    bias_k: Optional[Tensor],
    bias_v: Optional[Tensor],
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Optional[Tensor],
    training: bool = True,
    key_padding_mask: Optional[Tensor] = None,
    need_weights: bool = True,
    attn_mask: Optional[Tensor] = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Optional[Tensor] = None,
    k_proj_weight: Optional[Tensor] = None,
    v_proj_weight: Optional[Tensor] = None,
    static_k: Optional[Tensor] = None,
    static_v: Optional[Tensor] = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Optional[Tensor]]:
    assert query.dim() == 2 or query.dim() == 3, "query should be unbatched 2D or batched 3D tensor"
    batched = query.dim() == 3
    padding = additive_mask(key_padding_mask, query)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if padding is not None:
            padding = padding.unsqueeze(0)
    length, batch, features = query.size(0), query.size(1), query.size(2)
    assert features == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, not {features}"
    width = features // num_heads
    assert width * num_heads == features, f"embed_dim {features} not divisible by num_heads {num_heads}"
    mask: Optional[Tensor] = None
    causal = is_causal and padding is None and not need_weights
    if attn_mask is None:
        if is_causal:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint")
    elif not causal:
        mask = additive_mask(attn_mask, query)

    # The projections.
    q_weight, k_weight, v_weight = q_proj_weight, k_proj_weight, v_proj_weight
    if not use_separate_proj_weight:
        assert in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None"
        weights = torch.ops.aten.chunk(in_proj_weight, 3)
        q_weight, k_weight, v_weight = weights[0], weights[1], weights[2]
    assert q_weight is not None, "use_separate_proj_weight is True but q_proj_weight is None"
    assert k_weight is not None, "use_separate_proj_weight is True but k_proj_weight is None"
    assert v_weight is not None, "use_separate_proj_weight is True but v_proj_weight is None"
    q_bias: Optional[Tensor] = None
    k_bias: Optional[Tensor] = None
    v_bias: Optional[Tensor] = None
    if in_proj_bias is not None:
        biases = torch.ops.aten.chunk(in_proj_bias, 3)
        q_bias, k_bias, v_bias = biases[0], biases[1], biases[2]
    q = torch.ops.aten.linear(query, q_weight, q_bias)
    k = torch.ops.aten.linear(key, k_weight, k_bias)
    v = torch.ops.aten.linear(value, v_weight, v_bias)

    # Keys and values that are appended, which no mask hides.
    extra = 0
    if bias_k is not None and bias_v is not None:
        k, v = torch.cat([k, bias_k.repeat(1, batch, 1)]), torch.cat([v, bias_v.repeat(1, batch, 1)])
        extra += 1
    q = q.reshape(length, batch * num_heads, width).transpose(0, 1)
    k = k.reshape(k.size(0), batch * num_heads, width).transpose(0, 1)
    v = v.reshape(v.size(0), batch * num_heads, width).transpose(0, 1)
    if static_k is not None:
        k = static_k
    if static_v is not None:
        v = static_v
    if add_zero_attn:
        zeros = torch.zeros([k.size(0), 1, width], dtype=k.dtype, device=k.device)
        k, v = torch.cat([k, zeros], 1), torch.cat([v, zeros], 1)
        extra += 1
    source = k.size(1)

    # One mask, (1 or batch * heads, 1 or length, source).
    if mask is not None:
        if mask.dim() == 2:
            mask = mask.unsqueeze(0)
        mask = torch.ops.aten.constant_pad_nd(mask, [0, extra])
    if padding is not None:
        hidden = torch.ops.aten.constant_pad_nd(padding, [0, extra]).view(batch, 1, 1, source)
        hidden = hidden.expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, source)
        mask = hidden if mask is None else mask + hidden

    p = dropout_p if training else 0.0
    found: Optional[Tensor] = None
    if need_weights:
        scores = torch.bmm(q * math.sqrt(1.0 / float(width)), k.transpose(-2, -1))
        if mask is not None:
            scores = scores + mask
        attention = torch.ops.aten.dropout(torch.ops.aten.softmax(scores, -1), p, training)
        mixed = torch.bmm(attention, v)
        attention = attention.view(batch, num_heads, length, source)
        found = attention.mean(1) if average_attn_weights else attention
    else:
        if mask is not None:
            if mask.size(0) == 1:
                mask = mask.unsqueeze(0)
            else:
                mask = mask.view(batch, num_heads, mask.size(1), source)
        q, k = q.view(batch, num_heads, length, width), k.view(batch, num_heads, source, width)
        v = v.view(batch, num_heads, source, width)
        mixed = torch.ops.aten.scaled_dot_product_attention(q, k, v, mask, p, causal).flatten(0, 1)
    out = torch.ops.aten.linear(
        mixed.transpose(0, 1).reshape(length * batch, features), out_proj_weight, out_proj_bias
    )  # fmt: skip
    out = out.view(length, batch, -1)
    if not batched:
        out = out.squeeze(1)
        if found is not None:
            found = found.squeeze(0)
    return out, found


class no_grad:
    def __init__(self):
        self.before = False

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        torch.set_grad_enabled(self.before)


class enable_grad:
    def __init__(self):
        self.before = False

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        torch.set_grad_enabled(self.before)


def softsign(input: Tensor) -> Tensor:
    return input / (torch.abs(input) + 1)


def tanhshrink(input: Tensor) -> Tensor:
    return input - torch.tanh(input)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:  # fmt: skip
    assert input.dim() >= 3, "Expected 3D or higher dimensionality input"
    shape = input.size()
    squares = torch.reshape(input * input, [shape[0], 1, shape[1], -1])
    squares = torch.ops.aten.constant_pad_nd(squares, [0, 0, size // 2, (size - 1) // 2])
    mean = torch.reshape(torch.ops.aten.avg_pool2d(squares, [size, 1], [1, 1]), shape)
    return input / torch.pow(mean * alpha + k, beta)


FUNCTIONS = {
    f.__name__: f
    for f in (
        embedding_bag, relu, leaky_relu, elu, hardtanh, relu6, silu, mish, hardswish, hardsigmoid, selu, celu, gelu,
        dropout, rrelu, threshold, alpha_dropout, feature_alpha_dropout, softmax,
        log_softmax, softmin, normalize, layer_norm, embedding, batch_norm, instance_norm, interpolate, affine_grid,
        grid_sample, multi_head_attention_forward, softsign, tanhshrink, local_response_norm, *POOLS, *LOSSES,
    )
} | dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), feature_dropout)  # fmt: skip
