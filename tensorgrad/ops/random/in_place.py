"""In-place random sampling, and sampling with tensors of parameters.

In the graph, all of these have the gradient 0: the result does not depend smoothly on the parameters or the old values.
"""

from __future__ import annotations

import math

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch import inplace
from tensorgrad.dispatch.kinds import composite, op
from tensorgrad.dispatch.no_derivative import no_derivative
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import F32, c_type, scalar_type
from tensorgrad.errors import check_numbers, invalid_combination, warn, wrong_argument
from tensorgrad.kernels.array import matmul as matmul_kernels
from tensorgrad.kernels.array import sample as kernels
from tensorgrad.layouts import contiguous_format
from tensorgrad.ops import create
from tensorgrad.ops.random import sample as sampling
from tensorgrad.ops.random.sample import (
    check_floating,
    check_shape,
    chosen_dtype,
    empty_like,
    sampled,
    stream_for,
)
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.storage.sparse import CompressedArray
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor

# --- in place ------------------------------------------------------------------------------------------------------


def _filler(name: str, sampler, backward: str):
    """Makes a function that overwrites a tensor with samples; in the graph it cuts off the old value's gradient.

    `sampler` is the name of a function in kernels/array/sample.py.
    """

    def kernel(xp, x, args, gen):
        filled = kernels.lying_as(x) if xp is np else empty_like(x, x.dtype, None, STORAGES[x.__class__].device_of(x))
        sampling.fill(filled, getattr(kernels, sampler), gen, *args)
        return filled

    row = op(
        f"{name}_fill(input, args: any, generator: any)", kernel, kind="sample", wrt=("input",), where=(),
        backward_name=backward,
    )  # fmt: skip

    def fill(self: Tensor, args: tuple, generator) -> Tensor:
        if DISPATCH and LOCAL.dispatch_modes:
            method = getattr(Tensor, f"{name.removesuffix('_between')}_")
            asked = DISPATCH[0](method, (self, *args), {} if generator is None else {"generator": generator})
            if asked is not NotImplemented:
                return asked
        gen = stream_for(self, generator, f"{name}_")
        if inplace._tracked(self, ()) or self._storage.version is None:
            return inplace.replace(self, row, (args, gen), {})
        inplace.check_no_overlap(self)
        array = self._array
        if isinstance(array, CompressedArray):
            array = array.values
        if array.__class__ is np.ndarray or self.device.type != "meta":
            sampling.fill(array, getattr(kernels, sampler), gen, *args)
        self._storage.bump()
        return self

    return fill


_uniform = _filler("uniform", "uniform", "UniformBackward0")
_normal = _filler("normal", "normal", "NormalBackward0")
_random = _filler("random", "random", "RandomBackward0")
_randint = _filler("random_between", "randint", "RandomBackward0")
_bernoulli_in_place = _filler("bernoulli", "bernoulli", "BernoulliBackward0")
_exponential = _filler("exponential", "exponential", "ExponentialBackward0")
_cauchy = _filler("cauchy", "cauchy", "CauchyBackward0")
_log_normal = _filler("log_normal", "log_normal", "LogNormalBackward0")
_geometric = _filler("geometric", "geometric", "GeometricBackward0")


def _from_to(name: str, args: tuple, keywords: dict, first, last):
    """Returns the parameters that PyTorch calls `from` and `to`, which cannot both be Python parameter names."""
    values = {"from": first, "to": last}
    if name == "random_" and len(args) == 1:  # a single argument is the end
        args = (0, *args)
    values.update(zip(("from", "to"), args, strict=False))
    for word, value in keywords.items():
        if word not in values:
            raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
        values[word] = value
    return values["from"], values["to"]


