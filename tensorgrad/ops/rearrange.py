"""Copies with rearranged elements: flips, rolls, repeats, triangles, diagonals, padding."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, number, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import as_integer, check_number, check_string, no_dimensions, warn, wrap_dim, wrap_dims
from tensorgrad.kernels.array import rearrange as kernels
from tensorgrad.ops.copy import in_format_of
from tensorgrad.ops.create import arange, finish, resolve_device, tensor
from tensorgrad.ops.join import stack
from tensorgrad.ops.shape import diagonal as _view_of_diagonal
from tensorgrad.ops.shape import diagonal_view, expand, ints, listed, place, variadic
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

# --- flip and roll ---------------------------------------------------------------------------------------------------

_flip = op("flip(input, dims: dims)", "rearrange.flip", linear="input", kind="same shape", where=(),
           strides="input", input=lambda g, dims: _flip(g, dims))  # fmt: skip
_roll = op("roll(input, shifts: any, dims: any)", "rearrange.roll", linear="input", kind="same shape", where=(),
           input=lambda g, shifts, dims: _roll(g, tuple([-s for s in shifts]), dims))  # fmt: skip


@composite("function")
def flip(input: Tensor, dims) -> Tensor:
    """Returns a copy with the order of the elements along `dims` reversed.

    >>> torch.flip(torch.arange(3), (0,))
    tensor([2, 1, 0])
    """
    return _flip(input, wrap_dims(listed(dims, "dims"), input._array.ndim))


variadic("flip", flip, "dims")


@composite()
def fliplr(input: Tensor) -> Tensor:
    """Returns a copy with the columns (dimension 1) in reverse order.

    >>> torch.fliplr(torch.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@composite()
def flipud(input: Tensor) -> Tensor:
    """Returns a copy with the rows (dimension 0) in reverse order.

    >>> torch.flipud(torch.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if input._array.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


@composite()
def rot90(input: Tensor, k: int = 1, dims=(0, 1)) -> Tensor:
    """Rotates by 90 degrees `k` times in the plane of `dims`, from the first towards the second dimension.

    >>> torch.arange(4).view(2, 2).rot90()
    tensor([[1, 3],
            [0, 2]])
    """
    dims = listed(dims, "dims")
    ndim = input._array.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = (wrap_dim(d, ndim) for d in dims)
    k %= 4
    if k == 0:
        return input.clone(memory_format="contiguous")
    if k == 2:
        return _flip(input, (a, b))
    return _flip(input, (b if k == 1 else a,)).transpose(a, b)


@composite()
def roll(input: Tensor, shifts, dims=()) -> Tensor:
    """Shifts the elements by `shifts` positions along `dims`; elements shifted past the end reappear at the front.

    Without `dims`, the tensor is rolled as if it were flat.

    Args:
        shifts: an integer, or one for each of `dims`; negative ones shift towards the front.
        dims: a dimension, or several.

    >>> torch.arange(4).roll(1)
    tensor([3, 0, 1, 2])
    """
    shifts, dims = ints(shifts), ints(() if dims is None else dims)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if dims and not input._array.ndim:
        raise no_dimensions(dims[0])
    if len(shifts) != len(dims) and (dims or len(shifts) > 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    return _roll(input, shifts, tuple([wrap_dim(d, input._array.ndim) for d in dims]))


# --- repeating -------------------------------------------------------------------------------------------------------


def _folded(g, input_shape, repeats):
    """Sums over all repetitions, by viewing each dimension as (repetitions, elements)."""
    sizes = (1,) * (len(repeats) - len(input_shape)) + tuple(input_shape)
    pairs = [n for pair in zip(repeats, sizes, strict=True) for n in pair]
    return g.reshape(pairs).sum(tuple(range(0, len(pairs), 2))).reshape(input_shape)


def _repeat_of_batch(input, repeats):
    for _ in range(len(repeats) + 1 - input.ndim):
        input = input.unsqueeze(1)
    return _repeat(input, (1, *repeats))


_repeat = op("repeat(input, repeats: any)", "rearrange.repeat", linear="input", batch=_repeat_of_batch, where=(),
             input=lambda g, input_shape, repeats: _folded(g, input_shape, repeats) if repeats else g,
             shape=lambda x, repeats: (tuple([r * n for r, n in zip(repeats, (1,) * (len(repeats) - x.ndim) + x.shape,
                                                                    strict=True)]), x.dtype))  # fmt: skip


def repeat(self: Tensor, repeats) -> Tensor:
    """Repeats the tensor `repeats[d]` times along each dimension d; extra repeats add dimensions in front.

    >>> torch.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    repeats = ints(repeats)
    if len(repeats) < self._array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(r < 0 for r in repeats):
        shape = (1,) * (len(repeats) - self._array.ndim) + self._array.shape
        sizes = [r * n for r, n in zip(repeats, shape, strict=True)]
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {sizes}")
    return _repeat(self, repeats)


variadic("repeat", repeat, "repeats")


@composite("function")
def tile(input: Tensor, dims) -> Tensor:
    """Repeats the tensor `dims[d]` times along each dimension d, aligned to the last one; missing ones count as 1.

    >>> torch.tile(torch.tensor([1, 2]), (2, 2))
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    dims = listed(dims, "dims")
    return repeat(input, ((1,) * (input._array.ndim - len(dims)) + dims,))


variadic("tile", tile, "dims")


@composite()
def repeat_interleave(input: Tensor, repeats=None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Repeats each slice along `dim`, or each element if `dim` is not given, consecutively.

    `repeats` is a number, or an integer tensor with a count for each slice. With `repeats` alone, returns the
    repeated index of each slice.

    >>> torch.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    """
    if repeats is None:
        return _repeated_indices(input, input._array.size, output_size)
    if dim is None:
        input, dim = input.reshape(-1), 0
    elif not input._array.ndim:
        raise no_dimensions(dim)
    dim = wrap_dim(dim, input._array.ndim)
    n = input._array.shape[dim]
    if not isinstance(repeats, Tensor):
        repeats = as_integer(repeats, "repeats")
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        output_size = n * repeats if output_size is None else output_size
        repeats = tensor(repeats, device=input.device)
    counts = repeats
    if repeats._array.ndim == 0 or repeats._array.size == 1:
        counts = repeats.reshape(1).expand(n)
    elif repeats._array.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    elif repeats._array.size != n:
        raise RuntimeError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{repeats._array.size} and input.size({dim}) = {n}"
        )
    return input.index_select(dim, _repeated_indices(counts, n, output_size))


