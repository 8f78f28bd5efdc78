"""Cumulative sums, products and extrema, and differences between neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorgrad import dtypes, return_types
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.out import store_out
from tensorgrad.errors import wrap_dim
from tensorgrad.ops.pick import REPEATED
from tensorgrad.ops.pointwise import conj
from tensorgrad.return_types import return_type
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor


def _wrap(x, dim, *rest):
    return (x, wrap_dim(dim, x.ndim), *rest)


def _wrap_and_cast(name: str):
    def prepare(x, dim, dtype):
        if dtype is dtypes.bool:
            raise NotImplementedError(f"\"{name}_out_cpu\" not implemented for 'Bool'")
        return (x if dtype is None else STORAGES[x.__class__].cast(x, dtype.numpy)), wrap_dim(dim, x.ndim), dtype

    return prepare


def _running_shape(x, dim, dtype):
    whole = dtype is None and x.dtype.kind in "iub"
    return x.shape, dtypes.I64 if whole else x.dtype


# Three linear maps that are each other's derivatives: cumulative sums from either end, and a shift by one position.
_cumsum_reversed = op("cumsum_reversed(input, dim: int)", "scan.cumsum_reversed", linear="input", where=(),
                      kind="same shape",
                      backward_name="CumsumBackward0", input=lambda g, dim: _cumsum(g, dim))  # fmt: skip
_cumsum: Callable = op("cumsum(input, dim: int, *, dtype: dtype = None)", "scan.cumsum", linear="input",
             batch="leading",
             prepare=_wrap_and_cast("cumsum"), shape=_running_shape, input=lambda g, dim: _cumsum_reversed(g, dim),
             doc="The cumulative sum along `dim`; integers add up in int64 unless `dtype` is given.")  # fmt: skip
cumsum = _cumsum
shift: Callable = op("shift(input, dim: int, by: int, fill: number)", "scan.shift", where=(), kind="same shape",
           input=lambda g, dim, by: shift(g, dim, -by, 0), linear="input + fill",
           doc="Shifts elements by `by` (1 or -1) positions along `dim`; `fill` enters at the end.")  # fmt: skip

# y[i] = b[i] + a[i] y[i±1]: the derivative of cumulative products. Its own derivatives are recurrences in reverse.
_recurrence: Callable = op(
    "recurrence(b, a, dim: int, backwards: bool)", "scan.recurrence", where=(), kind="same shape",
    b=lambda g, a, dim, backwards: _recurrence(g, _towards(conj(a), dim, backwards), dim, not backwards),
    a=lambda g, a, out, dim, backwards: _recurrence(g, _towards(conj(a), dim, backwards), dim, not backwards)
    * conj(_towards(out, dim, not backwards)),
    jvp=lambda b_t, a_t, a, out, dim, backwards: _recurrence(b_t + a_t * _towards(out, dim, not backwards), a, dim,
                                                             backwards),
    doc="y[i] = b[i] + a[i] y[i-1] along `dim` (`backwards`: y[i+1]).",
)  # fmt: skip


def _towards(x: Tensor, dim: int, backwards: bool) -> Tensor:
    """Returns each element's successor along `dim` (`backwards`: its predecessor); 0 beyond the end."""
    return shift(x, dim, 1 if backwards else -1, 0)


def _cumprod_slope(g, input, out, dim):
    """d/dx[j] of Σ g[k] Π x[..k]: the product before j, times g[j] + x[j+1] (g[j+1] + x[j+2] (...)). No division."""
    before, input = shift(out, dim, 1, 1), input.to(out.dtype)
    return conj(before) * _recurrence(g, conj(shift(input, dim, -1, 0)), dim, True)


cumprod = op("cumprod(input, dim: int, *, dtype: dtype = None)", "scan.cumprod", prepare=_wrap_and_cast("cumprod"),
             batch="leading",
             shape=_running_shape, input=_cumprod_slope,
             jvp=lambda input_t, input, out, dim:
                 _recurrence(shift(out, dim, 1, 1) * input_t.to(out.dtype), input.to(out.dtype), dim, False),
             doc="The cumulative product along `dim`; integers in int64 unless `dtype` is given.")  # fmt: skip

_running_extreme = op(
    "running_extreme(input, dim: int, largest: bool)", "scan.running_extreme", batch="leading", where=(),
    outputs=("values", "indices"), prepare=_wrap, backward_name="CummaxBackward0",
    shape=lambda x, dim, largest: [(x.shape, x.dtype), (x.shape, dtypes.I64)],
    selects=REPEATED,
)  # fmt: skip

