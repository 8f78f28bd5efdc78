"""What operators of PyTorch's registry the rows of ops are made of.

Only those are here whose arguments are not those of the operator of their name, or that have none, as the rows by which
gradients are computed. Each takes the row's arguments and calls the operators; it returns `NotImplemented` if the row
has to run by its twin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorgrad
from tensorgrad._ops import ops
from tensorgrad.kernels.array.shape import view_strides
from tensorgrad.library.operators_of_functions import converted, in_places, indexed, nll_loss, split, views_of
from tensorgrad.ops.nn.grid import MODES, PADDINGS
from tensorgrad.tensor import Tensor


def _index(self: Tensor, indices: Any, pattern: Any) -> Any:
    return ops.aten.index.Tensor(self, in_places(indices, pattern))


def _matmul(input: Tensor, other: Tensor) -> Any:
    """`input @ other`, as PyTorch makes it of products of two matrices, or of batches of them."""
    aten, ranks = ops.aten, (input.ndim, other.ndim)
    form = {(2, 2): aten.mm, (2, 1): aten.mv, (1, 1): aten.dot}.get(ranks)
    if form is not None:
        return form.default(input, other)
    if ranks == (1, 2):
        return aten.squeeze.dim(aten.mm.default(aten.unsqueeze.default(input, 0), other), 0)
    if 0 in ranks or 1 in ranks:
        return aten.matmul.default(input, other)
    *batch, n, k = input.shape
    *others, _, m = other.shape
    if not others:
        product = aten.mm.default(_view(input, [math.prod(batch) * n, k]), other)
        return aten._unsafe_view.default(product, [*batch, n, m])
    size = list(tensorgrad.broadcast_shapes(batch, others))
    left, right = (
        _view(aten.expand.default(x, [*size, *x.shape[-2:]]), [math.prod(size), *x.shape[-2:]]) for x in (input, other)
    )
    return aten._unsafe_view.default(aten.bmm.default(left, right), [*size, n, m])


def _linear(input: Tensor, weight: Tensor, bias: Any = None) -> Any:
    aten, (*batch, k) = ops.aten, input.shape
    if bias is None or len(batch) not in (1, 2):
        product = _matmul(input, aten.t.default(weight))
        return product if bias is None else aten.add_.Tensor(product, bias)
    if len(batch) == 1:
        return aten.addmm.default(bias, input, aten.t.default(weight))
    rows = _view(input, [math.prod(batch), k])
    product = aten.addmm.default(bias, rows, aten.t.default(weight))
    return aten.view.default(product, [*batch, weight.shape[0]])


def _turned(matrices: Tensor) -> Any:
    return ops.aten.t.default(matrices) if matrices.ndim == 2 else ops.aten.transpose.int(matrices, -2, -1)


def _view(self: Tensor, shape: Any) -> Any:
    """`self.reshape(shape)`: a view if the strides allow it, or else of a copy."""
    array, size = self._array, list(shape)
    if view_strides(array.shape, array.strides, tuple(size), array.itemsize) is not None:
        return ops.aten.view.default(self, size)
    copied = ops.aten.clone.default(self, memory_format=tensorgrad.contiguous_format)
    return ops.aten._unsafe_view.default(copied, size)


def _clone(self: Tensor, memory_format: str | None = None) -> Any:
    if memory_format is None:
        return ops.aten.clone.default(self)
    name = "contiguous_format" if memory_format == "contiguous" else memory_format + "_3d" * (self.ndim == 5)
    return ops.aten.clone.default(self, memory_format=getattr(tensorgrad, name))


def _conv(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = (), padding: Any = (), dilation: Any = (),
    groups: int = 1, output_padding: Any = (), transposed: bool = False,
) -> Any:  # fmt: skip
    windows = (stride, 1), (padding, 0), (dilation, 1)
    stride, padding, dilation = (list(given) or [default] * (weight.ndim - 2) for given, default in windows)
    extra = list(output_padding) or [0] * (weight.ndim - 2)
    return ops.aten.convolution.default(input, weight, bias, stride, padding, dilation, transposed, extra, groups)


def _conv_transpose(
    input: Tensor, weight: Tensor, bias: Any = None, stride: Any = (), padding: Any = (), output_padding: Any = (),
    dilation: Any = (), groups: int = 1,
) -> Any:  # fmt: skip
    return _conv(input, weight, bias, stride, padding, dilation, groups, output_padding, True)


def _layer_norm(input: Tensor, weight: Any = None, bias: Any = None, axes: Any = (), eps: float = 1e-5) -> Any:
    return ops.aten.native_layer_norm.default(input, list(input.shape[-len(axes) :]), weight, bias, eps)[0]


def _max_pool(input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    """The row of `max_pool2d_with_indices`. For one dimension PyTorch makes it of that."""
    dims = len(kernel_size)
    if dims == 1:
        flat = ops.aten.unsqueeze.default(input, -2)
        made = _max_pool(flat, (1, *kernel_size), (1, *stride), (0, *padding), (1, *dilation), ceil_mode)
        return tuple([ops.aten.squeeze.dim(part, -2) for part in made])
    given: list[Any] = [(list(stride), list(kernel_size)), (list(padding), [0] * dims), (list(dilation), [1] * dims)]
    given += [(ceil_mode, False)]
    while given and given[-1][0] == given[-1][1]:  # left out, as by callers
        given.pop()
    operator = getattr(ops.aten, f"max_pool{dims}d_with_indices").default
    return operator(input, list(kernel_size), *(value for value, _ in given))


def _adaptive_avg_pool(input: Tensor, output_size: Any) -> Any:
    dims = len(output_size)
    if set(output_size) == {1}:
        return ops.aten.mean.dim(input, [*range(-1, -dims - 1, -1)], True)
    if dims == 1:
        flat = ops.aten.unsqueeze.default(input, -2)
        return ops.aten.squeeze.dim(ops.aten._adaptive_avg_pool2d.default(flat, [1, *output_size]), -2)
    return getattr(ops.aten, f"_adaptive_avg_pool{dims}d").default(input, list(output_size))


def _rdiv(input: Tensor, other: Any) -> Any:
    """`other / input`."""
    return ops.aten.mul.Tensor(ops.aten.reciprocal.default(input), other)


def _rows(input: Tensor, dim: int, sizes: Any) -> Any:
    """The row of `split`: into equal parts, but for the last one, if they are."""
    first, last = sizes[0], sizes[-1]
    if all(size == first for size in sizes[:-1]) and 0 < last <= first:
        return split(input, first, dim)
    return split(input, list(sizes), dim)


def _embedding_row(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Any:
    late = (padding_idx, True) if scale_grad_by_freq else (padding_idx,) if padding_idx != -1 else ()
    return ops.aten.embedding.default(weight, indices, *late)


def _vector_norm(input: Tensor, ord: Any = 2.0, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    dim = (dim,) if isinstance(dim, int) else dim
    late: list[Any] = [True] if keepdim else []
    whole = not dim or len(dim) == input.ndim
    if late or not whole:
        late = [list(dim) if dim else None, *late]
    if late or ord != 2:
        late = [ord, *late]
    return ops.aten.linalg_vector_norm.default(input, *late, **({} if dtype is None else {"dtype": dtype}))


def _spread(input: Tensor, shape: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient of a sum over `dim`."""
    rank = len(shape)
    for d in sorted(d % rank for d in dim or ()) if not keepdim else ():
        input = ops.aten.unsqueeze.default(input, d)
    return ops.aten.expand.default(input, list(shape))


