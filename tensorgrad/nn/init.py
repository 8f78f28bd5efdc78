"""Initial values for parameters. Random initializers draw the same values as PyTorch from the same seed.

All functions fill the given tensor in place, outside autograd, and return it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.modes import no_grad
from tensorgrad.overriding.function_modes import seen_by_modes
from tensorgrad.tensor import Tensor

_LINEAR = ("linear", *(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3)))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor on the standard deviation that keeps a signal's variance through `nonlinearity`.

    Args:
        nonlinearity: `linear`, `conv2d`, ..., `sigmoid`, `tanh`, `relu`, `leaky_relu` or `selu`.
        param: the negative slope of `leaky_relu` (default 0.01).

    Raises:
        ValueError: the name is unknown, or the slope is not a number.

    >>> from tensorgrad import nn
    >>> nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity in _LINEAR or nonlinearity == "sigmoid":
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


@seen_by_modes
@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fills `tensor` with values from the uniform distribution on [a, b).

    Args:
        tensor: what is filled, of any shape.
        a, b: the bounds.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.uniform_(torch.empty(3), -1, 1)
    tensor([-0.0075,  0.5364, -0.8230])
    """
    return tensor.uniform_(a, b, generator=generator)


@seen_by_modes
@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fills `tensor` with values from the normal distribution N(mean, std²).

    Args:
        tensor: what is filled, of any shape.
        mean, std: numbers.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.normal_(torch.empty(3), 0, 0.01)
    tensor([ 0.0154, -0.0029, -0.0218])
    """
    return tensor.normal_(mean, std, generator=generator)


@seen_by_modes
@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills `tensor` with `val`.

    Args:
        tensor: what is filled, of any shape.
        val: a number.

    >>> torch.nn.init.constant_(torch.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return tensor.fill_(val)


@seen_by_modes
@no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Fills `tensor` with ones.

    >>> torch.nn.init.ones_(torch.empty(2))
    tensor([1., 1.])
    """
    return tensor.fill_(1.0)


