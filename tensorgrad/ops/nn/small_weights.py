"""Products with weights of 8 and 4 bits: integers, with a scale for each row or for each group of a row.

>>> weight, scales = torch.tensor([[100, -50]], dtype=torch.int8), torch.tensor([0.01])
>>> torch._weight_int8pack_mm(torch.tensor([[1.0, 2.0]]), weight, scales)
tensor([[0.]])
"""

from __future__ import annotations

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.ops.linalg.matmul import linear, matmul
from tensorgrad.ops.nn.attention import scaled_dot_product_attention
from tensorgrad.tensor import Tensor

BLOCK = 32  # weights that are packed together (kernels/array/quantized.py)


def _as_rows(weights, given, mapped):
    """The rows of all samples are those of one matrix: each has scales of its own."""
    size = next(x.shape[0] for name, x in given.items() if name in mapped)
    all_of = [x if x is None or name in mapped else x.expand(size, *x.shape) for name, x in given.items()]
    made = weights(*[None if x is None else x.flatten(0, 1) for x in all_of])
    return made.unflatten(0, all_of[0].shape[:2])


int8_weights = op(
    "int8_weights(weight, scales)", "quantized.int8_weights", where=(),
    shape=lambda weight, scales: (weight.shape, scales.dtype),
    batch=lambda weight, scales, mapped: _as_rows(int8_weights, {"weight": weight, "scales": scales}, mapped),
)  # fmt: skip
int4_weights = op(
    "int4_weights(packed, scales, zeros=None)", "quantized.int4_weights", where=(),
    shape=lambda w, scales, *rest: ((w.shape[0], w.shape[1] * 2), scales.dtype),
    batch=lambda packed, scales, zeros, mapped: _as_rows(
        int4_weights, {"packed": packed, "scales": scales, "zeros": zeros}, mapped
    ),
)  # fmt: skip


def _of_int8(g, weight, scales):
    return matmul(g, int8_weights(weight, scales).to(g.dtype))


def _of_int4(g, input_shape, packed, scales, zeros):
    return matmul(g, int4_weights(packed, scales, zeros).to(g.dtype)[:, : input_shape[-1]])


def _int8_of_batch(input, weight, scales, bias, mapped):
    return int8_linear(input, weight, scales, bias) if mapped == {"input"} else NotImplemented


def _int4_of_batch(input, packed, scales, zeros, bias, mapped):
    return int4_linear(input, packed, scales, zeros, bias) if mapped == {"input"} else NotImplemented


def _of_bias(g):
    return g.reshape(-1, g._array.shape[-1]).sum(0)


int8_linear = op(
    "int8_linear(input, weight, scales, bias=None)",
    "quantized.int8_linear",
    input=_of_int8,
    bias=_of_bias,
    linear="input + bias",
    shape="quantized.int8_shape",
    batch=_int8_of_batch,
    where=(),
    doc="""Computes `input @ (weight * scales)ᵀ + bias`, with int8 weights (out, in) and a scale for each row.

    Gradients flow to the input and the bias.
    """,
)
int4_linear = op(
    "int4_linear(input, packed, scales, zeros=None, bias=None)",
    "quantized.int4_linear",
    input=_of_int4,
    bias=_of_bias,
    linear="input + bias",
    shape="quantized.int4_shape",
    batch=_int4_of_batch,
    where=(),
    doc="""Computes `input @ weightsᵀ + bias`, with weights of 4 bits that `packed_int4` packed.

    A weight is (stored - 8) * scale + zero, with `scales` and `zeros` (out, groups). If the last group has more weights
    than the input has features, those in excess do not count. Gradients flow to the input and the bias.
    """,
)


def _attention_twin(query, key, key_scales, value, value_scales, attn_mask, scale):
    keys = (key * key_scales.unsqueeze(-1)).to(query.dtype)
    values = (value * value_scales.unsqueeze(-1)).to(query.dtype)
    return scaled_dot_product_attention(query, keys, values, attn_mask, scale=scale, enable_gqa=True)