def _place(input: Tensor, index: Tensor, shape: Any, dim: int, folded: bool, repeats: bool) -> Any:
    """The gradient of `gather` and the like."""
    aten = ops.aten
    if folded:
        input, index = aten.unsqueeze.default(input, dim), aten.unsqueeze.default(index, dim)
    return aten.scatter_add.default(aten.new_zeros.default(input, list(shape)), dim, index, input)


def _pick(input: Tensor, index: Tensor, dim: int, folded: bool) -> Any:
    if not folded:
        return ops.aten.gather.default(input, dim, index)
    return ops.aten.squeeze.dim(ops.aten.gather.default(input, dim, ops.aten.unsqueeze.default(index, dim)), dim)


def _embed_view(g: Tensor, shape: Any, shown: Any, args: tuple) -> Any:
    """The gradient of a view that takes elements: those of the views that it consists of, the last one first."""
    if shown.op.name == "diagonal":
        return ops.aten.diagonal_backward.default(g, list(shape), *args)
    if shown.op.name not in ("select", "slice", "new_axes"):
        return NotImplemented
    for name, sizes, dim, *given in reversed(views_of(shape, args[0])[0]):
        if name == "unsqueeze":
            g = ops.aten.squeeze.dim(g, dim)
        elif name == "select":
            g = ops.aten.select_backward(g, sizes, dim, *given)
        else:
            start, stop, *step = given
            g = ops.aten.slice_backward(g, sizes, dim, start, stop, *(step or [1]))
    return g


