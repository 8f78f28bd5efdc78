"""Reductions: sums, means, products, extrema, variances, norms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tensorgrad import dtypes, return_types
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dispatch.kinds import composite, number, op, reduction, view
from tensorgrad.dispatch.out import store_out
from tensorgrad.dispatch.promotion import refuse_numbers
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import (
    as_integers,
    as_number,
    check_flag,
    check_number,
    invalid_combination,
    warn,
    wrap_dim,
    wrap_dims,
    wrong_argument,
)
from tensorgrad.kernels.array import reduce as kernels
from tensorgrad.ops.limits import maximum, minimum
from tensorgrad.ops.pick import ONE_OF_DIM
from tensorgrad.ops.pointwise import conj
from tensorgrad.ops.scan import cumprod, shift
from tensorgrad.ops.shape import also_one_by_one
from tensorgrad.ops.sparse_parts import stored_elements
from tensorgrad.overriding.caller_arguments import position_given, running
from tensorgrad.overriding.function_modes import COMPOSITES
from tensorgrad.return_types import return_type
from tensorgrad.storage.sparse import SparseArray
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

# A reduction's result (or gradient) back in the input's shape, as an expanded view: the backward of `sum`.
spread = view("spread(input, shape: shape, dim: dims, keepdim: bool)", "reduce.spread", where=(),
              input=lambda g, dim, keepdim: sum(g, dim, keepdim), backward_name="ExpandBackward0",
              doc="Expands `input`, which was reduced over `dim` (None: all), to `shape`.")  # fmt: skip

# --- sums and products ---------------------------------------------------------------------------------------------

sum = reduction(
    "sum(input, dim: dims = None, keepdim: bool = False, *, dtype: dtype = None)", "reduce.sum_", linear="input",
    backward_kernel="reduce.sum_backward",
    input=lambda g, input_shape, dim, keepdim: spread(g, input_shape, dim, keepdim),
    doc="The sum over `dim`; integers are summed in int64 unless `dtype` is given.",
)  # fmt: skip
mean = reduction(
    "mean(input, dim: dims = None, keepdim: bool = False, *, dtype: dtype = None)", "reduce.mean", linear="input",
    backward_kernel="reduce.mean_backward",
    input=lambda g, input_shape, dim, keepdim: spread(g, input_shape, dim, keepdim) / kernels.count(input_shape, dim),
    doc="The mean over `dim`; integers need a floating `dtype`. Raises RuntimeError for integers without one.",
)  # fmt: skip
_nansum = reduction(
    "nansum(input, dim: dims = None, keepdim: bool = False, *, dtype: dtype = None)", "reduce.nansum", where=(),
    input=lambda g, input, dim, keepdim: spread(g, input._array.shape, dim, keepdim) * input.isnan().logical_not(),
)  # fmt: skip


@composite()
def nansum(input: Tensor, dim=None, keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """Sums over `dim`, treating NaN as 0; integers are summed in int64 unless `dtype` is given.

    Raises:
        RuntimeError: If the input is complex.

    >>> torch.nansum(torch.tensor([1.0, torch.nan, 2.0]))
    tensor(3.)
    """
    if input.dtype.is_complex:
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if not input.dtype.is_floating_point:
        return sum(input, dim, keepdim, dtype=dtype, out=out)
    if dtype is not None and dtype.is_complex:
        raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{scalar_type(dtype)}'")
    return _nansum(input, dim, keepdim, dtype=dtype, out=out)


@composite()
def nanmean(input: Tensor, dim=None, keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """Returns the mean over `dim` of the elements that are not NaN; NaN if there are none.

    >>> torch.tensor([1.0, float("nan"), 3.0]).nanmean()
    tensor(2.)
    """
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"nanmean(): expected input to have floating point or complex dtype but got {scalar_type(input)}"
        )
    if dtype is not None and dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            "nanmean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. "
            f"Got: {scalar_type(dtype)}"
        )
    known = sum(input.detach().isnan().logical_not(), dim, keepdim)
    if out is not None:
        return nansum(input, dim, keepdim, dtype=dtype, out=out).div_(known)
    return nansum(input, dim, keepdim, dtype=dtype) / known


_prod_of_others = op(
    "prod_of_others(input, dim: int)", "reduce.prod_of_others", where=(), kind="same shape",
    twin=lambda input, dim: _others(input, dim), doc="For each element, the product of all others along `dim`.",
)  # fmt: skip
_prod = reduction("prod(input, dim: dims = None, keepdim: bool = False, *, dtype: dtype = None)", "reduce.prod",
                  input=lambda g, input, dim, keepdim: _prod_slope(g, input.to(g.dtype), dim, keepdim), where=(),
                  backward_name="ProdBackward0")  # fmt: skip


def _others(x: Tensor, dim: int) -> Tensor:
    """Computes `prod_of_others` with simpler ops: exclusive cumulative products from both ends."""
    if not x.ndim:
        return x * 0 + 1
    before = shift(cumprod(x, dim), dim, 1, 1)
    return before * shift(cumprod(x.flip(dim), dim), dim, 1, 1).flip(dim)


def _prod_slope(g, input, dim, keepdim):
    shape = input._array.shape
    if not dim:  # all dimensions, or a 0-dimensional tensor
        return spread(g, shape, dim, keepdim) * conj(_prod_of_others(input.reshape(-1), 0).reshape(shape))
    return spread(g, shape, dim, keepdim) * conj(_prod_of_others(input, dim[0]))


@composite()
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """Returns the product over one dimension or all; integers are multiplied in int64 unless `dtype` is given.

    >>> torch.tensor([[1, 2], [3, 4]]).prod(1)
    tensor([ 2, 12])
    """
    if keepdim and dim is None:
        raise invalid_combination("prod", "expected (input) or (input, dim, keepdim=False)")
    return _prod(input, dim if dim is None else (dim,), keepdim, dtype=dtype, out=out)


_any = reduction("any(input, dim: dims = None, keepdim: bool = False)", "reduce.any_", where=())
_all = reduction("all(input, dim: dims = None, keepdim: bool = False)", "reduce.all_", where=())


@composite(name="any")
def any_(input: Tensor, dim=None, keepdim: bool = False, *, out=None) -> Tensor:
    """Returns whether any element along `dim` is nonzero; with `dim=()`, whether each element is.

    Args:
        dim: one dimension, several, or None for all.
        keepdim: whether they are kept, with size 1.

    >>> torch.tensor([[0, 0], [0, 3]]).any(dim=1)
    tensor([False,  True])
    """
    return _truth("any", _any, input, dim, keepdim, out)


@composite(name="all")
def all_(input: Tensor, dim=None, keepdim: bool = False, *, out=None) -> Tensor:
    """Returns whether all elements along `dim` are nonzero; with `dim=()`, whether each element is.

    Args:
        dim: one dimension, several, or None for all.
        keepdim: whether they are kept, with size 1.

    >>> torch.tensor([[True, False], [True, True]]).all(dim=1)
    tensor([False,  True])
    """
    return _truth("all", _all, input, dim, keepdim, out)


def _truth(name: str, row, input: Tensor, dim, keepdim: bool, out) -> Tensor:
    if isinstance(out, Tensor) and out.dtype not in (dtypes.bool, dtypes.uint8):
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {scalar_type(out)}")
    if isinstance(dim, tuple | list) and not dim:
        result = (input != 0).to(input.dtype) if input.dtype is dtypes.uint8 else input != 0
    else:
        result = row(input, dim, keepdim)
    return store_out(name, out, result.to(out.dtype) if isinstance(out, Tensor) else result)


_count_nonzero = reduction("count_nonzero(input, dim: dims = None)", "reduce.count_nonzero", where=())


@composite("function")
def count_nonzero(input: Tensor, dim=None) -> Tensor:
    """Counts the nonzero elements along `dim`, or all if `dim` is not given.

    >>> torch.count_nonzero(torch.tensor([[0, 1], [2, 3]]), dim=0)
    tensor([1, 2])
    """
    return _count_nonzero(input, dim)


also_one_by_one(count_nonzero)


# --- extrema -------------------------------------------------------------------------------------------------------


def _tie(g, input, out, dim, keepdim):
    """The gradient of an extremum, split evenly among the elements that attain it."""
    shape = input._array.shape
    hit = input == spread(out, shape, dim, keepdim)
    return spread(g / sum(hit, dim, keepdim), shape, dim, keepdim) * hit


def tie_of_all(g, input, out):
    if whole(out) is out:
        hit = input.isnan() if out.isnan() else input == out
    else:  # other values for each sample of a batch (vmap)
        hit = (input == out) | (input.isnan() & out.isnan())
    return (g / sum(hit)).where(hit, 0)  # not `hit *`, which would spread a NaN gradient


amax = reduction("amax(input, dim: dims = None, keepdim: bool = False)", "reduce.amax", input=_tie,
                 doc="The maximum over `dim`; ties split the gradient evenly.")  # fmt: skip
amin = reduction("amin(input, dim: dims = None, keepdim: bool = False)", "reduce.amin", input=_tie,
                 doc="The minimum over `dim`; ties split the gradient evenly.")  # fmt: skip
_scalar: dict[str, Any] = {"where": "", "shape": lambda x, *rest: ((), x.dtype)}
_max_all = op(
    "max_all(input)", "reduce.max_all", batch=lambda input, size: amax(input.reshape(size, -1), 1), input=tie_of_all,
    jacobian="weights", backward_name="MaxBackward1", **_scalar
)  # fmt: skip
_min_all = op(
    "min_all(input)", "reduce.min_all", batch=lambda input, size: amin(input.reshape(size, -1), 1), input=tie_of_all,
    jacobian="weights", backward_name="MinBackward1", **_scalar
)  # fmt: skip
_extreme_dim = reduction(
    "extreme_dim(input, dim: int, keepdim: bool, name: str)", "reduce.extreme_with_index", where=(),
    outputs=("values", "indices"), differentiable_outputs=1, backward_name="MaxBackward0",
    selects=ONE_OF_DIM,
)  # fmt: skip


def _arg_extreme_in_batch(input, dim, keepdim, name, size):
    ndim = input.ndim - 1
    if dim is None or not ndim:  # the index into all elements
        found = _arg_extreme(input.reshape(size, -1), 1, False, name)
        return found.reshape(size, *(1,) * ndim) if keepdim else found
    return _arg_extreme(input, dim + 1, keepdim, name)


_arg_extreme = reduction("arg_extreme(input, dim: dims, keepdim: bool, name: str)", "reduce.arg_extreme", where=(),
                         batch=_arg_extreme_in_batch,
                         prepare=lambda x, dim, keepdim, name: (x, wrap_dim(dim, x.ndim), keepdim, name))  # fmt: skip

Max, Min = return_type("max"), return_type("min")
AMinMax = return_type("aminmax")


@composite(name="max")
def max_(input: Tensor, dim=None, keepdim: bool = False, *, other=None, out=None):
    """Returns the largest element; with `dim`, the maxima along it and their indices; with a tensor, `maximum`.

    With `dim`, the index and the gradient go to the first of equal elements; without `dim`, ties split the gradient.

    Args:
        dim: a dimension; None for all elements. A tensor in its place is `other`.
        keepdim: whether the dimension is kept, with size 1.
        other: a tensor that broadcasts with `input`; the result is elementwise.

    Raises:
        RuntimeError, IndexError: If there are no elements to reduce.

    >>> torch.tensor([[1.0, 5.0], [7.0, 3.0]]).max(1).indices
    tensor([1, 0])
    """
    return _extremum(input, dim, keepdim, other, out, "max", maximum, _max_all, Max)


@composite(name="min")
def min_(input: Tensor, dim=None, keepdim: bool = False, *, other=None, out=None):
    """Returns the smallest element; with `dim`, the minima along it and their indices; with a tensor, `minimum`.

    Args:
        dim: a dimension; None for all elements. A tensor in its place is `other`.
        keepdim: whether the dimension is kept, with size 1.
        other: a tensor that broadcasts with `input`; the result is elementwise.

    >>> torch.min(torch.tensor([[4.0, 2.0], [1.0, 3.0]]), dim=1)
    torch.return_types.min(
    values=tensor([2., 1.]),
    indices=tensor([1, 0]))
    """
    return _extremum(input, dim, keepdim, other, out, "min", minimum, _min_all, Min)


def _names_dim(name: str) -> bool:
    """Whether the program's call of `max` or `min` says `dim=`: a tensor by position is `other`, by name a number."""
    frame = running([getattr(Tensor, name).__code__, COMPOSITES[name].__code__])
    return frame is not None and position_given(frame, "dim") == 0


