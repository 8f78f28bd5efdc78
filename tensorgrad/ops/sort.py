"""Sorting, ranks, medians, quantiles, binary search, unique values and counts.

Sorts are stable and NaN counts as the largest value, as in PyTorch. Everything that selects elements scatters its
gradient back to their indices (`place` in ops/pick.py).
"""

from __future__ import annotations

from typing import Any

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch.kernel_errors import unsupported
from tensorgrad.dispatch.kinds import composite, number, op, reduction
from tensorgrad.dispatch.no_derivative import no_derivative, not_implemented
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import I64, scalar_type
from tensorgrad.errors import as_float, as_integer, check_flags, check_number, wrap_dim, wrong_argument
from tensorgrad.ops.create import zeros
from tensorgrad.ops.pick import ALONG_DIM, ONE_OF_DIM, pick
from tensorgrad.ops.reduce import tie_of_all
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole
from tensorgrad.transforms.batch_values import each

_PAIR: dict[str, Any] = {"where": "", "outputs": ("values", "indices"), "differentiable_outputs": 1}


def _wrap(x, dim, *rest):
    return (x, wrap_dim(dim, x.ndim), *rest)


# --- sorting -------------------------------------------------------------------------------------------------------

Sort, TopK = return_type("sort"), return_type("topk")

_sort = op("sort(input, dim: int, descending: bool)", "sort.sort", prepare=_wrap, backward_name="SortBackward0",
           batch="leading", strides="input input",
           shape=lambda x, dim, descending: [(x.shape, x.dtype), (x.shape, I64)],
           selects=ALONG_DIM, **_PAIR)  # fmt: skip


@composite()
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out=None
) -> return_types.sort:
    """Sorts the elements along `dim` and returns them with their original indices. Stable; NaN is the largest.

    Args:
        dim: along which dimension.
        descending: whether the largest come first.
        stable: accepted; equal elements always stay in order.

    >>> torch.tensor([3, 1, 2]).sort()
    torch.return_types.sort(
    values=tensor([1, 2, 3]),
    indices=tensor([1, 2, 0]))
    """
    return Sort(_sort(input, dim, bool(descending), out=out))


@composite()
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Returns the indices that sort the elements along `dim`.

    >>> torch.argsort(torch.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    return _sort(input, dim, bool(descending))[1]


@composite()
def msort(input: Tensor, *, out=None) -> Tensor:
    """Sorts `input` along its first dimension.

    >>> torch.msort(torch.tensor([[3, 1], [2, 4]]))
    tensor([[2, 1],
            [3, 4]])
    """
    values = _sort(input, 0, False)[0]
    return store_out("msort", out, values)


def _check_topk(x, k, dim, largest):
    dim = wrap_dim(dim, x.ndim)
    k = as_integer(k, "k")
    if not 0 <= k <= (x.shape[dim] if x.ndim else 1):
        raise RuntimeError("selected index k out of range")
    return x, k, dim, largest


_topk = op("topk(input, k: int, dim: int, largest: bool)", "sort.topk", batch="leading", prepare=_check_topk,
           strides="rows rows",
           shape=lambda x, k, dim, largest: [(_resized(x.shape, dim, k), x.dtype), (_resized(x.shape, dim, k), I64)],
           selects=ALONG_DIM, backward_name="TopkBackward0", **_PAIR)  # fmt: skip


def _resized(shape, dim, n):
    return (*shape[:dim], n, *shape[dim + 1 :]) if shape else ()


@composite()
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out=None
) -> return_types.topk:
    """Returns the `k` largest (or smallest) elements along `dim` in order, and their indices.

    As in PyTorch, which of several equal elements are taken, and in what order, is unspecified; this implementation
    prefers earlier ones.

    Args:
        k: how many.
        dim: along which dimension; in the results it has size `k`.
        largest: whether the largest or the smallest are wanted.
        sorted: accepted; the results are in order, as said.

    Raises:
        RuntimeError: If `k` is larger than the dimension.

    >>> torch.tensor([1, 5, 3]).topk(2).values
    tensor([5, 3])
    """
    return TopK(_topk(input, k, dim, largest, out=out))


# --- ranks ---------------------------------------------------------------------------------------------------------

KthValue, Mode = return_type("kthvalue"), return_type("mode")
Median, NanMedian = return_type("median"), return_type("nanmedian")