def _elu(self: Tensor, *numbers: float) -> Any:
    given = list(numbers)  # alpha, scale, input_scale
    while given and given[-1] == 1:  # left out, as by callers
        given.pop()
    return ops.aten.elu.default(self, *given)


def _as_strided(input: Tensor, size: Any, stride: Any, delta: int, geometry: Any) -> Any:
    """The row of `as_strided`, which counts the offset from the tensor's own."""
    late = (input.storage_offset() + delta,) if delta else ()
    return ops.aten.as_strided.default(input, list(size), list(stride), *late)


def _index_put(input: Tensor, indices: Any, values: Tensor, pattern: Any, accumulate: bool) -> Any:
    return ops.aten.index_put.default(input, in_places(indices, pattern), values, *([True] if accumulate else []))


def _index_grad(g: Tensor, indices: Any, pattern: Any, shape: Any) -> Any:
    zeros = ops.aten.new_zeros.default(g, list(shape))
    return ops.aten.index_put.default(zeros, in_places(indices, pattern), g, True)


def _nll(input: Tensor, target: Tensor, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """The row of `nll_loss`, whose second result is the weight of each target."""
    loss = nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)
    if loss is NotImplemented:
        return NotImplemented
    weights = (target != ignore_index).to(input.dtype)
    return loss, weights if weight is None else weights * weight[target.masked_fill(target == ignore_index, 0)]


def _nll_grad(g: Tensor, target: Tensor, weights: Tensor, shape: Any, ignore_index: int) -> Any:
    dim, aten, ignored = min(1, len(shape) - 1), ops.aten, target == ignore_index
    index = target.masked_fill(ignored, 0).unsqueeze(dim)
    zeros = aten.new_zeros.default(g, list(shape))
    slopes = (g * weights).neg().masked_fill(ignored, 0)  # of a mean over no targets at all, g is nan
    return aten.scatter.src(zeros, dim, index, aten.unsqueeze.default(slopes, dim))


def _clamp_grad(grad: Tensor, input: Tensor, low: Any, high: Any) -> Any:
    inside = [] if low is None else [ops.aten.ge.Scalar(input, low)]
    inside += [] if high is None else [ops.aten.le.Scalar(input, high)]
    mask = inside[0] if len(inside) == 1 else ops.aten.logical_and.default(*inside)
    return ops.aten.where.self(mask, grad, ops.aten.zeros_like.default(grad))