def _extremum(input, dim, keepdim, other, out, name, elementwise, of_all, result_type):
    if isinstance(dim, Tensor) and other is None:
        if dim.ndim or not _names_dim(name):
            other, dim = dim, None
        elif dim.dtype.category != dtypes.INTEGER:
            raise wrong_argument(dim, "dim", "int")
    if (keepdim and dim is None) or (other is not None and dim is not None):
        raise invalid_combination(name, "expected (input), (input, dim, keepdim=False) or (input, other)")
    if other is not None:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return elementwise(input, other, out=out)
    if dim is None:
        return of_all(input, out=out)
    return result_type(_extreme_dim(input, dim, keepdim, name, out=out))


@composite()
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False, out=None) -> return_types.aminmax:
    """Returns the smallest and the largest element, of all or along `dim`.

    >>> torch.aminmax(torch.tensor([3.0, 1.0, 2.0]))
    torch.return_types.aminmax(
    min=tensor(1.),
    max=tensor(3.))
    """
    if not input.numel():
        if dim is None:
            raise RuntimeError(
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
            )
        wrapped = wrap_dim(dim, input.ndim)
        if not input._array.shape[wrapped]:
            raise IndexError(f"aminmax: Expected reduction dim {wrapped} to have non-zero size.")
    if input.dtype.is_complex:
        raise NotImplementedError(f"\"aminmax_cpu\" not implemented for '{scalar_type(input)}'")
    result = AMinMax((amin(input, dim, keepdim), amax(input, dim, keepdim)))
    return store_out("aminmax", out, result)


