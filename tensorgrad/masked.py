"""`torch.masked`: reductions and normalizations that leave out masked elements.

In every function `mask` is True for the elements to include, and broadcasts to the input; None includes all. `dim` is
one dimension, several, or None for all of them. `dtype` is that of the result: integers are cast to it first.

A masked-out element is replaced by the identity of the reduction: 0 in a sum, 1 in a product, minus infinity (or the
smallest integer) in a maximum. That is also the result if all elements are masked out; means, medians and variances are
nan then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensorgrad import dtypes, layouts
from tensorgrad.dispatch.kinds import FUNCTIONAL, FUNCTIONS
from tensorgrad.dtypes import as_dtype
from tensorgrad.dtypes import dtype as DType
from tensorgrad.errors import wrap_dim
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.ops.sparse.reduce import masked_reduction
from tensorgrad.storage.sparse import COOArray, CSRArray, SparseArray
from tensorgrad.tensor import Tensor

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor",
    "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax",
    "softmin", "std", "sum", "var",
]  # fmt: skip

Dims = int | tuple[int, ...] | None

_REDUCTIONS = (
    "sum", "prod", "amax", "amin", "argmax", "argmin", "mean", "median", "norm", "var", "std", "logsumexp"
)  # fmt: skip
_LIKE_THE_INPUT = ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod")
_MAXIMA = ("amax", "argmax", "logsumexp", "logaddexp")  # minus infinity is their identity


def _input_mask(input: Tensor, *args, mask: Tensor | None = None, **options) -> Tensor:
    """The mask of a call of one of these functions, as booleans in the input's shape and layout.

    What else the function is called with is ignored.

    Raises:
        ValueError: If there is no mask, or for layouts other than strided, COO and CSR.
        IndexError, RuntimeError: If the mask does not broadcast to the input.

    >>> torch.masked._input_mask(torch.zeros(2, 2), mask=torch.tensor([1, 0]))
    tensor([[ True, False],
            [ True, False]])
    """
    if input.layout not in (layouts.strided, layouts.sparse_coo, layouts.sparse_csr):
        raise ValueError(f"_input_mask expects strided or sparse COO or sparse CSR tensor but got {input.layout!s}")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    _check_rank(input, mask)
    if input.layout == layouts.strided or mask.shape != input.shape:
        mask = (mask.to_dense() if _is_sparse(mask) else mask).expand(input.shape)
    if mask.layout != input.layout:
        if input.layout == layouts.sparse_csr:
            mask = mask.to_sparse_csr()
        else:
            mask = mask.to_sparse(input.sparse_dim()) if mask.layout == layouts.strided else mask.to_sparse()
    return (mask.coalesce() if mask.layout == layouts.sparse_coo else mask).bool()


def _check_rank(input: Tensor, mask: Tensor) -> None:
    """Raises: IndexError if a mask has more dimensions than its input."""
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")


def _output_mask(op: Callable, input: Tensor, *args, **options) -> Tensor:
    """Which elements of the result of `op(input, *args, **options)` have an unmasked element behind them.

    >>> torch.masked._output_mask(torch.masked.sum, torch.zeros(2, 2), 0, mask=torch.tensor([True, False]))
    tensor([ True, False])
    """
    name = getattr(op, "__name__", None)
    if not callable(op) or name is None:
        raise ValueError(f"_output_mask expected masked operation (got {type(op).__name__} object)")
    whole = _input_mask(input, **options)
    if name in _LIKE_THE_INPUT:
        return whole
    if name not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got callable {op.__module__}.{name})")
    if name == "norm":
        args = args[1:]  # its order comes before the dimensions
    for d in reversed(_canonical_dim(args[0] if args else options.get("dim"), input.ndim)):
        whole = whole.any(d, keepdim=bool(options.get("keepdim", False)))
    return whole


def _filled(input: Tensor, mask: Tensor | None, value) -> Tensor:
    """The input with `value` where the mask is False."""
    if mask is None:
        return input
    return FUNCTIONS["where"](_input_mask(input, mask=mask), input, input.new_tensor(value))


def _never_winning(name: str, input: Tensor, mask: Tensor | None) -> Tensor:
    """The input with the identity of the maximum (in `amin` and `argmin`, the minimum) where the mask is False."""
    if mask is None:
        return input
    least = name in _MAXIMA
    if input.dtype.is_floating_point or (input.is_complex() and name.startswith("log")):
        return _filled(input, mask, -math.inf if least else math.inf)
    if input.dtype == dtypes.bool or input.is_complex():
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    info = dtypes.iinfo(input.dtype)
    return _filled(input, mask, info.min if least else info.max)


def _canonical_dim(dim: Dims, ndim: int) -> tuple[int, ...]:
    """Non-negative dimensions in ascending order. Raises: IndexError, or RuntimeError if one appears twice."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    found: list[int] = []
    n = max(ndim, 1)
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        wrapped = wrap_dim(d, ndim)
        if wrapped in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        found.append(wrapped)
    return tuple(sorted(found))