def _selected_shape(x, dim, keepdim, *rest):
    shape = _resized(x.shape, dim, 1) if keepdim else x.shape[:dim] + x.shape[dim + 1 :]
    return [(shape, x.dtype), (shape, I64)]


def _selection(signature: str, kernel: str, backward_name: str):
    """Declares a reduction that selects one element along `dim` and also returns its index."""
    return reduction(signature, kernel, backward_name=backward_name, shape=_selected_shape, selects=ONE_OF_DIM, **_PAIR)


_kthvalue = _selection("kthvalue(input, dim: int, keepdim: bool, k: int)", "sort.kthvalue", "KthvalueBackward0")
_mode = _selection("mode(input, dim: int, keepdim: bool)", "sort.mode", "ModeBackward0")
_median = _selection("median_dim(input, dim: int, keepdim: bool, ignore_nan: bool)", "sort.median", "MedianBackward1")
_median_all = op("median_all(input, ignore_nan: bool)", "sort.median_all", where=(), input=tie_of_all,
                 batch=lambda input, ignore_nan: _median(input.reshape(input.shape[0], -1), 1, False, ignore_nan)[0],
                 jacobian="weights", shape=lambda x, ignore_nan: ((), x.dtype),
                 backward_name="MedianBackward0")  # fmt: skip


@composite()
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out=None) -> return_types.kthvalue:
    """Returns the `k`-th smallest element along `dim` (counted from 1) and its index.

    >>> torch.kthvalue(torch.tensor([3.0, 1.0, 2.0]), 2)
    torch.return_types.kthvalue(
    values=tensor(2.),
    indices=tensor(2))
    """
    return KthValue(_kthvalue(input, dim, keepdim, as_integer(k, "k"), out=out))


@composite()
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out=None) -> return_types.mode:
    """Returns the most frequent element along `dim` (the smallest among ties) and the last index where it occurs.

    >>> torch.mode(torch.tensor([1, 2, 2, 3]))
    torch.return_types.mode(
    values=tensor(2),
    indices=tensor(2))
    """
    return Mode(_mode(input, dim, keepdim, out=out))


@composite()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None):
    """Returns the median: the lower of the two middle elements. With `dim`, also its index.

    If any element is NaN, so is the median.

    >>> torch.tensor([4.0, 1.0, 3.0, 2.0]).median()
    tensor(2.)
    """
    if dim is None:
        return _median_all(input, False, out=out)
    return Median(_median(input, dim, keepdim, False, out=out))


@composite()
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out=None):
    """Returns the `median` of the elements that are not NaN.

    >>> torch.nanmedian(torch.tensor([1.0, torch.nan, 3.0]))
    tensor(1.)
    """
    if dim is None:
        return _median_all(input, True, out=out)
    return NanMedian(_median(input, dim, keepdim, True, out=out))


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@composite()
def quantile(
    input: Tensor, q, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out=None
) -> Tensor:
    """Computes the quantiles `q` (a number, or a tensor of them) of the elements along `dim`.

    `interpolation` chooses the value between two elements: "linear", "lower", "higher", "midpoint" or "nearest". If `q`
    is a vector, the first dimension of the result corresponds to it.

    Raises:
        RuntimeError: If the dtype is not float32 or float64, the input is empty, or `q` is outside [0, 1].

    >>> torch.tensor([0.0, 1.0, 2.0, 3.0]).quantile(0.5)
    tensor(1.5000)
    """
    result = _quantile("quantile", input, q, dim, keepdim, interpolation, False)
    return store_out("quantile", out, result)


@composite()
def nanquantile(
    input: Tensor, q, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out=None
) -> Tensor:
    """Computes the `quantile` of the elements that are not NaN.

    >>> torch.nanquantile(torch.tensor([1.0, torch.nan, 2.0, 4.0]), 0.25)
    tensor(1.5000)
    """
    result = _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
    return store_out("nanquantile", out, result)