@composite()
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None) -> Tensor:
    """Returns the index of the largest element along `dim`, or in the flattened tensor; the first one among ties.

    Args:
        dim: a dimension; None for the flattened tensor.
        keepdim: whether the dimension is kept, with size 1.

    >>> x = torch.tensor([[1.0, 5.0], [7.0, 2.0]])
    >>> x.argmax(), x.argmax(dim=1)
    (tensor(2), tensor([1, 0]))
    """
    return _arg_extreme(input, dim, keepdim, "argmax", out=out)


@composite()
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None) -> Tensor:
    """Returns the index of the smallest element along `dim`, or in the flattened tensor; the first one among ties.

    >>> torch.tensor([[1.0, 5.0], [7.0, 2.0]]).argmin(dim=1)
    tensor([0, 1])
    """
    return _arg_extreme(input, dim, keepdim, "argmin", out=out)


# --- variance ------------------------------------------------------------------------------------------------------


def _degrees(x, dim, correction, keepdim, name: str, of: str = "std and var"):
    dims = None if dim is None else wrap_dims(dim if isinstance(dim, list | tuple) else (dim,), x.ndim)
    if dims is not None:
        dims = (dims if x.ndim else ()) if dims else None
    if x.dtype.kind in "iub":
        raise RuntimeError(f"{of} only support floating point and complex dtypes")
    if kernels.count(x.shape, dims) <= correction:
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
            "(input numel divided by output numel).",
        )
    return x, dims, correction, keepdim


