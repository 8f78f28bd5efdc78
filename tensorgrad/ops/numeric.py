"""Numerical helpers: integrals and gradients of samples, covariance, histograms, norm limits, hashes."""

from __future__ import annotations

import warnings

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite, number, op, reduction
from tensorgrad.dispatch.no_derivative import no_derivative
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import as_integers, check_is_number, no_dimensions, wrap_dim, wrap_dims
from tensorgrad.ops.complex import complex_
from tensorgrad.ops.create import linspace
from tensorgrad.ops.join import cat
from tensorgrad.ops.pointwise import short_name
from tensorgrad.ops.reduce import vector_norm
from tensorgrad.ops.sort import range_of_bins
from tensorgrad.return_types import return_type
from tensorgrad.tensor import Tensor
from tensorgrad.transforms.batch import whole

# --- integrals of samples ------------------------------------------------------------------------------------------


def _check_samples(name: str, y: Tensor, x: Tensor | None, dx) -> None:
    """Raises: RuntimeError for booleans and for a step that is not real, TypeError if both `x` and `dx` are given."""
    if x is not None:
        if dx is not None:
            raise TypeError(f"{name}() received an invalid combination of arguments - got both x and dx")
        if y.dtype is dtypes.bool or x.dtype is dtypes.bool:
            raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
        return
    if y.dtype is dtypes.bool:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    if isinstance(dx, bool | complex):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")


def _pairs(y: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Returns all but the first and all but the last element along `dim`."""
    n = max(y.shape[dim] - 1, 0)
    return y.narrow(dim, y.shape[dim] - n, n), y.narrow(dim, 0, n)


def _steps(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns the distances between the sample points `x`, in a shape that broadcasts with y's pairs along `dim`.

    Raises: RuntimeError unless there is one point per sample.
    """
    if x.ndim == 1 and y.ndim > 1:
        if len(x) != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        x = x.reshape([-1 if d == dim else 1 for d in range(y.ndim)])
    elif x.ndim < y.ndim:
        x = x.reshape((1,) * (y.ndim - x.ndim) + tuple(x.shape))
    right, left = _pairs(x, dim - y.ndim)
    return right - left


def _sample_dim(y: Tensor, dim: int) -> int:
    if not y.ndim:
        raise no_dimensions(dim)
    return wrap_dim(dim, y.ndim)


@composite("function")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: number | None = None, dim: int = -1) -> Tensor:
    """Integrates samples `y` along `dim` by the trapezoidal rule.

    The samples are at points `x` (one per sample, or of a shape that broadcasts with that of `y`) or `dx` apart
    (default: 1). The result has the shape of `y` without `dim`.

    Raises:
        RuntimeError: If the dtype is boolean, `dx` is not real, or `x` does not fit `y`.

    >>> torch.trapezoid(torch.tensor([1.0, 5.0, 10.0]))
    tensor(10.5000)
    >>> torch.trapezoid(torch.tensor([1.0, 5.0, 10.0]), torch.tensor([1.0, 3.0, 6.0]))
    tensor(28.5000)
    """
    return _trapezoid("trapezoid", y, x, dx, dim)


def _trapezoid(name: str, y, x, dx, dim):
    dim = _sample_dim(y, dim)
    if not y.shape[dim]:
        return y.detach().sum(dim).to(y.dtype)
    _check_samples("trapezoid", y, x, dx)
    if x is None:
        return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * (1 if dx is None else dx)
    right, left = _pairs(y, dim)
    return (_steps("trapezoid", y, x, dim) * (right + left)).sum(dim) / 2.0


@composite("function")
def trapz(y: Tensor, x: Tensor | None = None, *, dx: number | None = None, dim: int = -1) -> Tensor:
    """Alias of `trapezoid`.

    >>> torch.trapz(torch.tensor([1.0, 5.0, 10.0]), dx=2)
    tensor(21.)
    """
    return trapezoid(y, x, dx=dx, dim=dim)


@composite("function")
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: number | None = None, dim: int = -1) -> Tensor:
    """Integrates cumulatively along `dim` with `trapezoid`: up to the second, the third, ... and the last sample.

    Raises:
        RuntimeError: As for `trapezoid`.

    >>> torch.cumulative_trapezoid(torch.tensor([1.0, 5.0, 10.0]))
    tensor([ 3.0000, 10.5000])
    """
    dim = _sample_dim(y, dim)
    _check_samples("cumulative_trapezoid", y, x, dx)
    right, left = _pairs(y, dim)
    if x is None:
        return ((right + left) * ((1 if dx is None else dx) / 2.0)).cumsum(dim)
    return (_steps("cumulative_trapezoid", y, x, dim) * (right + left)).cumsum(dim) / 2.0