def _check_quantile(name, input, q, interpolation):
    """Checks the arguments as PyTorch does; returns `q` as a tensor."""
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if isinstance(q, int | float):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        q = input.new_full((), float(q))
    elif not isinstance(q, Tensor):
        raise TypeError(f"{name}(): argument 'q' must be Tensor or float, not {type(q).__name__}")
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if q.numel() and not q.is_meta and not bool(whole((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _quantile(name, input, q, dim, keepdim, interpolation, ignore_nan):
    q = _check_quantile(name, input, q, interpolation)
    ndim = input.ndim
    if dim is None:
        rows, at, kept = input.reshape(-1), 0, (1,) * ndim
    else:
        at = wrap_dim(dim, ndim)
        rows = input.movedim(at, -1) if ndim else input.reshape(1)
        kept = tuple(1 if i == at else n for i, n in enumerate(input._array.shape))
    shape = kept if keepdim else kept[:at] + kept[at + 1 :] if dim is not None else ()
    values, last = _sort(rows, -1, False)[0], rows._array.shape[-1] - 1
    if ignore_nan:
        known = values.isnan().logical_not().sum(-1, True)
        rank = q * (known - 1).clamp(min=0).to(q.dtype)
    else:
        # NaN sorts last and makes the whole row NaN: point every rank at it
        rank = (q * last).masked_fill(values.narrow(-1, last, 1).isnan(), last)
    result = _at_rank(values, rank, interpolation)
    result = result.reshape((*shape, *q._array.shape))
    return result.movedim(-1, 0) if q.ndim else result


def _at_rank(values: Tensor, rank: Tensor, interpolation: str) -> Tensor:
    """Reads sorted rows at the fractional indices `rank` (broadcast over the rows, in the last dimension)."""
    if not rank.ndim:
        rank = rank.reshape(1)
    if interpolation == "nearest":
        rank = rank.round()
    lead = values._array.shape[:-1]
    rank = rank.expand((*lead, rank._array.shape[-1]))
    below = rank.floor() if interpolation != "higher" else rank.ceil()
    low = pick(values, below.long(), values.ndim - 1, False)
    if interpolation in ("lower", "higher", "nearest"):
        return low
    high = pick(values, rank.ceil().long(), values.ndim - 1, False)
    weight = rank - below if interpolation == "linear" else (rank != below).to(rank.dtype) / 2
    return low.lerp(high, weight)


# --- search --------------------------------------------------------------------------------------------------------


def _searched_in_batch(boundaries, input, sorter, right, size, mapped):
    """Each sample's numbers in its own sequence, or all of them in the one that they share."""
    if not boundaries.numel() or not input.numel():
        shape = input.shape if "input" in mapped else (size, *input.shape)
        return zeros(shape, dtype=dtypes.int64, device=input.device)
    flat = boundaries.ndim - ("boundaries" in mapped) == 1
    if flat and not mapped & {"boundaries", "sorter"}:
        return _searchsorted(boundaries, input, sorter, right)
    boundaries, input, sorter = each(size, mapped, boundaries=boundaries, input=input, sorter=sorter)
    rows = input.reshape(size, -1) if flat else input
    return _searchsorted(boundaries, rows, sorter, right).reshape(input.shape)


def _isin_in_batch(elements, test_elements, invert, mapped):
    if "test_elements" not in mapped:
        return _isin(elements, test_elements, invert)
    rank = elements.ndim - ("elements" in mapped)
    tests = test_elements.flatten(1)
    tests = tests.reshape(tests.shape[0], *(1,) * rank, tests.shape[1])
    found = (elements.unsqueeze(-1) == tests).any(-1)
    return ~found if invert else found


_searchsorted = op("searchsorted(boundaries, input, sorter=None, right: bool = False)", "sort.searchsorted", where=(),
                   batch=_searched_in_batch,
                   shape=lambda b, x, sorter, right: (x.shape, I64))  # fmt: skip


@composite("function")
def searchsorted(
    sorted_sequence: Tensor, input, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None, out=None
) -> Tensor:  # fmt: skip
    """Returns, for each element of `input`, the index where inserting it keeps `sorted_sequence` sorted.

    Side "left" (the default) is before equal elements, "right" after. A `sorted_sequence` of several dimensions is
    searched row by row; `sorter` holds the indices that sort a sequence that is not sorted.

    Args:
        sorted_sequence: a vector, or (..., n) with the leading sizes of `input`.
        input: a tensor of values, or a number.
        out_int32: whether the indices are int32 instead of int64.
        right: True is `side="right"`.
        side: "left" or "right".
        sorter: int64, of the shape of `sorted_sequence`.

    >>> torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    bounds = sorted_sequence._array
    if not bounds.ndim and isinstance(input, Tensor) and input._array.ndim:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if not isinstance(input, Tensor) or not input._array.ndim:
        if bounds.ndim != 1:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we "
                f"got boundaries tensor dim({bounds.ndim}) and input value's dim(0) numel(1)"
            )
        if not isinstance(input, Tensor):
            dtype = dtypes.int64 if isinstance(input, bool) else dtypes.of_number(input)
            input = sorted_sequence.new_full((), input, dtype=dtype)
    if bounds.ndim != 1 and bounds.shape[:-1] != input._array.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(bounds.shape)} and input "
            f"value tensor {list(input.shape)}"
        )
    for array in (bounds, input._array):
        if array.dtype.kind in "cb":
            unsupported("searchsorted_out", array)
    _check_sorter(sorter, bounds)
    found = _searchsorted(sorted_sequence, input, sorter, right or side == "right")
    found = found.to(dtypes.int32) if out_int32 else found
    return store_out("searchsorted", out, found)


def _check_sorter(sorter, bounds) -> None:
    if sorter is None:
        return
    if sorter._array.shape != bounds.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
            f"{list(bounds.shape)} and got sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype is not dtypes.int64:
        raise RuntimeError(
            f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {scalar_type(sorter)}"
        )


@composite("function")
def bucketize(input, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out=None) -> Tensor:
    """Returns the index of each element's bucket between sorted `boundaries`; see `searchsorted`.

    >>> torch.bucketize(torch.tensor([0.5, 3.0]), torch.tensor([1.0, 2.0, 3.0]))
    tensor([0, 2])
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


_isin = op("isin(elements, test_elements, invert: bool)", "sort.isin", where=(), batch=_isin_in_batch,
           shape=lambda x, test, invert: (x.shape, dtypes.B1))  # fmt: skip


@composite("function")
def isin(elements, test_elements, *, assume_unique: bool = False, invert: bool = False, out=None) -> Tensor:
    """Returns whether each of `elements` is among `test_elements` (either may be a number); `invert` negates that.

    >>> torch.isin(torch.tensor([1, 2, 3]), torch.tensor([2, 5]))
    tensor([False,  True, False])
    """
    if not isinstance(elements, Tensor):
        elements = test_elements.new_full((), elements, dtype=dtypes.of_number(elements))
    elif not isinstance(test_elements, Tensor):
        test_elements = elements.new_full((), test_elements, dtype=dtypes.of_number(test_elements))
    for given in (elements, test_elements):
        if given.dtype.is_complex or given.dtype is dtypes.bool:
            raise RuntimeError(f"Unsupported input type encountered for isin(): {scalar_type(given)}")
    return _isin(elements, test_elements, invert, out=out)


# --- unique values and counts --------------------------------------------------------------------------------------

_SET: dict[str, Any] = {"where": "", "outputs": ("values", "inverse", "counts")}
_unique = op("unique_all(input, with_inverse: bool)", "sort.unique", batch="no batch", backward_name="Unique2Backward0",
             input=not_implemented("_unique2"), **_SET)  # fmt: skip
_unique_dim = op("unique_dim(input, dim: int)", "sort.unique_dim", batch="no batch", prepare=_wrap,
                 input=not_implemented("unique_dim"), **_SET)  # fmt: skip
_unique_consecutive = op("unique_runs(input, dim: int)", "sort.unique_consecutive", batch="no batch", **_SET,
                         input=not_implemented("unique_consecutive"), backward_name="UniqueConsecutiveBackward0",
                         prepare=lambda x, dim: (x, None if dim is None else wrap_dim(dim, x.ndim)))  # fmt: skip


def _chosen(found, return_inverse, return_counts):
    values, inverse, counts = found
    results = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return results if len(results) > 1 else values


@composite()
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """Returns the sorted unique elements, or slices along `dim`; optionally also inverse indices and counts.

    Every NaN counts as distinct.

    Args:
        sorted: accepted; the elements are sorted in any case.
        return_inverse: whether to return, of the shape of `input`, where each element is in the result.
        return_counts: whether to return how often each one comes (int64).
        dim: None for elements.

    >>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    check_flags(sorted=sorted, return_inverse=return_inverse, return_counts=return_counts)
    found = _unique(input, return_inverse) if dim is None else _unique_dim(input, dim)
    return _chosen(found, return_inverse, return_counts)


@composite()
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """Returns `input` (or its slices along `dim`) with each run of equal elements collapsed to one.

    >>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    check_flags(return_inverse=return_inverse, return_counts=return_counts)
    return _chosen(_unique_consecutive(input, dim), return_inverse, return_counts)


_bincount = op("bincount(input, weights=None, minlength: int = 0)", "sort.bincount", linear="weights", where=(),
               weights=no_derivative("bincount"))  # fmt: skip


@composite()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Counts how often each of the numbers 0, 1, ... occurs in `input`, or sums the `weights` of its occurrences.

    The result has at least `minlength` entries.

    >>> torch.bincount(torch.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    if input.dtype.category != dtypes.INTEGER:
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{scalar_type(input)}'")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.ndim != 1 or (input.numel() and not input.is_meta and int(whole(input).min()) < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights._array.shape != input._array.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return _bincount(input, weights, minlength)


_histc = op("histc(input, bins: int, min: number, max: number)", "sort.histc", where=(),
            shape=lambda x, bins, low, high: ((bins,), x.dtype))  # fmt: skip


@composite()
def histc(input: Tensor, bins: int = 100, min: number = 0, max: number = 0, *, out=None) -> Tensor:
    """Counts the elements in each of `bins` equal intervals of [min, max] (the data's range if both are equal).

    >>> torch.tensor([1.0, 2.0, 1.0]).histc(bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    bins = as_integer(bins, "bins")
    check_number(min, dtypes.float64)
    check_number(max, dtypes.float64)
    if bins > 0 and min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    _check_histogram(input, bins)
    return _histc(input, bins, min, max, out=out)


def range_of_bins(name: str, dims: int, range) -> list[float]:
    """Returns the limits of a histogram. Raises: TypeError or RuntimeError unless there are two for each dimension."""
    if not isinstance(range, tuple | list):
        raise wrong_argument(range, "range", "tuple of floats")
    found = [as_float(limit, "range") for limit in range]
    if len(found) != 2 * dims:
        raise RuntimeError(
            f"torch.{name}: for a {dims}-dimensional histogram range should have {2 * dims} elements, but got "
            f"{len(found)}"
        )
    return found


def _check_histogram(input: Tensor, bins: int) -> None:
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"histogram_cpu\" not implemented for '{scalar_type(input)}'")
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")


Histogram = return_type("histogram")
_histogram = op("histogram(input, edges, weight=None, density: bool = False)", "sort.histogram", where=(),
                input=no_derivative("histogram"), weight=no_derivative("histogram"),
                shape=lambda x, edges, weight, density: ((edges.shape[0] - 1,), x.dtype))  # fmt: skip


def _histogram_of_each(input: Tensor, bins: int, weight: Tensor | None, density: bool) -> tuple:
    """The histogram between the extremes of `input`, as tensors."""
    from tensorgrad.ops.create import linspace

    low, high = input.min(), input.max()
    apart = (low == high) * 0.5
    edges = linspace(low - apart, high + apart, bins + 1, dtype=input.dtype)
    return Histogram((_histogram(input, edges, weight, density), edges))


@composite()
def histogram(
    input: Tensor, bins, *, range=None, weight: Tensor | None = None, density: bool = False, out=None
) -> return_types.histogram:
    """Counts the elements, or sums their `weight`, in each of `bins`.

    `bins` is a number of equal intervals of `range`, or a sorted tensor of edges.

    Raises:
        RuntimeError: If the dtype is integral or the range is not finite.

    >>> torch.histogram(torch.tensor([1.0, 2.0, 1.0]), bins=2, range=(0.0, 3.0))
    torch.return_types.histogram(
    hist=tensor([2., 1.]),
    bin_edges=tensor([0.0000, 1.5000, 3.0000]))
    """
    if not isinstance(bins, Tensor):
        bins = as_integer(bins, "bins")
        _check_histogram(input, bins)
        if range is None:
            known = input.numel() and not input.is_meta
            if known and whole(input) is not input:  # other edges for each sample of a batch
                return _histogram_of_each(input, bins, weight, density)  # type: ignore[return-value]
            low, high = (float(input.min()), float(input.max())) if known else (0.0, 0.0)
        else:
            low, high = range_of_bins("histogram", 1, range)
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise RuntimeError(f"torch.histogram(): range [{low:g}, {high:g}] is not finite")
        if low == high:
            low, high = low - 0.5, high + 0.5
        from tensorgrad.ops.create import linspace

        bins = linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)
    else:
        if bins.ndim != 1:
            raise RuntimeError(
                f"torch.histogram(): bins tensor should have one dimension, but got {bins.ndim} dimensions in the bins "
                "tensor for dimension 0"
            )
        bins = bins.detach().clone()
    result = Histogram((_histogram(input, bins, weight, density), bins))
    return store_out("histogram", out, result)