def _var_slope(g, input, dim, correction, keepdim):
    """The derivative of the variance: 2 (x - mean) / (n - correction) · g."""
    shape = input._array.shape
    freedom = kernels.count(shape, dim) - correction
    away = input - mean(input, dim, True)
    if dim is None and freedom <= 0:  # PyTorch's convention for a sum divided by 0
        return g * (away == 0).to(away.dtype).masked_fill(away == 0, math.nan).masked_fill(away != 0, math.inf)
    return spread(g * (2.0 / freedom if freedom else math.inf), shape, dim, keepdim) * away


_var = reduction("var(input, dim: dims, correction: number, keepdim: bool)", "reduce.var", where=(),
                 prepare=partial(_degrees, name="var"), input=_var_slope, backward_name="VarBackward0")  # fmt: skip


def _std_slope(g, input, out, dim, correction, keepdim):
    """The derivative of the deviation: (x - mean) / ((n - correction) · std) · g, and 0 where the deviation is 0."""
    return _var_slope((g / (out * 2)).masked_fill(out == 0, 0), input, dim, correction, keepdim)


def _std_tangent(input_t, input, out, dim, correction, keepdim):
    slope = _std_slope(out.new_ones(out.shape), input, out, dim, correction, keepdim)
    return _weighted(slope, input_t, dim, keepdim).masked_fill(out.isnan(), math.nan)  # also where nothing is summed