# --- gradients of samples ------------------------------------------------------------------------------------------


@composite("function")
def gradient(input: Tensor, *, spacing=None, dim=None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimates the gradient of a sampled function along the dimensions `dim` (default: all).

    Uses second-order central differences, and differences of order `edge_order` (1 or 2) at the edges. `spacing` is the
    distance between samples (default: 1), one such number per dimension, or one vector of coordinates per dimension.
    Returns a tuple with one tensor of the input's shape per dimension.

    Raises:
        RuntimeError: If `spacing` and `dim` differ in length, a dimension is repeated or has fewer than `edge_order` +
            1 samples, or the dtype is uint8.

    >>> torch.gradient(torch.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    >>> torch.gradient(torch.tensor([0.0, 1.0, 9.0]), spacing=(torch.tensor([0.0, 1.0, 3.0]),), edge_order=2)
    (tensor([0., 2., 6.]),)
    """
    dims = tuple(range(input.ndim)) if dim is None else tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    if isinstance(spacing, Tensor):
        if spacing.ndim:
            raise TypeError(
                "gradient() received an invalid combination of arguments - got spacing=Tensor, but expected a number "
                "or a list of numbers or tensors"
            )
        spacing = spacing.item()
    for distance in spacing if isinstance(spacing, tuple | list) else () if spacing is None else (spacing,):
        if not isinstance(distance, Tensor):
            check_is_number(distance, "spacing")
    if isinstance(spacing, tuple | list):
        _check_spacing(input, spacing, dim, dims)
        distances = list(spacing)
    else:
        distances = [1 if spacing is None else spacing] * len(dims)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    wrapped = wrap_dims(dims, input.ndim)
    if input.dtype is dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if any(not input.ndim or input.shape[d] < edge_order + 1 for d in wrapped):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(_slope(input, d, h, edge_order) for d, h in zip(wrapped, distances))


def _check_spacing(input: Tensor, spacing, dim, dims) -> None:
    """Raises: RuntimeError unless there is one number, or one vector of coordinates, per dimension."""
    if len(spacing) != len(dims):
        expected = "torch.gradient expected spacing to be unspecified, a scalar"
        if dim is None:
            raise RuntimeError(
                f"{expected}, or a list of length equal to 'self.dim() = {input.ndim}', since dim argument was not "
                f"given, but got a list of length {len(spacing)}"
            )
        raise RuntimeError(
            f"{expected} or it's spacing and dim arguments to have the same length, but got a spacing argument of "
            f"length {len(spacing)} and a dim argument of length {len(dims)}."
        )
    tensors = [isinstance(s, Tensor) for s in spacing]
    if not any(tensors):
        return
    for i, s in enumerate(spacing):
        if not isinstance(s, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 1, but got {type(s).__name__}")
        if s.ndim != 1:
            raise RuntimeError(
                "torch.gradient expected each element of spacing to have one dimension, but got an element with "
                f"{s.ndim} dimensions!"
            )
        if s.device != input.device:
            raise RuntimeError(
                "torch.gradient expected each tensor to be on the same device, but got devices "
                f"{s.device} and {input.device}!"
            )


def _slope(f: Tensor, dim: int, h, edge_order: int) -> Tensor:
    """Computes the slopes along one dimension; `h` is the distance or the coordinates.

    Interior slopes, and those at the edges for order 2, are those of the parabola through three neighbors; for equal
    distances that is the central difference.
    """
    n = f.shape[dim]

    def at(start: int, size: int = 1) -> Tensor:
        return f.narrow(dim, start, size)

    if not isinstance(h, Tensor):
        inner = (at(2, n - 2) - at(0, n - 2)) / (h * 2)
        if edge_order == 1:
            low, high = (at(1) - at(0)) / h, (at(n - 1) - at(n - 2)) / h
        else:
            low = (at(0) * -1.5 + at(1) * 2 - at(2) * 0.5) / h
            high = (at(n - 1) * 1.5 - at(n - 2) * 2 + at(n - 3) * 0.5) / h
        return cat([low, inner, high], dim)
    steps = (h[1:] - h[:-1]).reshape([-1 if d == dim else 1 for d in range(f.ndim)])
    a, b = steps.narrow(dim, 0, n - 2), steps.narrow(dim, 1, n - 2)
    inner = (
        -at(0, n - 2) * (b / (a * (a + b))) + at(1, n - 2) * ((b - a) / (a * b)) + at(2, n - 2) * (a / (b * (a + b)))
    )
    first, last = steps.narrow(dim, 0, 1), steps.narrow(dim, n - 2, 1)
    if edge_order == 1:
        return cat([(at(1) - at(0)) / first, inner, (at(n - 1) - at(n - 2)) / last], dim)

    def end(x, y, z, a, b):  # the slope at x; y is at distance a from x, z at distance b from y
        return -x * ((a * 2 + b) / (a * (a + b))) + y * ((a + b) / (a * b)) - z * (a / (b * (a + b)))

    low = end(at(0), at(1), at(2), first, steps.narrow(dim, 1, 1))
    high = -end(at(n - 1), at(n - 2), at(n - 3), last, steps.narrow(dim, n - 3, 1))
    return cat([low, inner, high], dim)


# --- covariance ----------------------------------------------------------------------------------------------------


def _check_weights(name: str, weights: Tensor, observations: int, kind: str, fits: bool) -> None:
    """Raises: RuntimeError unless there is a nonnegative weight of the right kind for every observation."""
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.ndim} dimensions"
        )
    if not fits:
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {scalar_type(weights)} dtype"
        )
    if weights.numel() != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{weights.numel()} != {observations}"
        )
    if not weights.is_meta and bool((whole(weights) < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@composite()
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Computes the covariance matrix of the variables in the rows of `input`, whose columns are observations.

    `correction` is subtracted from the number of observations (1: unbiased). `fweights` are integer frequencies of the
    observations, `aweights` their floating-point importance weights. A single variable gives a 0-dimensional tensor.

    Raises:
        RuntimeError: If there are more than two dimensions, the dtype is boolean, or weights have the wrong dtype, size
            or sign.

    >>> torch.cov(torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    if input.dtype is dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if input.ndim == 2 else input.reshape(1, -1)
    n = x.shape[1]
    weights = None
    if fweights is not None:
        _check_weights("fweights", fweights, n, "integral", fweights.dtype.category == dtypes.INTEGER)
        weights = fweights
    if aweights is not None:
        _check_weights("aweights", aweights, n, "floating point", aweights.dtype.is_floating_point)
        weights = aweights if weights is None else weights * aweights
    if x.dtype.category < dtypes.FLOATING:
        x = x.to(dtypes.get_default_dtype())
    if weights is None:
        x = x - x.mean(1, True)
        product = x @ x.mH
        freedom = max(n - correction, 0)
        if n <= correction:
            _warn_of_freedom()
        return (product / freedom).squeeze()
    total = weights.sum()
    if not total.is_meta and bool((whole(total) == 0).any()):
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    x = x - (x * weights).sum(1, True) / total
    product = x @ (x * weights).mH
    spread = correction if aweights is None else correction * (weights * aweights).sum() / total
    norm = total - spread
    if isinstance(norm, Tensor) and not norm.is_meta and bool((whole(norm) <= 0).any()):
        _warn_of_freedom()
        norm = norm.masked_fill(norm <= 0, 0)
    return (product / norm).squeeze()


def _warn_of_freedom() -> None:
    warnings.warn(
        "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
        stacklevel=3,
    )


@composite()
def corrcoef(input: Tensor) -> Tensor:
    """Computes Pearson's correlation coefficients of the variables in the rows of `input`.

    Raises:
        RuntimeError: If there are more than two dimensions.

    >>> torch.corrcoef(torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    c = cov(input)
    if not c.ndim:
        return c / c
    deviation = c.diagonal().real.sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return complex_(c.real.clip(-1, 1), c.imag.clip(-1, 1)) if c.is_complex() else c.clip(-1, 1)


# --- histograms of points ------------------------------------------------------------------------------------------

HistogramDD = return_type("histogramdd")


def _grid(x, edges, weight, density):
    return tuple(line.shape[0] - 1 for line in edges), x.dtype


_histogramdd = op("histogramdd(input, edges: tensors, weight=None, density: bool = False)", "numeric.histogramdd",
                  input=no_derivative("_histogramdd_from_bin_cts"), weight=no_derivative("_histogramdd_from_bin_cts"),
                  where=(), shape=_grid)  # fmt: skip


@composite("function")
def histogramdd(input: Tensor, bins, range=None, weight: Tensor | None = None, density: bool = False):
    """Counts the points in the last dimension of `input` in each cell of a grid; the last cell per dimension is closed.

    `bins` is, for each dimension, the number of equal intervals of `range` (low, high for each in turn; default: the
    data's range), one number for all, or a list of ascending tensors of edges. `weight` (of the input's shape without
    its last dimension) is summed instead of counted; `density` normalizes the integral over the grid to 1.

    Returns a named tuple (hist, bin_edges).

    Raises:
        RuntimeError: If the numbers of dimensions differ, the range is infinite or reversed, or `weight` has the wrong
            shape or dtype.

    >>> torch.histogramdd(torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 1.]])
    """
    if input.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    n = input.shape[-1]
    if weight is not None:
        _check_histogram_weight(input, weight)
    if isinstance(bins, tuple | list) and any(isinstance(b, Tensor) for b in bins):
        edges = _given_edges(input, bins)
    else:
        counts = [*as_integers(bins, "bins")]
        counts = counts if isinstance(bins, tuple | list) else counts * n
        edges = _equal_edges(input, counts, range)
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f"\"histogramdd\" not implemented for '{scalar_type(input)}'")
    hist = _histogramdd(input, edges, weight, density)
    return HistogramDD((hist, tuple(edges)))


def _check_histogram_weight(input: Tensor, weight: Tensor) -> None:
    if weight.shape != input.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({short_name(input)}), and weight({short_name(weight)})"
        )


def _given_edges(input: Tensor, bins) -> list[Tensor]:
    n = input.shape[-1]
    if len(bins) != n:
        raise RuntimeError(
            f"torch.histogramdd: expected {n} sequences of bin edges for a {n}-dimensional histogram but got "
            f"{len(bins)}"
        )
    for d, line in enumerate(bins):
        if not isinstance(line, Tensor):
            raise TypeError(f"expected Tensor as element {d} in argument 1, but got {type(line).__name__}")
        if line.dtype is not input.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{short_name(input)} and bins for dimension {d} with dtype {short_name(line)}"
            )
        if line.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {line.ndim} dimensions in the bins "
                f"tensor for dimension {d}"
            )
        if not len(line):
            raise RuntimeError(
                "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor "
                f"for dimension {d}"
            )
        _check_count(len(line) - 1, d)
    return [line.detach() for line in bins]