CumMax, CumMin = return_type("cummax"), return_type("cummin")


@composite()
def cummax(input: Tensor, dim: int, *, out=None) -> return_types.cummax:
    """Returns the cumulative maximum along `dim` and its indices (the last one among equal elements).

    >>> torch.tensor([1, 3, 2]).cummax(0).values
    tensor([1, 3, 3])
    """
    return CumMax(_running_extreme(input, dim, True, out=out))


@composite()
def cummin(input: Tensor, dim: int, *, out=None) -> return_types.cummin:
    """Returns the cumulative minimum along `dim` and its indices (the last one among equal elements).

    >>> torch.cummin(torch.tensor([3.0, 1.0, 2.0]), dim=0)
    torch.return_types.cummin(
    values=tensor([3., 1., 1.]),
    indices=tensor([0, 1, 1]))
    """
    return CumMin(_running_extreme(input, dim, False, out=out))


def _logcumsumexp_slope(g, input, out, dim):
    """Σ over k ≥ j of g[k] exp(x[j] - out[k]): a recurrence in which no exponent is positive."""
    if not input.ndim:
        return g
    ratio = conj((out - shift(out, dim, -1, math.inf)).exp())
    return conj((input - out).exp()) * _recurrence(g, ratio, dim, True)


def _logcumsumexp_tangent(input_t, input, out, dim):
    """The mean of t[j] over j ≤ k with weights exp(x[j]), both sums relative to the largest x so far.

    Relative to `out`, whose rounding is that of large x, the weights would not add up to 1.
    """
    if not input.ndim:
        return input_t
    top = _largest_so_far(input, dim)
    ratio = (shift(top, dim, 1, -math.inf) - top).exp().to(input.dtype)
    weights = (input - top).exp()
    return _recurrence(weights * input_t, ratio, dim, False) / _recurrence(weights, ratio, dim, False)


def _largest_so_far(input, dim):
    """The running maximum of the real parts: finite, and a constant."""
    parts = (input.real if input.is_complex() else input).detach()
    return parts.cummax(dim)[0].clamp(*(getattr(dtypes.finfo(parts.dtype), end) for end in ("min", "max")))


logcumsumexp = op("logcumsumexp(input, dim: int)", "scan.logcumsumexp", prepare=_wrap, kind="same shape",
                  input=_logcumsumexp_slope, jvp=_logcumsumexp_tangent,
                  doc="The logarithm of the cumulative sum of exponentials along `dim`.")  # fmt: skip


def _in_place(name: str, function) -> None:
    def method(self, dim, *, dtype=None):
        from tensorgrad.dispatch import inplace

        return inplace.replace(self, function, (dim,), {} if dtype is None else {"dtype": dtype})

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"In-place version of `{name[:-1]}`: writes the result into this tensor and returns it."
    setattr(Tensor, name, method)


_in_place("cumsum_", cumsum)
_in_place("cumprod_", cumprod)


@composite()
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *, out=None
) -> Tensor:
    """Computes the `n`-th differences between neighbors along `dim`, after joining `prepend` and `append` to the ends.

    >>> torch.tensor([1, 3, 6]).diff()
    tensor([2, 3])
    """
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap_dim(dim, input.ndim)
    for t in (prepend, append):
        _check_joinable(t, input, dim)
    if n == 0:
        return store_out("diff", out, input.clone())
    parts = [t for t in (prepend, input, append) if t is not None]
    if len(parts) > 1:
        from tensorgrad.ops.join import cat

        input = cat(parts, dim)
    size = input._array.shape[dim]
    for _ in range(min(n, size)):
        later, earlier = input.narrow(dim, 1, size - 1), input.narrow(dim, 0, size - 1)
        input = later.logical_xor(earlier) if input.dtype is dtypes.bool else later - earlier
        size -= 1
    return store_out("sub", out, input, pointwise=True)


def _check_joinable(t, input: Tensor, dim: int) -> None:
    if t is None:
        return
    if t.ndim != input.ndim:
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    for i, (a, b) in enumerate(zip(t._array.shape, input._array.shape, strict=True)):
        if i != dim and a != b:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the "
                f"differencing dimension; input.size({i}) = {b}, but got tensor.size({i}) = {a}"
            )