def _dtype(input: Tensor, dtype: DType | None, wide: bool = False) -> DType:
    """The dtype of the result: the given one or the input's (`wide`: in which integers are summed). Raises: TypeError
    if what is given is none."""
    if dtype is not None:
        return as_dtype(dtype, "to")
    return _wide(input.dtype) if wide else input.dtype


def _wide(dtype: DType) -> DType:
    """The dtype in which integers are summed and multiplied."""
    return dtypes.int64 if dtype.category < dtypes.FLOATING else dtype


def _is_sparse(input: Tensor) -> bool:
    return isinstance(input._array, SparseArray)


def _of_sparse(name: str, input: Tensor, dim: Dims, keepdim: bool, dtype: DType, mask: Tensor | None) -> Tensor:
    """A reduction of a sparse tensor, COO or CSR: sparse, of the elements that the mask includes, or that are stored.

    Raises: ValueError for other layouts, and without a mask if elements that are not stored would matter.
    """
    kind, layout = input._array.__class__, input.layout
    if kind not in (COOArray, CSRArray) or (name == "mean" and kind is COOArray):
        wanted = "strided or sparse_csr" if name == "mean" else "strided, sparse_coo or sparse_csr"
        raise ValueError(f"masked {name} expects {wanted} tensor (got {layout} tensor)")
    if mask is None and name != "sum":
        raise ValueError(f"masked {name} expects explicit mask for {str(layout).removeprefix('torch.')} tensor input")
    if mask is not None:
        _check_rank(input, mask)
    return masked_reduction(input, mask, name, _canonical_dim(dim, input.ndim), bool(keepdim), dtype)


# --- reductions ----------------------------------------------------------------------------------------------------


def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the sum of the unmasked elements.

    >>> torch.masked.sum(torch.tensor([1.0, 2.0, 4.0]), mask=torch.tensor([True, False, True]))
    tensor(5.)
    """
    dtype = _dtype(input, dtype, wide=True)
    if _is_sparse(input):
        return _of_sparse("sum", input, dim, keepdim, dtype, mask)
    return _filled(input, mask, 0).sum(_canonical_dim(dim, input.ndim) or None, bool(keepdim), dtype=dtype)


def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the product of the unmasked elements.

    >>> torch.masked.prod(torch.tensor([3, 2, 4]), mask=torch.tensor([True, False, True]))
    tensor(12)
    """
    if _is_sparse(input):
        return _of_sparse("prod", input, dim, keepdim, _dtype(input, dtype, wide=True), mask)
    result = _filled(input, mask, 1).to(_dtype(input, dtype, wide=True))
    for d in reversed(_canonical_dim(dim, input.ndim)):
        result = result.prod(d, bool(keepdim))
    return result


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Returns the cumulative sum of the unmasked elements along `dim`.

    >>> torch.masked.cumsum(torch.tensor([1.0, 2.0, 4.0]), 0, mask=torch.tensor([True, False, True]))
    tensor([1., 1., 5.])
    """
    d = _canonical_dim(dim, input.ndim)[0]
    return _filled(input, mask, 0).cumsum(d, dtype=_dtype(input, dtype))


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Returns the cumulative product of the unmasked elements along `dim`.

    >>> torch.masked.cumprod(torch.tensor([3.0, 2.0, 4.0]), 0, mask=torch.tensor([True, False, True]))
    tensor([ 3.,  3., 12.])
    """
    d = _canonical_dim(dim, input.ndim)[0]
    return _filled(input, mask, 1).cumprod(d, dtype=_dtype(input, dtype))