def _reduced(name: str, *, lists: bool = True) -> Callable:
    """A reduction whose row has a name of its own: over all dimensions, or some."""

    def form(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        packet, more = getattr(ops.aten, name), {} if dtype is None else {"dtype": dtype}
        dim = (dim,) if isinstance(dim, int) else dim
        if not dim:
            whole = not keepdim and "default" in packet.overloads() and name != "logsumexp"
            if whole:
                return packet.default(input, **more)
            dim = tuple(range(input.ndim))
        if not lists and len(dim) > 1:
            return NotImplemented
        overload = next(o for o in ("dim", "dim_int", "default") if o in packet.overloads())
        where = list(dim) if lists else dim[0]
        return getattr(packet, overload)(input, where, *([True] if keepdim else []), **more)

    return form


def _grid_sampler(name: str) -> Callable:
    """`grid_sampler_2d` and `_3d` with PyTorch's numbers for the modes."""

    def form(input: Tensor, grid: Tensor, mode: Any, padding: Any, align_corners: bool) -> Any:
        mode = MODES.index(mode) if mode in MODES else mode
        padding = PADDINGS.index(padding) if padding in PADDINGS else padding
        return getattr(ops.aten, name).default(input, grid, mode, padding, align_corners)

    return form


def _extreme(input: Tensor, dim: int, keepdim: bool, name: str) -> Any:
    return getattr(ops.aten, name).dim(input, dim, *([True] if keepdim else []))


def _spread_of(name: str) -> Callable:
    """A standard deviation or variance, perhaps with the mean."""
    return lambda self, dim, correction, keepdim: getattr(ops.aten, name).correction(
        self, dim, correction=correction, keepdim=keepdim
    )


def _native_group_norm(input: Tensor, weight: Any = None, bias: Any = None, groups: int = 1, eps: float = 1e-5) -> Any:
    samples, channels, *sizes = input.shape
    return ops.aten.native_group_norm.default(input, weight, bias, samples, channels, math.prod(sizes), groups, eps)


def _given(**options: Any) -> dict[str, Any]:
    """Options without those that are left at None or False."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


# Rows whose parameters are not those of the operator of their name, and how the registry writes them.
def _isfinite(input: Tensor) -> Any:
    if not input.is_floating_point():
        return NotImplemented if input.is_complex() else tensorgrad.ones_like(input, dtype=tensorgrad.bool)
    aten = ops.aten
    return aten.mul.Tensor(aten.eq.Tensor(input, input), aten.ne.Scalar(aten.abs.default(input), math.inf))


def _resized(name: str) -> Callable:
    """Images in another size: by factors, or to a size."""

    def resized(input: Tensor, size: Any, align: bool, scales: Any) -> Any:
        corners = () if "nearest" in name else (align,)
        to = (list(size), *corners, None) if scales is None else (None, *corners, list(scales))
        return getattr(ops.aten, name).vec(input, *to)

    return resized


ROWS: dict[str, Callable] = {
    "adaptive_avg_pool": _adaptive_avg_pool,
    "clone_copy": _clone,
    "all": _reduced("all", lists=False),
    "any": _reduced("any", lists=False),
    "as_strided": _as_strided,
    "clamp_between": lambda input, min, max: (
        ops.aten.clamp.default(input, *(v for v in (min, max) if v is not None))
        if min is not None and not isinstance(min, Tensor) and not isinstance(max, Tensor)
        else NotImplemented
    ),
    "clamp_grad": _clamp_grad,
    "column_sum": lambda input: (
        ops.aten.sum.dim_IntList(input, [*range(input.ndim - 1)]) if input.ndim > 1 else ops.aten.alias.default(input)
    ),
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "constant_pad_nd": lambda self, pads, value: ops.aten.constant_pad_nd.default(
        self, [n for pair in reversed(pads) for n in pair], value
    ),
    "elu": _elu,
    "cross_product": lambda input, other, dim: ops.aten.linalg_cross.default(
        input, other, **({} if dim == -1 else {"dim": dim})
    ),
    "cumsum_reversed": lambda self, dim: self.flip(dim).cumsum(dim).flip(dim),
    "embed_view": _embed_view,
    "isfinite": _isfinite,
    "embedding": _embedding_row,
    "embedding_grad": lambda *given: ops.aten.embedding_dense_backward.default(*given),
    "extreme_dim": _extreme,
    "gelu": lambda self, approximate: ops.aten.gelu.default(
        self, **({} if approximate == "none" else {"approximate": approximate})
    ),
    "grid_sampler_2d": _grid_sampler("grid_sampler_2d"),
    "grid_sampler_3d": _grid_sampler("grid_sampler_3d"),
    "histogram": lambda input, edges, weight=None, density=False: ops.aten.histogram.bins_tensor(
        input, edges, **_given(weight=weight, density=density)
    )[0],
    "index": _index,
    "index_grad": _index_grad,
    "index_put": _index_put,
    "isin": lambda elements, test_elements, invert: ops.aten.isin.Tensor_Tensor(
        elements, test_elements, **_given(invert=invert)
    ),
    "kthvalue": lambda self, dim, keepdim, k: ops.aten.kthvalue.default(self, k, dim, *([True] if keepdim else [])),
    "layer_norm": _layer_norm,
    "linear": _linear,
    "log_softmax": lambda self, dim: ops.aten._log_softmax.default(self, dim, False),
    "logsumexp": _reduced("logsumexp"),
    "matmul": _matmul,
    "matmul_nt": lambda input, other: _matmul(input, _turned(other)),
    "matmul_tn": lambda input, other: _matmul(_turned(input), other),
    "max_all": lambda self: ops.aten.max.default(self),
    "max_pool": _max_pool,
    "min_all": lambda self: ops.aten.min.default(self),
    "native_group_norm": _native_group_norm,
    "new_axes": indexed,
    "nll": _nll,
    "nll_grad": _nll_grad,
    "outer": lambda input, vec2: ops.aten.mul.Tensor(ops.aten.view.default(input, [len(input), 1]), vec2),
    "pick": _pick,
    "place": _place,
    "polygamma": lambda input, n: ops.aten.polygamma.default(n, input),
    "prod": _reduced("prod", lists=False),
    "qr": lambda A, mode: ops.aten.linalg_qr.default(A, *([] if mode == "reduced" else [mode])),
    "rdiv": _rdiv,
    "rpow": lambda exponent, input: ops.aten.pow.Scalar(input, exponent),
    "reshape": _view,
    "scatter_reduce": lambda input, dim, index, src, reduce, include_self: ops.aten.scatter_reduce.two(
        input, dim, index, src, reduce, **({} if include_self else {"include_self": False})
    ),
    "searchsorted": lambda boundaries, input, sorter=None, right=False: ops.aten.searchsorted.Tensor(
        boundaries, input, **_given(sorter=sorter, right=right)
    ),
    "select": indexed,
    "slice": indexed,
    "softmax": lambda self, dim: ops.aten._softmax.default(self, dim, False),
    "sort": lambda self, dim, descending: ops.aten.sort.default(self, dim, *([True] if descending else [])),
    "spread": _spread,
    "square": lambda input: ops.aten.pow.Tensor_Scalar(input, 2),
    "split": _rows,
    "split_with_sizes": lambda self, dim, sizes: split(self, sizes, dim),
    "squeeze": lambda self, dims: ops.aten.squeeze.dims(self, list(dims)),
    "squeeze_dims": lambda self, dims: ops.aten.squeeze.dims(self, list(dims)),
    "std": _spread_of("std"),
    "std_mean": _spread_of("std_mean"),
    "threshold_grad": lambda grad, result, limit: ops.aten.threshold_backward.default(grad, result, limit),
    "topk": lambda self, k, dim, largest: ops.aten.topk.default(self, k, dim, *([] if largest else [False])),
    "to_copy": lambda self, dtype: converted(self, dtype, copy=True),
    "var": _spread_of("var"),
    "var_mean": _spread_of("var_mean"),
    "vector_norm": _vector_norm,
    **{
        name: _resized(name)
        for name in (
            "upsample_bicubic2d",
            "upsample_bilinear2d",
            "upsample_linear1d",
            "upsample_nearest1d",
            "upsample_nearest2d",
            "upsample_nearest3d",
            "upsample_trilinear3d",
        )
    },
}