_std = reduction("std(input, dim: dims, correction: number, keepdim: bool)", "reduce.std", where=(), jvp=_std_tangent,
                 prepare=partial(_degrees, name="std"), input=_std_slope, backward_name="StdBackward0")  # fmt: skip


def _and_mean(so_far, of_mean, input, dim, keepdim):
    """Adds the gradient through the mean to the gradient `so_far` (which may be None)."""
    if of_mean is None:
        return so_far
    shape = input._array.shape
    part = spread(of_mean / kernels.count(shape, dim), shape, dim, keepdim)
    return part if so_far is None else so_far + part


def _var_mean_slope(grads, input, dim, correction, keepdim):
    g, of_mean = grads
    of_var = None if g is None else _var_slope(g, input, dim, correction, keepdim)
    return (_and_mean(of_var, of_mean, input, dim, keepdim),)


def _std_mean_slope(grads, input, std, dim, correction, keepdim):
    g, of_mean = grads
    of_std = None if g is None else _std_slope(g, input, std, dim, correction, keepdim)
    return (_and_mean(of_std, of_mean, input, dim, keepdim),)


def _weighted(weights, input_t, dim, keepdim):
    """Σ Re(conj(weight) · tangent): of real results whose gradient is the weights."""
    total = conj(weights) * input_t
    return sum((total.real if total.is_complex() else total), dim, keepdim)


_var_mean = reduction(
    "var_mean(input, dim: dims, correction: number, keepdim: bool)", "reduce.var_mean", where=(),
    prepare=partial(_degrees, name="var_mean", of="var_mean"),
    outputs=("var", "mean"), differentiable_outputs=2, wrt=("input",), backward=_var_mean_slope,
    jvp=lambda input_t, input, var, dim, correction, keepdim: (
        _weighted(_var_slope(var.new_ones(var.shape), input, dim, correction, keepdim), input_t, dim, keepdim),
        mean(input_t, dim, keepdim)),
    backward_name="VarMeanBackward0",
)  # fmt: skip
_std_mean = reduction(
    "std_mean(input, dim: dims, correction: number, keepdim: bool)", "reduce.std_mean", where=(),
    prepare=partial(_degrees, name="std_mean", of="std_mean"),
    outputs=("std", "mean"), differentiable_outputs=2, wrt=("input",), backward=_std_mean_slope,
    jvp=lambda input_t, input, std, dim, correction, keepdim: (
        _std_tangent(input_t, input, std, dim, correction, keepdim),
        mean(input_t, dim, keepdim)),
    backward_name="StdMeanBackward0",
)  # fmt: skip


def _arguments(name: str, dim, unbiased, keepdim, correction):
    """Returns `dim` and `correction` from PyTorch's three signatures; `var(False)` means biased."""
    if dim.__class__ is bool:
        if unbiased is not None or correction is not None or keepdim:
            raise invalid_combination(name, "(input, unbiased) take no more")
        dim, unbiased = None, dim
    if unbiased is not None:
        check_flag(unbiased, "unbiased")
        if correction is not None:
            raise invalid_combination(name, "either unbiased or correction")
        correction = int(unbiased)
    if correction is None:
        return dim, 1
    correction = as_number(correction, "correction")
    check_number(correction, dtypes.float64)
    return dim, correction


@composite()
def var(input: Tensor, dim=None, unbiased=None, keepdim: bool = False, *, correction=None, out=None) -> Tensor:
    """Computes the variance Σ (x - mean)² / (n - correction) along `dim`; `unbiased=False` means `correction=0`.

    Warns if n is not larger than the correction.

    Args:
        dim: one dimension, several, or None for all.
        unbiased: False means `correction=0`, True `correction=1`.
        keepdim: whether the dimensions are kept, with size 1.
        correction: what is subtracted from the number of elements in the divisor; 1 if None.

    Raises:
        RuntimeError: If the dtype is integral.

    >>> torch.tensor([1.0, 2.0, 3.0]).var(), torch.tensor([1.0, 2.0, 3.0]).var(correction=0)
    (tensor(1.), tensor(0.6667))
    """
    dim, correction = _arguments("var", dim, unbiased, keepdim, correction)
    return _var(input, () if dim is None else dim, correction, keepdim, out=out)