def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the largest of the unmasked elements.

    >>> torch.masked.amax(torch.tensor([1.0, 5.0, 4.0]), mask=torch.tensor([True, False, True]))
    tensor(4.)
    """
    if _is_sparse(input):
        return _of_sparse("amax", input, dim, keepdim, _dtype(input, dtype), mask)
    result = _never_winning("amax", input, mask).amax(_canonical_dim(dim, input.ndim), bool(keepdim))
    return result.to(_dtype(input, dtype))


def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the smallest of the unmasked elements.

    >>> torch.masked.amin(torch.tensor([1.0, 5.0, 4.0]), mask=torch.tensor([False, True, True]))
    tensor(4.)
    """
    if _is_sparse(input):
        return _of_sparse("amin", input, dim, keepdim, _dtype(input, dtype), mask)
    result = _never_winning("amin", input, mask).amin(_canonical_dim(dim, input.ndim), bool(keepdim))
    return result.to(_dtype(input, dtype))


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the index of the largest unmasked element; in the input's dtype, unless `dtype` is given.

    >>> torch.masked.argmax(torch.tensor([1, 5, 4]), mask=torch.tensor([True, False, True]))
    tensor(2)
    """
    filled = _never_winning("argmax", input, mask)
    return filled.argmax(dim, bool(keepdim)).to(_dtype(input, dtype))


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the index of the smallest unmasked element; in the input's dtype, unless `dtype` is given.

    >>> torch.masked.argmin(torch.tensor([1, 5, 4]), mask=torch.tensor([False, True, True]))
    tensor(2)
    """
    filled = _never_winning("argmin", input, mask)
    return filled.argmin(dim, bool(keepdim)).to(_dtype(input, dtype))


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the logarithm of the sum of the exponentials of the unmasked elements.

    >>> torch.masked.logsumexp(torch.tensor([0.0, 9.0, 0.0]), mask=torch.tensor([True, False, True]))
    tensor(0.6931)
    """
    filled = _never_winning("logsumexp", input, mask)
    return filled.logsumexp(_canonical_dim(dim, input.ndim), keepdim).to(_dtype(input, dtype))


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns log(eˣ + eʸ) elementwise, without x or y where its mask is False.

    >>> x = torch.zeros(3)
    >>> torch.masked.logaddexp(x, x, input_mask=torch.tensor([True, False, True]))
    tensor([0.6931, 0.0000, 0.6931])
    """
    filled = (
        _never_winning("logaddexp", x, mask) for x, mask in ((input, input_mask), (other, other_mask))
    )  # fmt: skip
    return FUNCTIONS["logaddexp"](*filled).to(_dtype(input, dtype))


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the mean of the unmasked elements.

    Raises:
        ValueError: For integers without `dtype`.

    >>> torch.masked.mean(torch.tensor([1.0, 2.0, 4.0]), mask=torch.tensor([True, False, True]))
    tensor(2.5000)
    """
    source = "Input" if dtype is None else "Optional"
    dtype = _dtype(input, dtype)
    if dtype.category < dtypes.FLOATING:
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. "
            f"Got: {dtype}"
        )
    if _is_sparse(input):
        return _of_sparse("mean", input, dim, keepdim, dtype, mask)
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / _count(input, dim, keepdim, mask)


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """The number of unmasked elements."""
    if mask is None:
        shape = tuple(input.shape) or (1,)
        return input.new_full((), math.prod(shape[d] for d in _canonical_dim(dim, input.ndim)), dtype=dtypes.int64)
    return sum(_input_mask(input, mask=mask), dim, keepdim=keepdim)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Returns the median of the unmasked elements, the lower one of two.

    Raises:
        ValueError: For integers if all elements are masked out.

    >>> torch.masked.median(torch.tensor([1.0, 7.0, 4.0]), mask=torch.tensor([True, False, True]))
    tensor(1.)
    """
    d = _canonical_dim(dim, input.ndim)[0]
    floating = input.dtype.is_floating_point
    filled = _filled(input if floating else input.to(dtypes.float32), mask, math.nan)
    result = filled.nanmedian(d, keepdim).values
    if floating:
        return result
    if not result.is_meta and bool(result.isnan().any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return result.to(_dtype(input, dtype))


def norm(
    input: Tensor, ord: float = 2.0, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the vector norm of order `ord` of the unmasked elements; see `torch.linalg.vector_norm`.

    >>> torch.masked.norm(torch.tensor([3.0, 2.0, 4.0]), mask=torch.tensor([True, False, True]))
    tensor(5.)
    """
    if mask is not None and ord == -math.inf and not input.dtype.is_floating_point:
        raise AssertionError(f"input must be floating point, got {input.dtype}")
    filled = _filled(input, mask, math.inf if ord == -math.inf else 0)
    return vector_norm(filled, ord, _canonical_dim(dim, input.ndim), bool(keepdim), dtype=_dtype(input, dtype))


def _variance(input: Tensor, dim: Dims, unbiased, correction, keepdim: bool, dtype: DType | None, mask) -> Tensor:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 0 if unbiased is False else 1
    if dtype is None:
        dtype = input.dtype if input.dtype.category >= dtypes.FLOATING else dtypes.float32
    dtype = as_dtype(dtype, "sum")
    wide = dtype if dtype.category >= dtypes.FLOATING else dtypes.float32
    centred = input - sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / _count(input, dim, True, mask)
    total = sum(centred * centred.conj(), dim, keepdim=keepdim, dtype=wide, mask=mask)
    divisor = _count(input, dim, keepdim, mask)
    if correction:
        divisor = (divisor.to(total.real.dtype if total.is_complex() else wide) - float(correction)).clamp(min=0)
    return (total / divisor).to(dtype)


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the variance of the n unmasked elements: the sum of squared deviations, divided by n - correction.

    The correction is 1, or 0 with `unbiased=False`.

    >>> torch.masked.var(torch.tensor([1.0, 9.0, 5.0]), mask=torch.tensor([True, False, True]))
    tensor(8.)
    """
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns the standard deviation of the unmasked elements: the square root of `var`.

    >>> torch.masked.std(torch.tensor([1.0, 9.0, 5.0]), unbiased=False, mask=torch.tensor([True, False, True]))
    tensor(2.)
    """
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


# --- normalizations ------------------------------------------------------------------------------------------------


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Returns the softmax over the unmasked elements; the others are 0.

    >>> torch.masked.softmax(torch.tensor([1.0, 2.0, 1.0]), 0, mask=torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return _softened("softmax", input, dim, dtype, mask, "amax")


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Returns the logarithm of `softmax`; minus infinity for masked-out elements.

    >>> torch.masked.log_softmax(torch.tensor([1.0, 2.0, 1.0]), 0, mask=torch.tensor([True, False, True]))
    tensor([-0.6931,    -inf, -0.6931])
    """
    return _softened("log_softmax", input, dim, dtype, mask, "amax")


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Returns the softmax of the negated input over the unmasked elements; the others are 0.

    >>> torch.masked.softmin(torch.tensor([1.0, 0.0, 1.0]), 0, mask=torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return _softened("softmin", input, dim, dtype, mask, "amin")


def _softened(name: str, input: Tensor, dim: int, dtype: DType | None, mask, extreme: str) -> Tensor:
    d = _canonical_dim(dim, input.ndim)[0]
    filled = _never_winning(extreme, input, mask)
    return FUNCTIONAL[name](filled, d, dtype=_dtype(input, dtype))


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Divides the input by the norm (at least `eps`) of the unmasked elements along `dim`; the others are 0.

    >>> torch.masked.normalize(torch.tensor([3.0, 2.0, 4.0]), 2.0, 0, mask=torch.tensor([True, False, True]))
    tensor([0.6000, 0.0000, 0.8000])
    """
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / size.clamp(min=eps)


# --- masked tensors ------------------------------------------------------------------------------------------------


def _no_masked_tensor(*args: Any, **kwargs: Any) -> Any:
    """Would create a `MaskedTensor`. Raises: NotImplementedError, naming the alternative.

    >>> torch.masked.masked_tensor(torch.ones(2), torch.tensor([True, False]))
    Traceback (most recent call last):
        ...
    NotImplementedError: tensorgrad has no MaskedTensor: keep the mask alongside the tensor and pass it to ...
    """
    raise NotImplementedError(
        "tensorgrad has no MaskedTensor: keep the mask alongside the tensor and pass it to the functions of "
        "torch.masked (torch.masked.sum(x, mask=mask), ...)"
    )


class MaskedTensor:
    """PyTorch's tensor that carries a mask; not available here.

    Raises:
        NotImplementedError: Always; the message names the alternative.

    >>> torch.masked.MaskedTensor(torch.ones(2), torch.tensor([True, False]))
    Traceback (most recent call last):
        ...
    NotImplementedError: tensorgrad has no MaskedTensor: keep the mask alongside the tensor and pass it to ...
    """

    __new__ = _no_masked_tensor


masked_tensor = as_masked_tensor = _no_masked_tensor


def is_masked_tensor(obj: Any, /) -> bool:
    """Returns whether an object is a `MaskedTensor`: always False, since there are none.

    >>> torch.masked.is_masked_tensor(torch.ones(2))
    False
    """
    return isinstance(obj, MaskedTensor)