def _check_count(count: int, d: int) -> None:
    if count <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {count} for dimension {d}")


def _equal_edges(input: Tensor, counts: list[int], range) -> list[Tensor]:
    """Computes the edges of equal bins, one tensor per dimension."""
    n = input.shape[-1]
    if len(counts) != n:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    for d, count in enumerate(counts):
        _check_count(count, d)
    if range is not None:
        given = range_of_bins("histogramdd", n, range)
        limits = list(zip(given[::2], given[1::2], strict=True))
    elif input.numel() and not input.is_meta:
        points = input.detach().reshape(-1, n)
        limits = list(zip(points.amin(0).tolist(), points.amax(0).tolist()))
    else:
        limits = [(0.0, 0.0)] * n if input.is_meta else [(0.0, 1.0)] * n
    edges = []
    for d, ((low, high), count) in enumerate(zip(limits, counts)):
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise RuntimeError(f"torch.histogramdd: dimension {d}'s range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {d}"
            )
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges.append(linspace(low, high, count + 1, dtype=input.dtype, device=input.device))
    return edges


# --- norms ---------------------------------------------------------------------------------------------------------


@composite(in_place=True)
def renorm(input: Tensor, p: number, dim: int, maxnorm: number, *, out=None) -> Tensor:
    """Scales down each slice along `dim` whose p-norm is larger than `maxnorm` to that norm.

    Raises:
        RuntimeError: If there are fewer than two dimensions, `p` is not positive, or `maxnorm` is negative.

    >>> torch.renorm(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    for name, value in (("p", p), ("maxnorm", maxnorm)):
        if isinstance(value, complex):
            raise RuntimeError(f"renorm: {name} must be real-valued")
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    dim = wrap_dim(dim, input.ndim)
    others = [d for d in range(input.ndim) if d != dim]
    half = input.dtype.itemsize == 2
    norm = vector_norm(input, p, others, True, dtype=dtypes.float32 if half else None)
    scale = (maxnorm / (norm + 1e-7)).masked_fill(~(norm > maxnorm), 1.0)  # also for NaN
    result = input.contiguous() * scale.to(input.dtype)  # in rows
    return store_out("renorm", out, result)


# --- hashes --------------------------------------------------------------------------------------------------------


def _check_hash(x, dim, keepdim, mode):
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    dims = None if dim is None else tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    if dims:
        dims = wrap_dims(dims, x.ndim) if x.ndim else (wrap_dims(dims, 0) and ())
    elif not x.size and x.ndim:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
            "with the 'dim' argument."
        )
    return x, dims or None, keepdim, mode


hash_tensor = reduction(
    "hash_tensor(input, dim: dims = (), *, keepdim: bool = False, mode: int = 0)", "numeric.hash_tensor",
    prepare=_check_hash,
    doc="A cheap hash: the XOR over `dim` of the elements' bits (as float64 or int64), as uint64.\n\n"
        ">>> torch.hash_tensor(torch.tensor([1, 2, 4]))\n"
        "tensor(7, dtype=torch.uint64)",
)  # fmt: skip