@composite()
def std(input: Tensor, dim=None, unbiased=None, keepdim: bool = False, *, correction=None, out=None) -> Tensor:
    """Computes the standard deviation, the square root of `var`; its gradient is 0 where the deviation is 0.

    Args:
        dim: one dimension, several, or None for all.
        unbiased: False means `correction=0`, True `correction=1`.
        keepdim: whether the dimensions are kept, with size 1.
        correction: what is subtracted from the number of elements in the divisor; 1 if None.

    >>> torch.std(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.2910)
    """
    dim, correction = _arguments("std", dim, unbiased, keepdim, correction)
    return _std(input, () if dim is None else dim, correction, keepdim, out=out)


@composite()
def var_mean(
    input: Tensor, dim=None, unbiased=None, keepdim: bool = False, *, correction=None
) -> tuple[Tensor, Tensor]:
    """Returns the variance and the mean along `dim`.

    >>> torch.var_mean(torch.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim, correction = _arguments("var_mean", dim, unbiased, keepdim, correction)
    return _var_mean(input, () if dim is None else dim, correction, keepdim)  # type: ignore[return-value]


@composite()
def std_mean(
    input: Tensor, dim=None, unbiased=None, keepdim: bool = False, *, correction=None
) -> tuple[Tensor, Tensor]:
    """Returns the standard deviation and the mean along `dim`.

    >>> torch.std_mean(torch.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    dim, correction = _arguments("std_mean", dim, unbiased, keepdim, correction)
    return _std_mean(input, () if dim is None else dim, correction, keepdim)  # type: ignore[return-value]


# --- norms ---------------------------------------------------------------------------------------------------------


_EXACT = (0, 1, math.inf, -math.inf)  # norms that neither overflow nor underflow for one number, or count it


def _norm_arguments(x, ord, dim, keepdim, dtype):
    if x.dtype.kind in "iub":
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{scalar_type(dtypes.from_numpy_dtype(x.dtype))}"
        )
    if dtype is not None:
        if x.dtype.kind == "c" and not dtype.is_complex:
            raise RuntimeError(
                f"linalg.vector_norm: dtype should be complex for complex inputs, but got {scalar_type(dtype)}"
            )
        if x.dtype.kind != "c" and not dtype.is_floating_point:
            raise RuntimeError(
                f"linalg.vector_norm: dtype should be floating point for real inputs, but got {scalar_type(dtype)}"
            )
        x = STORAGES[x.__class__].cast(x, dtype.numpy)
    if dim is not None:
        dim = wrap_dims(tuple(dim) if isinstance(dim, list | tuple) else (dim,), x.ndim)
        dim = (dim if x.ndim else ()) if dim else None
    if ord not in _EXACT and (x.size == 1 if dim is None else math.prod(x.shape[d] for d in dim) == 1):
        ord = math.inf  # every norm of one number is its absolute value, and this one cannot overflow
    return x, ord, dim, keepdim, dtype


def _norm_slope(g, input, out, ord, dim, keepdim):
    """The derivative of a norm; where the norm is 0 and has a kink, the subgradient 0."""
    if ord == 0:
        return None
    shape = input._array.shape
    g = spread(g, shape, dim, keepdim)
    if ord == 1:
        return input.sgn() * g
    if ord == 2 and not GRAD.enabled:  # dividing first avoids overflow; where the norm is 0, so is the input
        return input / spread(out.masked_fill(out == 0, math.inf), shape, dim, keepdim) * g
    size = spread(out, shape, dim, keepdim)
    if ord == 2:  # the same, but with PyTorch's derivative where the norm is 0: nan
        return (input / size).masked_fill(size == 0, 0) * g
    if ord in (math.inf, -math.inf):
        hit = (input.abs() == size).logical_or(input.isnan().logical_and(size.isnan()))
        return input.sgn() * hit * (g / spread(sum(hit, dim, keepdim), shape, dim, keepdim))
    if ord < 1:
        return input.sgn() * (input.abs() ** (ord - 1)).masked_fill(input == 0, 0) * g * size ** (1 - ord)
    scale = (g / size ** (ord - 1)).masked_fill(size == 0, 0)
    if ord < 2:
        return input.sgn() * (input.abs() ** (ord - 1)).masked_fill(input == 0, 0) * scale
    return input * (input.abs() ** (ord - 2)) * scale


