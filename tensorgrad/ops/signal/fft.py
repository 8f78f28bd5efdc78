"""Discrete Fourier transforms, with the names of `torch.fft`.

    X[k] = Σⱼ x[j] · exp(-2πi·jk / n)        forward; the inverse has the opposite sign and is divided by n

Three rows implement all of it: complex to complex, real to complex, complex to real. The last two are each other's
transpose, except for the frequencies that a one-sided spectrum omits: for a real signal these mirror others, which
therefore count twice. The rest of the file maps PyTorch's eighteen functions to calls of these rows.
"""

from __future__ import annotations

from operator import index as as_int

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import op
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_of_64_bits, no_dimensions, wrap_dim
from tensorgrad.ops.create import finish
from tensorgrad.ops.rearrange import constant_pad_nd, roll
from tensorgrad.ops.shape import ints
from tensorgrad.rows.strides import of_copy
from tensorgrad.tensor import Tensor

# --- the rows ------------------------------------------------------------------------------------------------------


def _complex_like(x) -> np.dtype:
    return np.dtype("D" if x.dtype.char == "d" else "F")


def _resized_shape(x, dim: int, size: int) -> tuple:
    return (*x.shape[:dim], size, *x.shape[dim + 1 :])


def _laid_out(x, dim, last: tuple = (), strides: tuple = ()):
    """The dimensions of a transform, outermost first in memory: those transformed are innermost, in the order of the
    strides, which are the input's unless given."""
    strides = strides or x.strides
    others = [d for d in range(x.ndim) if d not in dim and d not in last]
    return [*sorted(others, key=lambda d: -strides[d]), *sorted(dim, key=lambda d: -strides[d]), *last]