@composite("method")
def uniform_(self: Tensor, *args, generator=None, **keywords) -> Tensor:
    """Fills the tensor with samples from the uniform distribution on [from, to), by default [0, 1).

    Raises:
        RuntimeError: If the bounds are in the wrong order or out of the dtype's range.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).uniform_(-1, 1)
    tensor([-0.0075,  0.5364, -0.8230])
    """
    dtype = self._array.dtype
    if not args and not keywords and dtype is F32:
        return _uniform(self, (0.0, 1.0), generator)
    low, high = _from_to("uniform_", args, keywords, 0.0, 1.0)
    check_numbers("uniform_", from_=low, to=high)
    check_floating(dtype, "check_uniform_bounds")
    info = dtypes.finfo(self.dtype)
    for word, value in (("from", low), ("to", high)):
        if not info.min <= value <= info.max:
            raise RuntimeError(f"{word} is out of bounds for {dtypes.C_TYPES[info.dtype]}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > info.max:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{dtypes.SCALAR_TYPES[info.dtype]}>::max(), but found "
            f"to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )
    return _uniform(self, (low, high), generator)


def _positive(op_name: str, name: str, value, least_excluded=True) -> None:
    if not (value > 0 if least_excluded else value >= 0):
        raise RuntimeError(
            f"{op_name} expects {name} {'>' if least_excluded else '>='} 0.0, but found {_of(name)}{value:g}"
        )


def _of(name: str) -> str:
    return "std " if name == "std" else f"{name}="


@composite("method")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator=None) -> Tensor:
    """Fills the tensor with samples from a normal distribution.

    Args:
        mean, std: numbers.

    Raises:
        RuntimeError: If `std` is negative.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).normal_(mean=10.0, std=0.1)
    tensor([10.1541,  9.9707,  9.7821])
    """
    _positive("normal", "std", std, False)
    check_floating(self._array.dtype, "normal_kernel_cpu")
    return _normal(self, (mean, std), generator)


@composite("method")
def random_(self: Tensor, *args, generator=None, **keywords) -> Tensor:
    """Fills the tensor with random integers: `random_()` (the dtype's range), `random_(to)`, or `random_(from, to)`.

    Raises:
        RuntimeError: If the range is empty or does not fit the dtype.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(5, dtype=torch.int64).random_(1, 7)
    tensor([3, 4, 6, 1, 2])
    """
    if self.is_complex() or self.dtype in dtypes.BITS:
        raise NotImplementedError(f"\"random_kernel_cpu\" not implemented for '{scalar_type(self)}'")
    if not args and not keywords:
        return _random(self, (), generator)
    low, high = _from_to("random_", args, keywords, 0, None)
    check_numbers("random_", from_=low, to=low if high is None else high, wanted="int")
    if self.is_floating_point() and high is not None and low < high:
        info = dtypes.finfo(self.dtype)
        digits = 1 - round(math.log2(info.eps))
        for word, value in (("from", low), ("to - 1", high - 1)):
            if 2**digits < abs(value) <= info.max:
                warn(
                    f"{word} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                    f"{c_type(self)} can support discrete uniform distribution only within this range. This warning "
                    "will become an error in version 1.7 release, please fix the code in advance"
                )
    return _randint(self, (low, high), generator)


@composite("method")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator=None) -> Tensor:
    """Fills the tensor with samples from an exponential distribution with rate `lambd`.

    Raises:
        RuntimeError: If `lambd` is not positive.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).exponential_(0.5)
    tensor([7.0167, 2.4608, 1.2301])
    """
    _continuous("Exponential", self, dtypes.SCALAR_TYPES)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return _exponential(self, (lambd,), generator)


def _continuous(name: str, tensor: Tensor, names: dict[str, str]) -> None:
    if not tensor.dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {names[tensor.dtype.name]}"
        )


@composite("method")
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator=None) -> Tensor:
    """Fills the tensor with samples from a Cauchy distribution.

    Raises:
        RuntimeError: If `sigma` is not positive.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).cauchy_()
    tensor([10.5977,  0.7648, -0.1283])
    """
    _positive("cauchy_", "sigma", sigma)
    _continuous("Cauchy", self, dtypes.C_TYPES)
    return _cauchy(self, (median, sigma), generator)


@composite("method")
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator=None) -> Tensor:
    """Fills the tensor with samples from a log-normal distribution: exponentials of normal samples.

    Raises:
        RuntimeError: If `std` is not positive.

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(3).log_normal_(0.0, 0.5)
    tensor([2.1608, 0.8635, 0.3364])
    """
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    check_floating(self._array.dtype, "log_normal_cpu", complex_too=False)
    return _log_normal(self, (mean, std), generator)


@composite("method")
def geometric_(self: Tensor, p: float, *, generator=None) -> Tensor:
    """Fills the tensor with samples from a geometric distribution: the number of trials up to the first success.

    Raises:
        RuntimeError: If `p` is not in (0, 1).

    >>> _ = torch.manual_seed(0)
    >>> torch.empty(5).geometric_(0.5)
    tensor([1., 1., 2., 1., 1.])
    """
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if self.dtype is dtypes.bool or self.is_complex():
        raise NotImplementedError(f"\"geometric_cpu\" not implemented for '{scalar_type(self)}'")
    return _geometric(self, (p,), generator)