def _indices_of_each(repeats: Tensor, output_size) -> Tensor:
    """The indices for each sample of a batch (vmap), of which all need to have as many."""
    every = whole(repeats)
    if every.numel() and int(every.min()) < 0:
        raise RuntimeError("repeats can not be negative")
    totals = every.sum(-1)
    count = int(totals.reshape(-1)[0]) if output_size is None else output_size
    if not bool((totals == count).all()):
        raise RuntimeError(
            "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
            "repeat_interleave with repeats that add up to different numbers for the samples."
        )
    from tensorgrad.ops.sort import searchsorted

    return searchsorted(repeats.cumsum(0), arange(count, device=repeats.device), right=True).to(repeats.dtype)


def _repeated_indices(repeats: Tensor, n: int, output_size) -> Tensor:
    array = repeats._array
    if array.dtype.name not in ("int32", "int64"):
        raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{scalar_type(repeats)}'")
    if array.ndim != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.is_meta:
        if output_size is None:
            raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
        return repeats.new_empty(output_size)
    if whole(repeats) is not repeats:
        return _indices_of_each(repeats, output_size)
    host = repeats._storage.to_host(array)
    if host.size and int(host.min()) < 0:
        raise RuntimeError("repeats can not be negative")
    found = np.repeat(np.arange(n, dtype=array.dtype), host)
    if output_size is not None and output_size != found.size:
        raise RuntimeError("allocated size does not match required size")
    return finish(found, False, repeats.device)


# --- triangles and diagonals -----------------------------------------------------------------------------------------


def _matrices(name: str):
    def prepare(x, diagonal):
        if x.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return x, diagonal

    return prepare


_tril = op("tril(input, diagonal: int = 0)", "rearrange.tril", linear="input", kind="same shape", where=(),
           prepare=_matrices("tril"),
           input=lambda g, diagonal: _tril(g, diagonal), shape=lambda x, diagonal: (x.shape, x.dtype))  # fmt: skip
_triu = op("triu(input, diagonal: int = 0)", "rearrange.triu", linear="input", kind="same shape", where=(),
           prepare=_matrices("triu"),
           input=lambda g, diagonal: _triu(g, diagonal), shape=lambda x, diagonal: (x.shape, x.dtype))  # fmt: skip