int8_attention = op(
    "int8_attention(query, key, key_scales, value, value_scales, attn_mask=None, scale: float = 1.0)",
    "quantized.int8_attention",
    twin=_attention_twin,
    wrt=("query",),
    shape="quantized.int8_attention_shape",
    where=(),
    doc="""Attention on int8 keys and values, (batch, heads, positions, features), with a scale for each position.

    Several heads of queries, (batch, heads, queries, features), may share one of keys. Gradients flow to the queries.
    """,
)


def packed_int4(stored: Tensor) -> Tensor:
    """Packs integers from 0 to 15, (rows, a multiple of 32), in half as many bytes, as `int4_linear` reads them.

    >>> from tensorgrad.ops.nn.small_weights import packed_int4
    >>> packed_int4(torch.arange(32).reshape(1, 32) // 2)[0, :3]
    tensor([128, 128, 145], dtype=torch.uint8)
    """
    rows, depth = stored.shape
    halves = stored.to(dtypes.uint8).reshape(rows, depth // BLOCK, 2, BLOCK // 2)
    return (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(rows, depth // 2)


_FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def _check_input(name: str, input: Tensor) -> None:
    if input.dtype not in _FLOATS:
        raise RuntimeError(f"{name} : expect A to be either 32-bit or 16-bit float tensor.")
    if input.ndim != 2:
        raise RuntimeError(f"{name} : expect A to be 2D tensor.")
    if not input.is_contiguous():
        raise RuntimeError(f"{name} : expect A to be contiguous.")


@composite("function")
def _weight_int8pack_mm(input: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """Returns `input @ (mat2 * scales)ᵀ`, with int8 weights.

    Args:
        input: (n, k), in 32 or 16 bits.
        mat2: int8, (m, k).
        scales: (m,), in the dtype of the input.

    Raises:
        RuntimeError: For other dtypes, or sizes that do not fit.

    >>> torch._weight_int8pack_mm(torch.ones(1, 2), torch.ones(3, 2, dtype=torch.int8), torch.tensor([1.0, 2.0, 3.0]))
    tensor([[2., 4., 6.]])
    """
    name = "_weight_int8pack_mm_cpu"
    _check_input(name, input)
    if mat2.dtype is not dtypes.int8:
        raise RuntimeError(f"{name} : expect B to be int8 tensor.")
    if mat2.ndim != 2 or mat2.shape[1] != input.shape[1]:
        raise RuntimeError(f"{name} : expect B.size(1) == {input.shape[1]}")
    if tuple(scales.shape) != (mat2.shape[0],):
        raise RuntimeError(f"{name} : expect scales to be 1d tensor with size {mat2.shape[0]}")
    if scales.dtype is not input.dtype:
        kinds = [dtypes.scalar_type(dtype) for dtype in (input.dtype, scales.dtype)]
        raise RuntimeError(f"expected scalar type {kinds[0]} but found {kinds[1]}")
    return int8_linear(input, mat2, scales)


@composite("function")
def _convert_weight_to_int4pack_for_cpu(input: Tensor, innerKTiles: int) -> Tensor:
    """Packs 4-bit weights for `_weight_int4pack_mm_for_cpu`, two in a byte.

    Args:
        input: int32 from 0 to 15, (n, k); n is a multiple of 16, k is even.
        innerKTiles: 2, 4 or 8; it changes nothing on a CPU.

    The order is that of PyTorch's kernels for AVX-512: 64 rows (or what is left) are packed column by column.

    >>> torch._convert_weight_to_int4pack_for_cpu(torch.ones(16, 2, dtype=torch.int32), 2).shape
    torch.Size([16, 1])
    """
    name = "_convert_weight_to_int4pack"
    if input.dtype is not dtypes.int32:
        raise RuntimeError(f"{name}_cpu : expect weight to be kInt.")
    if input.ndim != 2:
        raise RuntimeError(f"{name}_cpu : expect weight to be 2D tensor.")
    rows, depth = input.shape
    if rows % 16:
        raise RuntimeError(f"{name}_cpu : expect N to be dividable by 16")
    if depth % 2:
        raise RuntimeError(f"{name}: expect K to be dividable by 2")
    if innerKTiles not in (2, 4, 8):
        raise RuntimeError(f"{name}: innerKTiles need to be 2, 4, or 8, got {innerKTiles}")
    stored = input.to(dtypes.uint8)
    whole = rows - rows % 64
    low_high = [(block[:32], block[32:]) for block in stored[:whole].split(64)] if whole else []
    if whole < rows:
        low_high.append((stored[whole::2], stored[whole + 1 :: 2]))
    parts = [(low | (high << 4)).t().reshape(-1) for low, high in low_high]
    return Tensor.reshape(_joined(parts, input), (rows, depth // 2))


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    from tensorgrad.ops.join import cat

    return cat(parts) if parts else like.new_empty(0, dtype=dtypes.uint8)


def _unpacked(packed: Tensor) -> Tensor:
    """Undoes `_convert_weight_to_int4pack_for_cpu`: uint8, (n, k)."""
    rows, half = packed.shape
    flat, depth, done, made = packed.reshape(-1), half * 2, 0, []
    while done < rows:
        count = 64 if rows - done >= 64 else rows - done
        block = flat[done * half : (done + count) * half].reshape(depth, count // 2).t()
        low, high = block & 15, block >> 4
        made += [low, high] if count == 64 else [Tensor.flatten(_stacked(low, high), 0, 1)]
        done += count
    return _joined(made, packed)


def _stacked(low: Tensor, high: Tensor) -> Tensor:
    from tensorgrad.ops.join import stack

    return stack([low, high], 1)


@composite("function")
def _weight_int4pack_mm_for_cpu(input: Tensor, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor) -> Tensor:
    """Returns the product of `input` and 4-bit weights, transposed; a weight is (stored - 8) * scale + zero.

    Args:
        input: (m, k), in 32 or 16 bits.
        mat2: (n, k), packed by `_convert_weight_to_int4pack_for_cpu`.
        qGroupSize: the number of adjacent weights of a row with the same scale and zero: 32, 64, 128 or 256.
        qScaleAndZeros: (k / qGroupSize, n, 2), in the dtype of the input.

    Raises:
        RuntimeError: For other dtypes, or sizes that do not fit.

    >>> packed = torch._convert_weight_to_int4pack_for_cpu(torch.full((16, 32), 10, dtype=torch.int32), 2)
    >>> scales = torch.tensor([0.5, 1.0]).expand(1, 16, 2).contiguous()
    >>> torch._weight_int4pack_mm_for_cpu(torch.ones(1, 32), packed, 32, scales)[0, :3]
    tensor([64., 64., 64.])
    """
    name = "_weight_int4pack_mm_cpu"
    _check_input(name, input)
    if mat2.dtype is not dtypes.uint8:
        raise RuntimeError(f"{name} : expect B to be uint8 tensor.")
    if mat2.ndim != 2 or mat2.shape[1] * 2 != input.shape[1]:
        raise RuntimeError(f"{name} : expect B.size(1) * 2 == {input.shape[1]}, got {tuple(mat2.shape)}")
    if qGroupSize not in (32, 64, 128, 256):
        raise RuntimeError(f"{name}: expect qGroupSize to be 32, 64, 128 or 256, got {qGroupSize}")
    rows, depth = mat2.shape[0], input.shape[1]
    if tuple(qScaleAndZeros.shape) != (depth // qGroupSize, rows, 2) or depth % qGroupSize:
        raise RuntimeError(f"{name}: expect qScaleAndZeros to be 3d tensor with sizes [:, {rows}, 2]")
    scales, zeros = (qScaleAndZeros[:, :, n].t().contiguous() for n in range(2))
    weights = int4_weights(packed_int4(_unpacked(mat2)), scales, zeros)
    return linear(input, weights.to(input.dtype))