def _real_laid_out(x, dim, normalization, onesided, forward):
    """The same of a transform of real numbers. PyTorch transforms several dimensions to a full spectrum as complex
    numbers, in a copy, and to the conjugate of half of one (`ihfftn`) in two steps, the last dimension first."""
    if len(dim) == 1 or (onesided and forward):
        return _laid_out(x, dim[:-1], dim[-1:])
    if not onesided:
        return _laid_out(x, dim, strides=of_copy(x.shape, tuple([s // x.itemsize for s in x.strides])))
    first = _laid_out(x, (), dim[-1:])
    return [*(d for d in first if d not in dim[:-1]), *(d for d in first if d in dim[:-1])]


def _half_laid_out(x, dim, *rest):
    return _laid_out(x, dim[:-1], dim[-1:])


fft_c2c = op("fft_c2c(input, dim: any, normalization: int, forward: bool)", "fft.c2c", batch="leading", linear="input",
             strides=lambda x, dim, *rest: _laid_out(x, dim),
             input=lambda g, dim, normalization, forward: fft_c2c(g, dim, normalization, not forward),
             shape=lambda x, dim, normalization, forward: x.shape, where=())  # fmt: skip
fft_r2c = op("fft_r2c(input, dim: any, normalization: int, onesided: bool, forward: bool)", "fft.r2c", linear="input",
             batch="leading", strides=_real_laid_out,
             input=lambda g, input_shape, dim, normalization, onesided, forward:
             _r2c_gradient(g, input_shape[dim[-1]], dim, normalization, onesided, forward),
             shape=lambda x, dim, normalization, onesided, forward:
             (_resized_shape(x, dim[-1], x.shape[dim[-1]] // 2 + 1) if onesided else x.shape, _complex_like(x)),
             where=())  # fmt: skip
fft_c2r = op("fft_c2r(input, dim: any, normalization: int, size: int, forward: bool)", "fft.c2r", linear="input",
             batch="leading", strides=_half_laid_out,
             input=lambda g, dim, normalization, size, forward:
             weigh_half(fft_r2c(g, dim, normalization, True, not forward), dim[-1], size, 2.0),
             shape=lambda x, dim, normalization, size, forward:
             (_resized_shape(x, dim[-1], size), np.dtype(x.dtype.char.lower())), where=())  # fmt: skip
weigh_half = op("fft_weigh_half(input, dim: int, size: int, factor: float)", "fft.weigh_half", linear="input",
                batch="leading",
                input=lambda g, dim, size, factor: weigh_half(g, dim, size, factor),
                shape=lambda x, dim, size, factor: x.shape, where=(),
                doc="Scales the frequencies of a one-sided spectrum that count twice.")  # fmt: skip


def _r2c_gradient(g, n: int, dim, normalization: int, onesided: bool, forward: bool):
    """The adjoint transform, of which the engine takes the real part if needed."""
    if not onesided:
        return fft_c2c(g, dim, normalization, not forward)
    return fft_c2r(weigh_half(g, dim[-1], n, 0.5), dim, normalization, n, not forward)


# --- arguments -----------------------------------------------------------------------------------------------------


def floating(input: Tensor) -> Tensor:
    """Returns the input with integers cast to the default float dtype. Raises: RuntimeError for half precision."""
    if input._array.dtype.char in "fdFD":
        return input
    dtype = input.dtype
    if dtype.category < dtypes.FLOATING:
        return input.to(dtypes.DEFAULT.floating)
    raise RuntimeError(f"Unsupported dtype {scalar_type(dtype)}")


def _input(name: str, input) -> Tensor:
    if not isinstance(input, Tensor):
        raise TypeError(f"fft_{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return floating(input)


def _argument(name: str, argument: str, value) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"fft_{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    found = as_int(value)
    check_of_64_bits(found, argument)
    return found


def normalization_of(name: str, norm, forward: bool) -> int:
    """Returns 0: no scaling, 1: divide by the square root of the number of points, 2: divide by that number."""
    if norm is None:
        return 0 if forward else 2
    if not isinstance(norm, str):
        raise TypeError(f"fft_{name}(): argument 'norm' must be str, not {type(norm).__name__}")
    if norm == "ortho":
        return 1
    if norm not in ("backward", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return 2 if (norm == "forward") is forward else 0


def _axis(name: str, input: Tensor, n, dim) -> tuple[list, tuple]:
    """Returns the size (None: unchanged) and dimension of a one-dimensional transform, as lists."""
    ndim = input._array.ndim
    if dim.__class__ is not int:
        dim = _argument(name, "dim", dim)
    if not ndim:
        _check_dimensions(input, (dim,))
    return [None if n is None else _argument(name, "n", n)], (wrap_dim(dim, ndim),)


def _axes(input: Tensor, s, dim) -> tuple[list, tuple]:
    """Returns the sizes (None: unchanged) and dimensions of a multidimensional transform; by default all dimensions."""
    ndim = input.ndim
    sizes = None if s is None else [None if n == -1 else n for n in ints(s)]
    if dim is not None:
        given = ints(dim)
        _check_dimensions(input, given)
        dims = tuple(wrap_dim(d, ndim) for d in given)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif sizes is None:
        dims = tuple(range(ndim))
    elif len(sizes) > ndim:
        raise RuntimeError(f"Got shape with {len(sizes)} values but input tensor only has {ndim} dimensions.")
    else:
        dims = tuple(range(ndim - len(sizes), ndim))
    return sizes or [None] * len(dims), dims


def _two_axes(name: str, dim):
    """Returns `dim` for `_axes`. Raises: TypeError for None, which the two-dimensional functions do not accept."""
    if dim is None:
        raise TypeError(f"fft_{name}(): argument 'dim' must be tuple of ints, not NoneType")
    return dim


def _check_dimensions(input: Tensor, dims: tuple) -> None:
    if dims and not input.ndim:
        raise no_dimensions(dims[0])


def _resized(input: Tensor, sizes: list, dims: tuple) -> Tensor:
    """Truncates the input, or pads it with zeros, to the sizes. Raises: RuntimeError for a size below 1."""
    pad, shape = None, input._array.shape
    for n, d in zip(sizes, dims, strict=True):
        have = shape[d]
        n = have if n is None else n
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        if n < have:
            input = input.narrow(d, 0, n)
        elif n > have:
            pad = pad or [0] * (2 * input.ndim)
            pad[-2 * d - 1] = n - have  # padding is ordered from the last dimension, as (before, after)
    return constant_pad_nd(input, pad) if pad else input


# --- the three kinds of transform ----------------------------------------------------------------------------------


def _full(name: str, input: Tensor, sizes, dims, norm, forward: bool, out) -> Tensor:
    """Transforms complex or real input to a complex spectrum of all frequencies."""
    if out is not None and not out.dtype.is_complex:
        called = "fftn" if name == "ifftn" else name
        raise RuntimeError(f"{called} expects a complex output tensor, but got {scalar_type(out)}")
    input, normalization = _resized(input, sizes, dims), normalization_of(name, norm, forward)
    if not dims or input._array.dtype.kind == "c":
        return fft_c2c(_as_complex(input), dims, normalization, forward, out=out)
    return fft_r2c(input, dims, normalization, False, forward, out=out)


def _half(name: str, input: Tensor, sizes, dims, norm, forward: bool, out) -> Tensor:
    """Transforms real input to the nonnegative frequencies of the last dimension."""
    _check_real(name, input)
    if out is not None and not out.dtype.is_complex:
        raise RuntimeError(f"{name} expects a complex output tensor, but got {scalar_type(out)}")
    _check_any(name, dims)
    input, normalization = _resized(input, sizes, dims), normalization_of(name, norm, forward)
    return fft_r2c(input, dims, normalization, True, forward, out=out)


def _real(name: str, input: Tensor, sizes, dims, norm, forward: bool, out) -> Tensor:
    """Transforms such a half spectrum back to real values."""
    if out is not None and not out.dtype.is_floating_point:
        raise RuntimeError(f"{name} expects a floating point output tensor, but got {scalar_type(out)}")
    _check_any(name, dims)
    size = sizes[-1]
    size = 2 * (input._array.shape[dims[-1]] - 1) if size is None else size
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    input = _as_complex(_resized(input, [*sizes[:-1], size // 2 + 1], dims))
    return fft_c2r(input, dims, normalization_of(name, norm, forward), size, forward, out=out)


def _as_complex(input: Tensor) -> Tensor:
    return input if input._array.dtype.kind == "c" else input.to(input.dtype.to_complex())


def _check_real(name: str, input: Tensor) -> None:
    if input._array.dtype.kind == "c":
        kind = "real-valued" if name.endswith("n") else "real"
        raise RuntimeError(f"{name} expects a {kind} input tensor, but got {scalar_type(input)}")


def _check_any(name: str, dims: tuple) -> None:
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


# --- one dimension ---------------------------------------------------------------------------------------------------


def fft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes the Fourier transform over dimension `dim`: X[k] = Σⱼ x[j]·exp(-2πi·jk/n) for k = 0 … n - 1.

    The input is truncated or zero-padded to size `n`. `norm` is "backward" (no scaling, the default), "ortho" (divide
    by √n) or "forward" (divide by n). The result is complex, of the input's precision.

    Raises:
        RuntimeError: If n < 1, `norm` is unknown, or the input is in half precision.
        IndexError: If `dim` is out of range.

    >>> torch.fft.fft(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor([2.+0.j, 1.+1.j, 0.+0.j, 1.-1.j])
    """
    input = _input("fft", input)
    return _full("fft", input, *_axis("fft", input, n, dim), norm, True, out)


def ifft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `fft`: x[j] = 1/n · Σₖ X[k]·exp(2πi·jk/n).

    `norm` is "backward" (divide by n, the default), "ortho" (by √n) or "forward" (no scaling); other arguments and
    errors are those of `fft`.

    >>> torch.fft.ifft(torch.tensor([2, 2j]))
    tensor([1.+1.j, 1.-1.j])
    """
    input = _input("ifft", input)
    return _full("ifft", input, *_axis("ifft", input, n, dim), norm, False, out)


def rfft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes `fft` of real input without the negative frequencies, which are the conjugates of the positive ones.

    The result has n // 2 + 1 points.

    Raises:
        RuntimeError: If the input is complex; also as for `fft`.

    >>> torch.fft.rfft(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor([2.+0.j, 1.+1.j, 0.+0.j])
    """
    input = _input("rfft", input)
    return _half("rfft", input, *_axis("rfft", input, n, dim), norm, True, out)


def irfft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `rfft`: `n` real values from the n // 2 + 1 nonnegative frequencies of their spectrum.

    By default the result has an even size; specify `n` if the original size was odd. Errors are those of `fft`.

    >>> torch.fft.irfft(torch.fft.rfft(torch.tensor([1.0, 2.0, 3.0])), n=3)
    tensor([1., 2., 3.])
    """
    input = _input("irfft", input)
    return _real("irfft", input, *_axis("irfft", input, n, dim), norm, False, out)


def hfft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes `fft` of a Hermitian signal, x[-j] = conj(x[j]), given by its first half (j ≥ 0): its spectrum is real.

    `n` is the size of the result, by default 2·(size - 1). Other arguments and errors are those of `fft`.

    >>> torch.fft.hfft(torch.tensor([1.0, 2.0, 1.0]))
    tensor([ 6.,  0., -2.,  0.])
    """
    input = _input("hfft", input)
    return _real("hfft", input, *_axis("hfft", input, n, dim), norm, True, out)


def ihfft(input: Tensor, n=None, dim=-1, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `hfft`: the first half of a Hermitian signal, x[-j] = conj(x[j]), from its real spectrum.

    The result has n // 2 + 1 points.

    Raises:
        RuntimeError: If the input is complex; also as for `fft`.

    >>> torch.fft.ihfft(torch.tensor([6.0, 0.0, -2.0, 0.0])).real
    tensor([1., 2., 1.])
    """
    input = _input("ihfft", input)
    return _half("ihfft", input, *_axis("ihfft", input, n, dim), norm, False, out)


# --- several dimensions ----------------------------------------------------------------------------------------------


def fftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes `fft` over each of the dimensions `dim`: by default all or, if `s` is given, the last `len(s)`.

    These dimensions are truncated or zero-padded to the sizes `s` (-1: unchanged); `norm` is that of `fft`, with the
    product of the sizes for n.

    Raises:
        RuntimeError: If a dimension is repeated, `s` and `dim` do not match; also as for `fft`.

    >>> torch.fft.fftn(torch.ones(2, 2))
    tensor([[4.+0.j, 0.+0.j],
            [0.+0.j, 0.+0.j]])
    """
    input = _input("fftn", input)
    return _full("fftn", input, *_axes(input, s, dim), norm, True, out)


def ifftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `fftn`.

    >>> torch.fft.ifftn(torch.tensor([[4.0, 0.0], [0.0, 0.0]])).real
    tensor([[1., 1.],
            [1., 1.]])
    """
    input = _input("ifftn", input)
    return _full("ifftn", input, *_axes(input, s, dim), norm, False, out)


def rfftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes `fftn` of real input without the negative frequencies of the last transformed dimension.

    Raises:
        RuntimeError: If the input is complex or there is no dimension; also as for `fftn`.

    >>> torch.fft.rfftn(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """
    input = _input("rfftn", input)
    return _half("rfftn", input, *_axes(input, s, dim), norm, True, out)


def irfftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `rfftn`: real values from a spectrum without the last dimension's negative frequencies.

    Unless `s` is given, that dimension gets 2·(size - 1) points. Errors are those of `fftn`.

    >>> x = torch.arange(6.0).view(2, 3)
    >>> torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape)
    tensor([[0., 1., 2.],
            [3., 4., 5.]])
    """
    input = _input("irfftn", input)
    return _real("irfftn", input, *_axes(input, s, dim), norm, False, out)


def hfftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes `fftn` of a signal that is Hermitian in all dimensions together, given by half of the last one.

    The result is real; its last dimension gets 2·(size - 1) points unless `s` is given. Errors are those of `fftn`.

    >>> torch.fft.hfftn(torch.ones(2, 2))
    tensor([[4., 0.],
            [0., 0.]])
    """
    input = _input("hfftn", input)
    return _real("hfftn", input, *_axes(input, s, dim), norm, True, out)


def ihfftn(input: Tensor, s=None, dim=None, norm=None, *, out=None) -> Tensor:
    """Computes the inverse of `hfftn`.

    Raises:
        RuntimeError: If the input is complex or there is no dimension; also as for `fftn`.

    >>> torch.fft.ihfftn(torch.tensor([[4.0, 0.0], [0.0, 0.0]])).real
    tensor([[1., 1.],
            [1., 1.]])
    """
    input = _input("ihfftn", input)
    return _half("ihfftn", input, *_axes(input, s, dim), norm, False, out)


def fft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `fftn` over two dimensions, by default the last two.

    >>> torch.fft.fft2(torch.ones(2, 2)).real
    tensor([[4., 0.],
            [0., 0.]])
    """
    return fftn(input, s, _two_axes("fft2", dim), norm, out=out)


def ifft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `ifftn` over two dimensions, by default the last two.

    >>> torch.fft.ifft2(torch.ones(2, 2)).real
    tensor([[1., 0.],
            [0., 0.]])
    """
    return ifftn(input, s, _two_axes("ifft2", dim), norm, out=out)


def rfft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `rfftn` over two dimensions, by default the last two.

    >>> torch.fft.rfft2(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """
    return rfftn(input, s, _two_axes("rfft2", dim), norm, out=out)


def irfft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `irfftn` over two dimensions, by default the last two.

    >>> torch.fft.irfft2(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    """
    return irfftn(input, s, _two_axes("irfft2", dim), norm, out=out)


def hfft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `hfftn` over two dimensions, by default the last two.

    >>> torch.fft.hfft2(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    """
    return hfftn(input, s, _two_axes("hfft2", dim), norm, out=out)


def ihfft2(input: Tensor, s=None, dim=(-2, -1), norm=None, *, out=None) -> Tensor:
    """Computes `ihfftn` over two dimensions, by default the last two.

    >>> torch.fft.ihfft2(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """
    return ihfftn(input, s, _two_axes("ihfft2", dim), norm, out=out)


# --- frequencies -----------------------------------------------------------------------------------------------------


def _frequencies(name: str, steps, n: int, d: float, dtype, device, requires_grad, out) -> Tensor:
    """Divides `steps`, an array of integers, by n·d."""
    dtype = out.dtype if out is not None else dtype or dtypes.DEFAULT.floating
    if dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if dtype.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{scalar_type(dtype)}'")
    with np.errstate(all="ignore"):  # a spacing of 0 gives infinite frequencies
        unit = np.float64(1) / np.float64(n * d)
        made = finish((steps * unit).astype(dtype.numpy), requires_grad, out.device if out is not None else device)
    return store_out(name, out, made, quietly=True)


def fftfreq(n: int, d: float = 1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the frequencies of `fft`'s result, in cycles per unit, for `n` points `d` apart: 0, 1/nd, …, …, -1/nd.

    The dtype is the default dtype unless given.

    Raises:
        RuntimeError: If the dtype is not floating-point or complex, or n < 0.

    >>> torch.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    n = _argument("fftfreq", "n", n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    steps = np.roll(np.arange(-(n // 2), (n + 1) // 2), -(n // 2))
    return _frequencies("fftfreq", steps, n, d, dtype, device, requires_grad, out)


def rfftfreq(n: int, d: float = 1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """Returns the frequencies of `rfft`'s result, in cycles per unit, for `n` points `d` apart: 0, 1/nd, …, up to 1/2d.

    The dtype is the default dtype unless given.

    Raises:
        RuntimeError: If the dtype is not floating-point or complex.

    >>> torch.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    n = _argument("rfftfreq", "n", n)
    return _frequencies("rfftfreq", np.arange(int(n / 2) + 1), n, d, dtype, device, requires_grad, out)


def _shifted(input: Tensor, dim, half) -> Tensor:
    dims = tuple(range(input.ndim)) if dim is None else ints(dim)
    _check_dimensions(input, dims)
    return roll(input, tuple(half(input._array.shape[wrap_dim(d, input.ndim)]) for d in dims), dims)


def fftshift(input: Tensor, dim=None) -> Tensor:
    """Moves frequency 0 of a spectrum to the middle, by swapping the halves of each of the dimensions `dim` (all).

    >>> torch.fft.fftshift(torch.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return _shifted(input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim=None) -> Tensor:
    """Inverts `fftshift`: moves frequency 0 from the middle to the front of each of the dimensions `dim` (all).

    >>> torch.fft.ifftshift(torch.tensor([-1, 0, 1]))
    tensor([ 0,  1, -1])
    """
    return _shifted(input, dim, lambda n: (n + 1) // 2)