@seen_by_modes
@no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Fills `tensor` with zeros.

    Args:
        tensor: what is filled, of any shape.

    >>> torch.nn.init.zeros_(torch.empty(2))
    tensor([0., 0.])
    """
    return tensor.zero_()


@seen_by_modes
@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Makes a matrix the identity.

    Raises:
        ValueError: `tensor` does not have 2 dimensions.

    >>> torch.nn.init.eye_(torch.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(torch.eye(*tensor.shape, device=tensor.device))


@seen_by_modes
@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Makes a convolution's weight the identity: as many channels as possible pass through unchanged.

    Args:
        tensor: (out channels, in channels / groups, *kernel), with one to three kernel dimensions.
        groups: the convolution's groups.

    In each group, weight[i, i] is 1 at the center of the kernel; all other values are 0.

    Raises:
        ValueError: `tensor` has another number of dimensions, or `groups` does not divide the out channels.

    >>> torch.nn.init.dirac_(torch.empty(2, 2, 3)).flatten(1)
    tensor([[0., 1., 0., 0., 0., 0.],
            [0., 0., 0., 0., 1., 0.]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    if tensor.is_meta:
        return tensor
    per_group = tensor.shape[0] // groups
    center = tuple(size // 2 for size in tensor.shape[2:])
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(per_group, tensor.shape[1])):
            tensor[(group * per_group + channel, channel, *center)] = 1
    return tensor


@seen_by_modes
@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fills `tensor` with values from N(mean, std²), truncated to [a, b].

    Args:
        tensor: a tensor of any shape.
        mean, std: of the distribution before truncation.
        a, b: the bounds, in the units of the values, not of `std`.
        generator: the random number generator; `None` is the default one.

    Values are drawn by rejection sampling: from the normal distribution if [a, b] contains more than 30 % of it, and
    otherwise uniformly from [a, b], accepted with a probability proportional to the density.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.trunc_normal_(torch.empty(4), std=0.02, a=-0.03, b=0.03)
    tensor([-0.0217, -0.0059,  0.0081,  0.0114])
    """
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
            "incorrect.",
            stacklevel=3,
        )

    def below(x: float) -> float:  # the cumulative distribution function of N(0, 1)
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if below((b - mean) / std) - below((a - mean) / std) > 0.3:
        # Bounds are rounded to the tensor's dtype: a float32 slightly outside a float64 bound is not redrawn.
        low, high = tensor.new_tensor(a, device="cpu").item(), tensor.new_tensor(b, device="cpu").item()
        result = tensor.normal_(mean, std, generator=generator)
        while (outside := (result < low) | (result > high)).any():
            result = torch.where(outside, torch.empty_like(result).normal_(mean, std, generator=generator), result)
        return tensor if result is tensor else tensor.copy_(result)

    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def rejected(candidates: Tensor) -> Tensor:
        log_density = ((candidates - mean) / std) ** 2 * -0.5 - peak
        return torch.empty_like(tensor).uniform_(generator=generator).log() > log_density

    result = tensor.uniform_(a, b, generator=generator)
    pending = rejected(result)
    while pending.any():
        candidates = torch.empty_like(tensor).uniform_(a, b, generator=generator)
        result = torch.where(pending, candidates, result)
        pending = pending & rejected(candidates)
    return tensor if result is tensor else tensor.copy_(result)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Returns the number of inputs per output, and of outputs per input."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    modes = ["fan_in", "fan_out"]
    mode = mode.lower()
    if mode not in modes:
        raise ValueError(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode)]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills `tensor` uniformly from ±gain·√(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Args:
        tensor: (out, in, *window); fan_in is in · the window's size, fan_out is out · the window's size.
        gain: a factor that depends on the nonlinearity that follows; see `calculate_gain`.
        generator: the random number generator; `None` is the default one.

    Raises:
        ValueError: `tensor` has fewer than 2 dimensions.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.xavier_uniform_(torch.empty(2, 3))
    tensor([[-0.0082,  0.5876, -0.9016],
            [-0.8062, -0.4219,  0.2938]])
    """
    std = gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills `tensor` from N(0, gain²·2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Arguments and exceptions are those of `xavier_uniform_`.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.xavier_normal_(torch.empty(2, 3))
    tensor([[ 0.9746, -0.1856, -1.3780],
            [ 0.3595, -0.6859, -0.8845]])
    """
    std = gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fills `tensor` uniformly from ±gain·√(3 / fan) (He et al., 2015).

    Args:
        tensor: (out, in, *window); fan_in is in · the window's size, fan_out is out · the window's size.
        a: the negative slope of a `leaky_relu` that follows.
        mode: `fan_in` keeps the variance of the forward pass, `fan_out` that of the backward pass.
        nonlinearity: the nonlinearity that follows, by its name in `calculate_gain`.
        generator: the random number generator; `None` is the default one.

    Raises:
        ValueError: `tensor` has fewer than 2 dimensions, or `mode` or `nonlinearity` is unknown.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.kaiming_uniform_(torch.empty(2, 3), nonlinearity="relu")
    tensor([[-0.0106,  0.7586, -1.1640],
            [-1.0408, -0.5447,  0.3792]])
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fills `tensor` from N(0, gain² / fan) (He et al., 2015).

    Arguments and exceptions are those of `kaiming_uniform_`.

    >>> _ = torch.manual_seed(0)
    >>> torch.nn.init.kaiming_normal_(torch.empty(2, 3), mode="fan_out", nonlinearity="relu")
    tensor([[ 1.5410, -0.2934, -2.1788],
            [ 0.5684, -1.0845, -1.3986]])
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Makes `tensor`, viewed as a matrix (size(0), rest), (semi-)orthogonal (Saxe et al., 2013).

    Args:
        tensor: what is filled, of at least 2 dimensions.
        gain: a factor; the singular values are equal to it.

    Raises:
        ValueError: `tensor` has fewer than 2 dimensions.

    >>> w = torch.nn.init.orthogonal_(torch.empty(3, 3))
    >>> torch.allclose(w @ w.T, torch.eye(3), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with torch.no_grad():
        flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        q, r = torch.linalg.qr(flat.t() if rows < columns else flat)
        q = q * torch.diag(r, 0).sign()  # makes the factorization unique and so the distribution uniform
        return tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)


@seen_by_modes
@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fills a matrix from N(0, std²) and sets a fraction of each column to zero (Martens, 2010).

    Args:
        tensor: (rows, columns).
        sparsity: the fraction, between 0 and 1; the number of zeros is rounded up.
        std: the standard deviation of the other elements.
        generator: the generator of their values. The positions of the zeros come from the default generator.

    Raises:
        ValueError: `tensor` does not have 2 dimensions.

    >>> _ = torch.manual_seed(0)
    >>> w = torch.nn.init.sparse_(torch.empty(4, 3), sparsity=0.5)
    >>> (w == 0).sum(0)
    tensor([2, 2, 2])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    if tensor.is_meta:
        return tensor
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        tensor[torch.randperm(rows)[:zeros], column] = 0
    return tensor


def _deprecated(new: Callable, shape: tuple[int, ...] = (2, 3), more: str = "") -> Callable:
    """Returns the function under its old name; `shape` and `more` are arguments of its docstring's example."""

    def old(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"`nn.init.{old.__name__}` is now deprecated in favor of `nn.init.{new.__name__}`.",
            FutureWarning,
            stacklevel=2,
        )
        return new(*args, **kwargs)

    old.__name__ = new.__name__[:-1]
    old.__doc__ = f"""Deprecated alias of :func:`{new.__name__}`: emits a FutureWarning and does the same.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.nn.init.{old.__name__}(torch.empty{shape}{more}).shape
    torch.Size({list(shape)})
    """
    return old


uniform, normal, eye = map(_deprecated, (uniform_, normal_, eye_))
constant, dirac = _deprecated(constant_, more=", 0.5"), _deprecated(dirac_, (2, 2, 3))
xavier_uniform, xavier_normal = map(_deprecated, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_deprecated, (kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = _deprecated(orthogonal_), _deprecated(sparse_, more=", 0.5")