@composite(in_place=True)
def tril(input: Tensor, diagonal: int = 0, *, out=None) -> Tensor:
    """Returns a copy in which the last two dimensions are lower triangular: 0 above the given diagonal.

    Args:
        diagonal: up to which diagonal elements are kept: 0 is the main one, positive ones are above it.

    >>> torch.ones(2, 2).tril()
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _tril(input, diagonal, out=out)


@composite(in_place=True)
def triu(input: Tensor, diagonal: int = 0, *, out=None) -> Tensor:
    """Returns a copy in which the last two dimensions are upper triangular: 0 below the given diagonal.

    >>> torch.triu(torch.tensor([[1, 2], [3, 4]]))
    tensor([[1, 2],
            [0, 4]])
    """
    return _triu(input, diagonal, out=out)


def _triangle_indices(name: str) -> None:
    def function(
        row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None, requires_grad=False,
        pin_memory=False
    ) -> Tensor:  # fmt: skip
        for what, n in (("row", row), ("col", col)):
            if n < 0:
                raise RuntimeError(f"{what} must be non-negative, got{n}")
        dtype, device = dtype or dtypes.int64, device if device is None else resolve_device(device)
        if dtype.category != dtypes.INTEGER or dtype is dtypes.uint8:
            raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_type(dtype)}'")
        array = getattr(kernels, name)(np, row, col, offset).astype(dtype.numpy)
        return finish(array, requires_grad, device, pin_memory=pin_memory)

    function.__name__ = function.__qualname__ = name
    side = "below" if name[3] == "l" else "above"
    function.__doc__ = f"Row and column indices, shape (2, n), of the elements on and {side} a diagonal of a matrix."
    composite("function")(function)


_triangle_indices("tril_indices")
_triangle_indices("triu_indices")


@composite()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns matrices of zeros with the last dimension of `input` on a diagonal; their dimensions are `dim1`, `dim2`.

    >>> torch.diag_embed(torch.tensor([1, 2]), 1)
    tensor([[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]])
    """
    shape = input._array.shape
    a, b = wrap_dim(dim1, len(shape) + 1), wrap_dim(dim2, len(shape) + 1)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not shape:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    n = shape[-1]
    size = list(shape[:-1])
    for d in sorted((a, b)):
        size.insert(d, n + abs(offset))
    return place(input, tuple(size), diagonal_view, (offset, a, b))


@composite()
def diag(input: Tensor, diagonal: int = 0, *, out=None) -> Tensor:
    """Returns a matrix with a vector on its diagonal or, given a matrix, a copy of its diagonal.

    Args:
        diagonal: which one: 0 is the main one, positive ones are above it.

    >>> torch.diag(torch.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    >>> torch.diag(torch.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    ndim = input._array.ndim
    if ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    made = (
        diag_embed(input, diagonal)
        if ndim == 1
        else _view_of_diagonal(input, diagonal).clone(memory_format="contiguous")
    )
    return store_out("diag", out, made)


@composite()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Returns a matrix of zeros with all elements, in row-major order, on its diagonal.

    >>> torch.diagflat(torch.tensor([1, 2]), offset=1)
    tensor([[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]])
    """
    return diag_embed(input.reshape(-1), offset)


@composite()
def trace(input: Tensor) -> Tensor:
    """Sums the diagonal of a matrix.

    Raises:
        RuntimeError: If the input does not have two dimensions.

    >>> torch.trace(torch.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if input._array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input._array.ndim}")
    return _view_of_diagonal(input).sum()


# --- padding ---------------------------------------------------------------------------------------------------------

_NO_PAD = (0, 0)  # of the batch

_pad_constant = op("constant_pad_nd(input, pads: any, value: number)", "rearrange.pad_constant", where=(),
                   batch=lambda input, pads, value: _pad_constant(input, (_NO_PAD, *pads), value),
                   format_of=("input",),
                   input=lambda g, pads: _pad_constant(g, tuple([(-a, -b) for a, b in pads]), 0),
                   linear="input + value",
                   shape=lambda x, pads, value: (kernels.padded_shape(x.shape, pads), x.dtype))  # fmt: skip
_pad_around = op("pad_around(input, pads: any, mode: str)", "rearrange.pad_around", linear="input", where=(),
                 batch=lambda input, pads, mode: _pad_around(input, (_NO_PAD, *pads), mode),
                 format_of=("input",),
                 input=lambda g, input_shape, pads, mode: _pad_around_grad(g, pads, mode, input_shape),
                 shape=lambda x, pads, mode: (kernels.padded_shape(x.shape, pads), x.dtype))  # fmt: skip
_pad_around_grad = op("pad_around_grad(g, pads: any, mode: str, shape: any)", "rearrange.pad_around_grad", linear="g",
                      batch=lambda g, pads, mode, shape:
                      _pad_around_grad(g, (_NO_PAD, *pads), mode, (g.shape[0], *shape)), where=(),
                      format_of=("g",),
                      g=lambda g, pads, mode: _pad_around(g, pads, mode),
                      shape=lambda g, pads, mode, shape: (shape, g.dtype))  # fmt: skip


def _pads(pad, ndim: int) -> tuple:
    """Returns (before, after) for every dimension, from PyTorch's flat list, which starts with the last dimension."""
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {ndim}"
        )
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return tuple([(0, 0)] * (ndim - len(pairs)) + pairs[::-1])