_vector_norm = reduction(
    "vector_norm(input, ord: number, dim: dims, keepdim: bool, dtype: dtype)", "reduce.vector_norm", where=(),
    prepare=_norm_arguments, input=_norm_slope, backward_name="LinalgVectorNormBackward0",
)  # fmt: skip


def vector_norm(input: Tensor, ord=2, dim=None, keepdim: bool = False, *, dtype=None, out=None) -> Tensor:
    """Computes the vector norm (Σ |x|^ord)^(1/ord) over `dim`: one dimension, several, or None for all.

    inf and -inf give the largest and smallest absolute value, 0 the number of nonzero elements.

    Raises:
        RuntimeError: If the dtype is integral, or `ord` is inf or -inf and there are no elements.
        TypeError: If `ord` is a string.

    >>> x = torch.tensor([1.0, -2.0])
    >>> torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 1), torch.linalg.vector_norm(x, torch.inf)
    (tensor(2.2361), tensor(3.), tensor(2.))
    """
    if isinstance(ord, str):
        raise TypeError("linalg_vector_norm(): argument 'ord' (position 2) must be Number, not str")
    if isinstance(input._array, SparseArray):
        input, dim = stored_elements(input, dim, keepdim, "norm_sparse"), None
    ord = as_number(ord, "ord")
    if isinstance(ord, complex):
        raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
    # `()` also means all dimensions, but unlike None it makes the op check its arguments
    return _vector_norm(input, float(ord), () if dim is None else dim, keepdim, dtype, out=out)


@composite()
def dist(input: Tensor, other: Tensor, p: number = 2) -> Tensor:
    """Computes the `p`-norm of `input - other`.

    >>> torch.dist(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    refuse_numbers(input=input, other=other)
    return vector_norm(input - other, p)


@composite()
def logsumexp(input: Tensor, dim, keepdim: bool = False, *, out=None) -> Tensor:
    """Computes log Σ exp x along `dim` without overflow; integers are computed in the default dtype.

    Args:
        dim: one dimension, or several.
        keepdim: whether they are kept, with size 1.

    >>> torch.tensor([100.0, 100.0]).logsumexp(0)
    tensor(100.6931)
    """
    if input.dtype.category < dtypes.FLOATING:
        input = input.to(dtypes.DEFAULT.floating)
    if dim is None:
        raise wrong_argument(dim, "dim", "tuple of ints")
    return _logsumexp(input, dim, keepdim, out=out)


def _logsumexp_kernel(xp, x, dim, keepdim):
    from tensorgrad.kernels.array import softmax

    dims = tuple(range(x.ndim)) if dim is None else dim
    if x.dtype.kind == "c":
        shift = xp.amax(x.real, axis=dims, keepdims=True) if x.size else x.real.sum()
        shift = xp.where(xp.isfinite(shift), shift, 0)
        total = xp.log(xp.exp(x - shift).sum(axis=dims, keepdims=True)) + shift
        return total if keepdim else xp.squeeze(total, dims)
    return softmax.logsumexp(xp, x, dims, keepdim)


_logsumexp = reduction(
    "logsumexp(input, dim: dims, keepdim: bool)", _logsumexp_kernel, where=(), backward_name="LogsumexpBackward0",
    input=lambda g, input, out, dim, keepdim: spread(g, input._array.shape, dim, keepdim)
    * conj((input - spread(out, input._array.shape, dim, keepdim)).exp()),
)  # fmt: skip


@composite("method")
def sum_to_size(self: Tensor, *size) -> Tensor:
    """Sums over the dimensions that broadcasting `size` to this tensor's shape adds or expands.

    Returns the tensor itself if it already has that size.

    Raises:
        RuntimeError: If `size` does not broadcast to this tensor's shape.

    >>> torch.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    if not size:
        raise TypeError('sum_to_size() missing 1 required positional arguments: "size"')
    listed = isinstance(size[0], tuple | list)
    if listed and len(size) > 1:
        raise TypeError(f"sum_to_size() takes 1 positional argument but {len(size)} were given")
    wanted, shape = as_integers(size[0] if listed else size, "size"), self._array.shape
    lead = len(shape) - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[lead:], strict=True)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    if not wanted:
        return self.sum()
    stretched = [lead + i for i, n in enumerate(wanted) if n != shape[lead + i]]
    if not lead and not stretched:
        return self
    return self.sum((*range(lead), *stretched), True).view(wanted)