# --- samples whose parameters are tensors --------------------------------------------------------------------------


def on_host(kernel):
    """Makes a kernel over host arrays usable with any array module."""

    def run(xp, *values):
        if xp is np:
            return kernel(*values)
        *given, gen = values
        storage = next(STORAGES[v.__class__] for v in given if v.__class__ in STORAGES)
        there = (storage.to_host(v) if v.__class__ is storage.array_type else v for v in given)
        return xp.asarray(kernel(*there, sampling.host_stream(gen)))

    return run


_bernoulli = op("bernoulli_sample(input, generator: any)",
                on_host(lambda p, gen: kernels.bernoulli_tensor(gen, p, None)),
                kind="sample", wrt=("input",), where=(), backward_name="BernoulliBackward0")  # fmt: skip


@composite()
def bernoulli(input: Tensor, p=None, *, generator=None, out=None) -> Tensor:
    """Samples 1 with the probability given by each element (or by `p`), else 0.

    Raises:
        RuntimeError: If a probability is outside [0, 1].

    >>> torch.bernoulli(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    gen = stream_for(input, generator, "bernoulli")
    if p is not None:
        check_numbers("bernoulli", first=2, p=p)
        result = bernoulli_(create.empty_like(input, memory_format=contiguous_format), p, generator=gen)
    else:
        _check_probabilities(input)
        result = _bernoulli(input, gen)
    if out is not None:
        result = result.to(out.dtype)
    return store_out("bernoulli", out, result, (input,), pointwise=True, quietly=True)


def _check_probabilities(p: Tensor) -> None:
    if not p.dtype.is_floating_point:
        raise NotImplementedError(f"\"bernoulli_tensor_cpu_p_\" not implemented for '{scalar_type(p)}'")


_bernoulli_over = op("bernoulli_over(input, p, generator: any)",
                     on_host(lambda x, p, gen: kernels.bernoulli_over(gen, x, p)),
                     kind="sample", wrt=("input", "p"), where=(), backward_name="BernoulliBackward0")  # fmt: skip


@composite("method")
def bernoulli_(self: Tensor, p=0.5, *, generator=None) -> Tensor:
    """Fills the tensor with 1 with probability `p` (a number, or a tensor that expands to this one), else 0."""
    gen = stream_for(self, generator, "bernoulli_")
    if isinstance(p, Tensor):
        _check_probabilities(p)
        matmul_kernels.check_expands(p._array.shape, self._array.shape)
        if inplace._tracked(self, (p,)):
            return inplace.replace(self, _bernoulli_over, (p, gen), {})
        return self.copy_(_bernoulli_over(self, p, gen))
    check_numbers("bernoulli_", p=p)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if self.is_complex():
        raise NotImplementedError(f"\"bernoulli_scalar_cpu_\" not implemented for '{scalar_type(self)}'")
    return _bernoulli_in_place(self, (p,), gen)


_normal_both = op("normal_both(mean, std, generator: any)",
                  on_host(lambda mean, std, gen: kernels.normal_tensor(gen, mean, std)),
                  kind="sample", wrt=("mean", "std"), where=(), backward_name="NormalBackward3")  # fmt: skip
_normal_mean = op("normal_mean(mean, std: float, generator: any)",
                  on_host(lambda mean, std, gen: kernels.normal_tensor(gen, mean, std)),
                  kind="sample", wrt=("mean",), where=(), backward_name="NormalBackward1")  # fmt: skip
_normal_std = op("normal_std(std, mean: float, generator: any)",
                 on_host(lambda std, mean, gen: kernels.normal_tensor(gen, mean, std)),
                 kind="sample", wrt=("std",), where=(), backward_name="NormalBackward2")  # fmt: skip


@composite("function")
def normal(
    mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
) -> Tensor:  # fmt: skip
    """Samples from normal distributions with tensors of means and deviations, broadcast, or scalars and a `size`.

    Args:
        mean, std: tensors that broadcast, or numbers.
        size: the shape of the result, if both are numbers.

    Raises:
        RuntimeError: If a deviation is negative.
        TypeError: If neither a tensor nor a `size` is given.

    >>> torch.normal(torch.tensor([1.0, 2.0]), 0.0)
    tensor([1., 2.])
    """
    check_numbers("normal", mean=mean, std=std)
    if size is not None:
        if not isinstance(size, tuple | list):
            raise wrong_argument(size, "size", "tuple of ints")
        mean, std = (v.item() if isinstance(v, Tensor) and not v.ndim else v for v in (mean, std))
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise invalid_combination("normal", "expected tensors, or a size")
        _positive("normal", "std", std, False)
        dtype = chosen_dtype(dtype, out, dtypes.DEFAULT.floating)
        check_floating(dtype.numpy, "normal_kernel_cpu")
        made = sampled(
            "normal",
            kernels.normal,
            check_shape("normal", (size,)),
            dtype,
            (mean, std),
            generator,
            device,
            requires_grad,
            out,
        )
        return create.pinned(made) if pin_memory else made
    if any(v is not None for v in (size, dtype, layout, device)) or requires_grad or pin_memory:
        raise invalid_combination("normal", "with tensors of means or deviations, size, dtype and the like are theirs")
    if not isinstance(std, Tensor):
        _positive("normal", "std", std, False)
    for value in (mean, std):
        if isinstance(value, Tensor):
            check_floating(value._array.dtype, "normal_kernel_cpu")
    if out is not None:  # samples are drawn in its dtype
        check_floating(out._array.dtype, "normal_kernel_cpu")
        mean, std = (v.to(out.dtype) if isinstance(v, Tensor) else v for v in (mean, std))
    gen = stream_for(mean if isinstance(mean, Tensor) else std, generator, "normal")
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        matmul_kernels.broadcast_lead(mean._array.shape, std._array.shape)
        result = _normal_both(mean, std, gen)
    else:
        result = _normal_mean(mean, std, gen) if isinstance(mean, Tensor) else _normal_std(std, mean, gen)
    return store_out("normal", out, result)


def _poisson_kernel(rate, gen):
    from tensorgrad.kernels.array.rejection import poisson as draw

    if rate.dtype.name not in ("float32", "float64"):
        return kernels.to_dtype(draw(gen, rate.astype(np.float32)), rate.dtype)
    return draw(gen, rate)


_poisson = op("poisson_sample(input, generator: any)", on_host(_poisson_kernel), kind="sample", wrt=("input",),
              where=(), backward_name="PoissonBackward0")  # fmt: skip


@composite("function")
def poisson(input: Tensor, generator=None) -> Tensor:
    """Samples from Poisson distributions whose rates are the elements of `input`.

    Raises:
        RuntimeError: If a rate is negative.

    >>> _ = torch.manual_seed(0)
    >>> torch.poisson(torch.tensor([0.5, 4.0, 100.0]))
    tensor([ 2.,  5., 94.])
    """
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"poisson_cpu\" not implemented for '{scalar_type(input)}'")
    if input._array.__class__ is np.ndarray and bool((input._array < 0).any()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return _poisson(input, stream_for(input, generator, "poisson"))


def _binomial_kernel(count, prob, gen):
    from tensorgrad.kernels.array.rejection import binomial as draw

    count, prob = np.broadcast_arrays(count, prob)
    return draw(gen, count, prob.astype(count.dtype, copy=False))


_binomial = op("binomial_sample(count, prob, generator: any)", on_host(_binomial_kernel), kind="sample", where=(),
               count=no_derivative("binomial"), prob=no_derivative("binomial"),
               backward_name="BinomialBackward0")  # fmt: skip


@composite("function")
def binomial(count: Tensor, prob: Tensor, generator=None) -> Tensor:
    """Samples the number of successes in `count` trials with probability `prob`, elementwise with broadcasting.

    >>> _ = torch.manual_seed(0)
    >>> torch.binomial(torch.tensor([10.0, 100.0]), torch.tensor([0.5, 0.5]))
    tensor([ 7., 51.])
    """
    if not count.dtype.is_floating_point:
        raise RuntimeError("binomial only supports floating-point dtypes for count, got: " + scalar_type(count))
    if count._array.dtype.itemsize == 2:
        raise NotImplementedError(f"\"binomial_cpu\" not implemented for '{scalar_type(count)}'")
    matmul_kernels.broadcast_lead(count._array.shape, prob._array.shape)
    return _binomial(count, prob, stream_for(count, generator, "binomial"))