@composite("function")
def constant_pad_nd(input: Tensor, pad, value: number = 0) -> Tensor:
    """Pads `input` with `value`; see `torch.nn.functional.pad`.

    >>> torch.constant_pad_nd(torch.tensor([1, 2]), (1, 2), value=9)
    tensor([9, 1, 2, 9, 9])
    """
    pads = _pads(listed(pad, "pad"), input._array.ndim)
    for n, (a, b) in zip(input._array.shape, pads, strict=True):
        if n + a + b < 0 or n + min(a, 0) + min(b, 0) < 0:
            raise RuntimeError(
                f"The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which is "
                "invalid. (narrow(): length must be non-negative.)"
            )
    check_number(value, input.dtype)
    return _pad_constant(input, pads, value)


_COMBINATIONS = (
    "Supported combinations for non-constant padding:\n  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
    "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n  - 4D or 5D input: padding size = 6 (pads last 3 "
    "dimensions)"
)


@composite("functional")
def pad(input: Tensor, pad, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads `input` at both ends of its last dimensions; negative padding crops.

    `pad` is (before, after) for the last dimension, then for the one before it, and so on. `mode` is "constant" (filled
    with `value`), "reflect" (mirrored at the outermost element), "replicate" (the outermost element repeated), or
    "circular" (wrapped around).

    Args:
        pad: an even number of integers, as said above.
        mode: how, as said above.
        value: what "constant" fills with; 0 if None.

    Raises:
        RuntimeError: If the padding does not fit the input.
        NotImplementedError: If the mode is unknown.

    >>> torch.nn.functional.pad(torch.tensor([1, 2, 3]), (1, 2), value=9)
    tensor([9, 1, 2, 3, 9, 9])
    """
    pad = listed(pad, "pad")
    check_string(mode, "mode")
    ndim, shape = input._array.ndim, input._array.shape
    pads = _pads(pad, ndim)
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if (len(pad), ndim) not in ((2, 2), (2, 3), (4, 3), (4, 4), (6, 4), (6, 5)):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\n{_COMBINATIONS}"
        )
    if mode != "circular" and any(not n for d, n in enumerate(shape) if d or ndim == len(pad) // 2 + 1):
        raise RuntimeError(
            f"Expected a tensor with possibly 0 batch size and other non-zero dimensions "
            f"for input, but got: {list(shape)}"
        )
    for d in reversed(range(ndim - len(pad) // 2, ndim)):
        _check_pad(mode, shape, d, *pads[d])
    made = _pad_around(input, pads, mode)
    return made.contiguous() if mode == "circular" else made


def _check_pad(mode: str, shape: tuple, d: int, a: int, b: int) -> None:
    n = shape[d]
    if n + a + b < (mode != "circular"):
        raise RuntimeError(
            f"input {list(shape)} is too small for padding ({a}, {b}) at dimension {d}: the result would "
            f"have size {n + a + b}"
        )
    if mode == "reflect" and (a >= n or b >= n):
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({a}, {b}) at dimension {d} of input {list(shape)}"
        )
    if mode == "circular" and (a > n or b > n):
        raise RuntimeError("Padding value causes wrapping around more than once.")
    if mode == "circular" and max(a, b) > n + min(a, 0) + min(b, 0):
        raise RuntimeError("Negative padding value is resulting in an empty dimension")


# --- pixels ----------------------------------------------------------------------------------------------------------


@composite("function", "functional")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearranges (..., C·r², H, W) to (..., C, H·r, W·r): every r² channels become an r×r block of pixels.

    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel CNN", 2016.

    >>> torch.pixel_shuffle(torch.arange(4.0).reshape(1, 4, 1, 1), 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    shape, r = input._array.shape, upscale_factor
    if len(shape) < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {len(shape)} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(lead)
    blocks = input.reshape(*lead, c // (r * r), r, r, h, w)
    moved = blocks.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2).reshape(*lead, c // (r * r), h * r, w * r)
    return in_format_of(input, _never_view(moved, input))


@composite("function", "functional")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearranges (..., C, H·r, W·r) to (..., C·r², H, W): the inverse of `pixel_shuffle`.

    >>> torch.pixel_unshuffle(torch.arange(4.0).reshape(1, 1, 2, 2), 2).shape
    torch.Size([1, 4, 1, 1])
    """
    shape, r = input._array.shape, downscale_factor
    if len(shape) < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {len(shape)} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = shape
    for name, i, size in (("height", -2, h), ("width", -1, w)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({i})={size} is "
                f"not divisible by {r}"
            )
    n = len(lead)
    blocks = input.reshape(*lead, c, h // r, r, w // r, r)
    moved = blocks.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(*lead, c * r * r, h // r, w // r)
    return in_format_of(input, _never_view(moved, input))


def _never_view(moved: Tensor, input: Tensor) -> Tensor:
    """`moved`, or a copy in rows if it shares the memory of `input`."""
    return moved.clone(memory_format="contiguous") if moved._storage is input._storage else moved


@composite("function", "functional")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleaves the channels (dimension 1) of `groups` groups.

    Source: Zhang et al., "ShuffleNet", arXiv:1707.01083.

    Raises:
        RuntimeError: If the number of channels is not divisible by `groups`.

    >>> torch.channel_shuffle(torch.arange(6).reshape(1, 6, 1), 2).flatten()
    tensor([0, 3, 1, 4, 2, 5])
    """
    shape = input._array.shape
    if len(shape) < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups."
        )
    n, c, *rest = shape
    return in_format_of(input, input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(shape))


# --- combinations ----------------------------------------------------------------------------------------------------


@composite("function")
def meshgrid(*tensors, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Returns the coordinates of the points of a grid: each vector expanded, as a view, along all other dimensions.

    With `indexing` "ij" the first vector varies along dimension 0, with "xy" along dimension 1.

    Args:
        tensors: vectors, or 0-dimensional tensors; one by one or in a list.
        indexing: "ij" or "xy"; "ij" if None.

    >>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4]), indexing="ij")[0]
    tensor([[1, 1],
            [2, 2]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in tensors:
        if x._array.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x}")
        if x._array.dtype != tensors[0]._array.dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
        if x.device != tensors[0].device:
            raise RuntimeError("meshgrid expects all tensors to have the same device")
    if indexing is None:
        warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swap = indexing == "xy" and len(tensors) > 1
    ordered = (tensors[1], tensors[0], *tensors[2:]) if swap else tensors
    size = tuple(x._array.size for x in ordered)
    grids = [expand(x.reshape((1,) * i + (-1,) + (1,) * (len(size) - 1 - i)), size) for i, x in enumerate(ordered)]
    return (grids[1], grids[0], *grids[2:]) if swap else tuple(grids)


def _check_vectors(tensors) -> None:
    for x in tensors:
        if x._array.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")


@composite("function")
def cartesian_prod(*tensors) -> Tensor:
    """Returns all tuples with one element of each vector, as rows; a single vector is returned unchanged.

    >>> torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], tuple | list):
        tensors = tuple(tensors[0])
    _check_vectors(tensors)
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors, indexing="ij")
    return stack([g.reshape(-1) for g in grids], 1)


@composite("function")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Returns all combinations of `r` elements of a vector, as rows.

    >>> torch.combinations(torch.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    _check_vectors((input,))
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if not r:
        return input.new_empty(0)
    n = input._array.size
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = math.comb(n + r - 1, r) if with_replacement else math.comb(n, r)
    chosen = np.fromiter(itertools.chain.from_iterable(choose(range(n), r)), np.int64, count * r)
    return input[finish(chosen.reshape(count, r), False, input.device)]


@composite("function")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Returns the powers 0 to N - 1 of a vector's elements as columns, the highest first unless `increasing`.

    >>> torch.vander(torch.tensor([2, 3]), N=3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    if x._array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x._array.size if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    powers = arange(n, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))
