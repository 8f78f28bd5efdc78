"""Random tensors: PyTorch's numbers from PyTorch's seeds (see `generator.py` and `kernels/array/sample.py`).

The stream runs on the host; a tensor for another device is drawn there and copied. On meta nothing is drawn.
"""

from __future__ import annotations

import numpy as np

from tensorgrad import dtypes
from tensorgrad.generator import Generator, default_generator
from tensorgrad.kernels.array import sample as kernels
from tensorgrad.kernels.array.matmul import NAMES, broadcast_lead, check_expands
from tensorgrad.ops import create, inplace
from tensorgrad.ops.kinds import composite, op
from tensorgrad.storage.stubs import STORAGES, storage_class
from tensorgrad.tensor import Tensor, share, wrap

# --- arguments -----------------------------------------------------------------------------------------------------


def stream(generator, name: str) -> Generator:
    """The generator to draw from. Raises: TypeError for what is none."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator


def _shape(name: str, size: tuple) -> tuple[int, ...]:
    """The shape asked for. Raises: TypeError for what is no size, RuntimeError for a negative one."""
    if len(size) == 1 and isinstance(size[0], tuple | list):
        size = tuple(size[0])
    for n in size:
        if not hasattr(n, "__index__"):
            raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(n).__name__}")
    return create.resolve_shape(size)


def _named_size(name: str, size: tuple, keywords: dict) -> tuple:
    """`size` by position or by keyword. Raises: TypeError if it is missing, or for an unknown keyword."""
    if "size" in keywords:
        size = (keywords.pop("size"),)
    elif not size:
        raise TypeError(f"{name}() received an invalid combination of arguments - got (), but expected a size")
    if keywords:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(keywords))}'")
    return _shape(name, size)


def spoken(dtype: np.dtype) -> str:
    return NAMES[dtype.name][0]


def _floating(dtype: np.dtype, kernel: str, complex_too: bool = True) -> None:
    """Raises: NotImplementedError for a dtype that the sampler cannot fill."""
    if dtype.kind in "biu" or (dtype.kind == "c" and not complex_too):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{spoken(dtype)}'")


# --- new tensors ---------------------------------------------------------------------------------------------------


def _made(name, sampler, shape, dtype, args, generator, device, requires_grad, out=None) -> Tensor:
    """A new tensor (or `out`) of `shape` filled by a sampler."""
    gen = stream(generator, name)
    if out is not None:
        return _into(out, name, sampler, shape, dtype, args, gen)
    device = create.resolve_device(device)
    if device.type == "meta":
        made = wrap(storage_class(device).empty(shape, dtype.numpy, device))
        made._requires_grad = bool(requires_grad)
        return made
    if requires_grad and dtype.category < dtypes.FLOATING:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    return create.finish(sampler(gen, shape, dtype.numpy, *args), requires_grad, device)


def _into(out, name, sampler, shape, dtype, args, gen) -> Tensor:
    """Draws in the dtype of `out` and stores there."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {dtype} does not match dtype of out parameter ({out.dtype})")
    from tensorgrad.ops import slowpath

    slowpath._store(out, create.finish(sampler(gen, shape, out.dtype.numpy, *args), False, out.device))
    return out


def _chosen(dtype, out, default):
    """The dtype of the result, and what to check `out` against."""
    return default if dtype is None and out is None else dtype if dtype is not None else out.dtype


@composite("function")
def rand(
    *size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **kw
) -> Tensor:
    """Uniform numbers in [0, 1). Raises: NotImplementedError for an integer dtype.

    >>> import tensorgrad as torch
    >>> _ = torch.manual_seed(0)
    >>> torch.rand(3)
    tensor([0.4963, 0.7682, 0.0885])
    """
    dtype = _chosen(dtype, out, dtypes.DEFAULT.floating)
    _floating(dtype.numpy, "check_uniform_bounds")
    shape = _named_size("rand", size, kw)
    return _made("rand", kernels.uniform, shape, dtype, (), generator, device, requires_grad, out)


@composite("function")
def randn(
    *size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **kw
) -> Tensor:
    """Normal numbers with mean 0 and variance 1. Raises: NotImplementedError for an integer dtype.

    >>> import tensorgrad as torch
    >>> _ = torch.manual_seed(0)
    >>> torch.randn(3)
    tensor([ 1.5410, -0.2934, -2.1788])
    """
    dtype = _chosen(dtype, out, dtypes.DEFAULT.floating)
    _floating(dtype.numpy, "normal_kernel_cpu")
    shape = _named_size("randn", size, kw)
    return _made("randn", kernels.normal, shape, dtype, (), generator, device, requires_grad, out)


def _bounds(name: str, args: tuple, low, high, size):
    """`(low, high, size)` from `(high, size)` or `(low, high, size)`. Raises: TypeError for anything else."""
    args = list(args)
    if size is None and args and isinstance(args[-1], tuple | list):
        size = args.pop()
    if size is None:
        if len(args) >= 2:
            raise TypeError(
                f"{name}(): argument 'size' (position {len(args)}) must be tuple of ints, not {type(args[-1]).__name__}"
            )
        raise TypeError(f"{name}() received an invalid combination of arguments: expected (high, size) or (low, high, size)")
    return *_range(name, args, low, high), size


def _range(name: str, args: list, low, high):
    if high is None and args:
        high = args.pop()
    if args:
        low = args.pop()
    if args or high is None:
        raise TypeError(f"{name}() received an invalid combination of arguments: expected (high, ...) or (low, high, ...)")
    values = []
    for word, value, position in (("low", low, 1), ("high", high, 1 if low == 0 else 2)):
        value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name}(): argument '{word}' (position {position}) must be int, not {type(value).__name__}")
        values.append(value.__index__())
    return values


@composite("function")
def randint(
    *args, low=0, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
) -> Tensor:  # fmt: skip
    """Integers in [low, high): `randint(high, size)` or `randint(low, high, size)`; int64 unless `dtype` says otherwise.

    Raises: RuntimeError if the range is empty or does not fit the dtype.

    >>> import tensorgrad as torch
    >>> _ = torch.manual_seed(0)
    >>> torch.randint(10, (5,))
    tensor([4, 9, 3, 0, 3])
    """
    low, high, size = _bounds("randint", args, low, high, size)
    dtype = _chosen(dtype, out, dtypes.int64)
    shape = _shape("randint", (size,))
    return _made("randint", kernels.randint, shape, dtype, (low, high), generator, device, requires_grad, out)


@composite("function")
def randperm(
    n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """A random permutation of 0 .. n - 1, int64 unless `dtype` says otherwise.

    Raises: RuntimeError if `n` is negative or does not fit the dtype.

    >>> import tensorgrad as torch
    >>> _ = torch.manual_seed(0)
    >>> torch.randperm(4)
    tensor([2, 0, 1, 3])
    """
    from tensorgrad.kernels.array.permutation import randperm as permutation

    if not hasattr(n, "__index__"):
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    dtype = _chosen(dtype, out, dtypes.int64)
    if dtype is dtypes.bool or dtype.is_complex:
        raise NotImplementedError(f"\"randperm\" not implemented for '{spoken(dtype.numpy)}'")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    most = 2 ** kernels.DIGITS[dtype.name] if dtype.is_floating_point else dtypes.iinfo(dtype).max
    if n > most + (1 if dtype.is_floating_point else 0):
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")

    def sampler(gen, shape, np_dtype):
        return permutation(gen, n.__index__(), np_dtype)

    return _made("randperm", sampler, (n.__index__(),), dtype, (), generator, device, requires_grad, out)


def _like(name: str, sampler, check):
    def like(input, *args, generator=None, dtype=None, device=None, requires_grad=False, memory_format=None) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        dtype = dtype or input.dtype
        check(dtype.numpy)
        gen = stream(generator, name)
        device = create.resolve_device(device or input.device)
        if device.type == "meta":
            return create.empty_like(input, dtype=dtype, device=device, requires_grad=requires_grad)
        array = _empty_like(input._array, dtype.numpy, memory_format)
        return create.finish(kernels.fill(array, sampler, gen, *args), requires_grad, device)

    return like


def _empty_like(array, dtype: np.dtype, memory_format=None) -> np.ndarray:
    """Host memory of the layout that PyTorch gives to a tensor made like another."""
    if array.flags.c_contiguous or 0 in array.strides or (memory_format is not None and "contiguous" in str(memory_format)):
        return np.empty(array.shape, dtype)
    order = sorted(range(array.ndim), key=lambda d: -abs(array.strides[d]))
    inner = np.empty([array.shape[d] for d in order], dtype)
    return inner.transpose([order.index(d) for d in range(array.ndim)])


_rand_like = _like("rand_like", kernels.uniform, lambda d: _floating(d, "check_uniform_bounds"))
_randn_like = _like("randn_like", kernels.normal, lambda d: _floating(d, "normal_kernel_cpu"))
_randint_like = _like("randint_like", kernels.randint, lambda d: None)


@composite("function")
def rand_like(
    input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None
) -> Tensor:
    """`rand` with the shape, layout, dtype and device of `input`."""
    return _rand_like(
        input, generator=generator, dtype=dtype, device=device, requires_grad=requires_grad, memory_format=memory_format
    )


@composite("function")
def randn_like(
    input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None
) -> Tensor:
    """`randn` with the shape, layout, dtype and device of `input`."""
    return _randn_like(
        input, generator=generator, dtype=dtype, device=device, requires_grad=requires_grad, memory_format=memory_format
    )


@composite("function")
def randint_like(
    input, *args, low=0, high=None, generator=None, dtype=None, layout=None, device=None, requires_grad=False,
    memory_format=None,
) -> Tensor:  # fmt: skip
    """`randint(low, high)` with the shape, layout, dtype and device of `input`."""
    low, high = _range("randint_like", list(args), low, high)
    return _randint_like(
        input, low, high, generator=generator, dtype=dtype, device=device, requires_grad=requires_grad,
        memory_format=memory_format,
    )  # fmt: skip


# --- in place ------------------------------------------------------------------------------------------------------


def _zero(g):
    return g.new_zeros(g.shape)


def _filler(name: str, sampler, backward: str):
    """A function that overwrites a tensor with samples; recorded, it cuts the old value's gradient off."""

    def kernel(xp, x, args, gen):
        filled = kernels.fill(_empty_like(x, x.dtype), sampler, gen, *args)
        return filled if xp is np else xp.asarray(filled)

    row = op(f"{name}_fill(input, args: any, generator: any)", kernel, input=_zero, where="", backward_name=backward,
             shape=lambda x, args, gen: x.shape)  # fmt: skip

    def fill(self: Tensor, args: tuple, generator) -> Tensor:
        gen = stream(generator, f"{name}_")
        if inplace._tracked(self, ()) or self._storage.version is None:
            return inplace.replace(self, row, (args, gen), {})
        inplace.check_no_overlap(self)
        array = self._array
        if array.__class__ is np.ndarray:
            kernels.fill(array, sampler, gen, *args)
        elif self.device.type != "meta":
            storage = self._storage
            host = kernels.fill(_empty_like(array, array.dtype), sampler, gen, *args)
            storage.write(array, storage.from_host(host, self.device))
        self._storage.bump()
        return self

    return fill


_uniform = _filler("uniform", kernels.uniform, "UniformBackward0")
_normal = _filler("normal", kernels.normal, "NormalBackward0")
_random = _filler("random", kernels.random, "RandomBackward0")
_randint = _filler("random_between", kernels.randint, "RandomBackward0")
_coins = _filler("bernoulli", kernels.bernoulli, "BernoulliBackward0")
_exponential = _filler("exponential", kernels.exponential, "ExponentialBackward0")
_cauchy = _filler("cauchy", kernels.cauchy, "CauchyBackward0")
_log_normal = _filler("log_normal", kernels.log_normal, "LogNormalBackward0")
_geometric = _filler("geometric", kernels.geometric, "GeometricBackward0")


def _from_to(name: str, args: tuple, keywords: dict, first, last):
    """The parameters that PyTorch calls `from` and `to` (no names for Python parameters)."""
    values = {"from": first, "to": last}
    if name == "random_" and len(args) == 1:  # one number is the end
        args = (0, *args)
    values.update(zip(("from", "to"), args, strict=False))
    for word, value in keywords.items():
        if word not in values:
            raise TypeError(f"{name}() got an unexpected keyword argument '{word}'")
        values[word] = value
    return values["from"], values["to"]


@composite("method")
def uniform_(self: Tensor, *args, generator=None, **keywords) -> Tensor:
    """Overwrites the tensor with uniform numbers in [from, to), by default [0, 1).

    Raises: RuntimeError for bounds in the wrong order or beyond the dtype.
    """
    low, high = _from_to("uniform_", args, keywords, 0.0, 1.0)
    dtype = self._array.dtype
    _floating(dtype, "check_uniform_bounds")
    info = dtypes.finfo(self.dtype)
    for word, value in (("from", low), ("to", high)):
        if not info.min <= value <= info.max:
            raise RuntimeError(f"{word} is out of bounds for {NAMES[info.dtype][1]}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > info.max:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{NAMES[info.dtype][0]}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )
    return _uniform(self, (low, high), generator)


def _positive(op_name: str, name: str, value, least_excluded=True) -> None:
    if not (value > 0 if least_excluded else value >= 0):
        raise RuntimeError(f"{op_name} expects {name} {'>' if least_excluded else '>='} 0.0, but found {_of(name)}{value:g}")


def _of(name: str) -> str:
    return "std " if name == "std" else f"{name}="


@composite("method")
def normal_(self: Tensor, mean=0.0, std=1.0, *, generator=None) -> Tensor:
    """Overwrites the tensor with normal numbers. Raises: RuntimeError for a negative `std`."""
    _positive("normal", "std", std, False)
    _floating(self._array.dtype, "normal_kernel_cpu")
    return _normal(self, (mean, std), generator)


@composite("method")
def random_(self: Tensor, *args, generator=None, **keywords) -> Tensor:
    """Overwrites the tensor with integers: `random_()` over all that the dtype holds, `random_(to)`, `random_(from, to)`.

    Raises: RuntimeError if the range is empty or does not fit the dtype.
    """
    if self.is_complex():
        raise NotImplementedError(f"\"random_kernel_cpu\" not implemented for '{spoken(self._array.dtype)}'")
    if not args and not keywords:
        return _random(self, (), generator)
    low, high = _from_to("random_", args, keywords, 0, None)
    return _randint(self, (low, high), generator)


@composite("method")
def exponential_(self: Tensor, lambd=1.0, *, generator=None) -> Tensor:
    """Overwrites the tensor with exponential numbers of rate `lambd`. Raises: RuntimeError unless that is positive."""
    _continuous("Exponential", self, 0)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return _exponential(self, (lambd,), generator)


def _continuous(name: str, tensor: Tensor, tongue: int) -> None:
    if not tensor.dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {NAMES[tensor.dtype.name][tongue]}"
        )


@composite("method")
def cauchy_(self: Tensor, median=0.0, sigma=1.0, *, generator=None) -> Tensor:
    """Overwrites the tensor with Cauchy numbers. Raises: RuntimeError unless `sigma` is positive."""
    _positive("cauchy_", "sigma", sigma)
    _continuous("Cauchy", self, 1)
    return _cauchy(self, (median, sigma), generator)


@composite("method")
def log_normal_(self: Tensor, mean=1.0, std=2.0, *, generator=None) -> Tensor:
    """Overwrites the tensor with exponentials of normal numbers. Raises: RuntimeError unless `std` is positive."""
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _floating(self._array.dtype, "log_normal_cpu", complex_too=False)
    return _log_normal(self, (mean, std), generator)


@composite("method")
def geometric_(self: Tensor, p, *, generator=None) -> Tensor:
    """Overwrites the tensor with the number of tosses up to the first head. Raises: RuntimeError unless 0 < p < 1."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if self.dtype is dtypes.bool or self.is_complex():
        raise NotImplementedError(f"\"geometric_cpu\" not implemented for '{spoken(self._array.dtype)}'")
    return _geometric(self, (p,), generator)


# --- samples whose parameters are tensors --------------------------------------------------------------------------


def _on_host(kernel):
    """A kernel over host arrays as one for any array module."""

    def run(xp, *values):
        if xp is np:
            return kernel(*values)
        storage = next(STORAGES[v.__class__] for v in values if v.__class__ in STORAGES)
        return xp.asarray(kernel(*(storage.to_host(v) if v.__class__ is storage.array_type else v for v in values)))

    return run


_bernoulli = op("bernoulli_sample(input, generator: any)",
                _on_host(lambda p, gen: kernels.bernoulli_tensor(gen, p, None)),
                input=_zero, where="", backward_name="BernoulliBackward0",
                shape=lambda p, gen: (p.shape, p.dtype))  # fmt: skip


@composite()
def bernoulli(input: Tensor, p=None, *, generator=None, out=None) -> Tensor:
    """1 with the probability that each element states (or with probability `p`), else 0.

    Raises: RuntimeError for a probability outside [0, 1].

    >>> import tensorgrad as torch
    >>> torch.bernoulli(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    gen = stream(generator, "bernoulli")
    if p is not None:
        result = bernoulli_(create.empty_like(input), p, generator=gen)
    else:
        _check_probabilities(input)
        result = _bernoulli(input, gen)
    if out is None:
        return result
    from tensorgrad.ops import slowpath

    slowpath._store(out, result)
    return out


def _check_probabilities(p: Tensor) -> None:
    if not p.dtype.is_floating_point:
        raise NotImplementedError(f"\"bernoulli_tensor_cpu_p_\" not implemented for '{spoken(p._array.dtype)}'")


_bernoulli_over = op("bernoulli_over(input, p, generator: any)",
                     _on_host(lambda x, p, gen: kernels.bernoulli_tensor(gen, np.broadcast_to(p, x.shape), x.dtype)),
                     input=_zero, p=lambda g, p_shape: g.new_zeros(p_shape), where="", backward_name="BernoulliBackward0",
                     shape=lambda x, p, gen: (x.shape, x.dtype))  # fmt: skip


@composite("method")
def bernoulli_(self: Tensor, p=0.5, *, generator=None) -> Tensor:
    """Overwrites the tensor with 1 with probability `p` (a number, or a tensor that expands to this one), else 0."""
    gen = stream(generator, "bernoulli_")
    if isinstance(p, Tensor):
        _check_probabilities(p)
        check_expands(p._array.shape, self._array.shape)
        if inplace._tracked(self, (p,)):
            return inplace.replace(self, _bernoulli_over, (p, gen), {})
        return self.copy_(_bernoulli_over(self, p, gen))
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if self.is_complex():
        raise NotImplementedError(f"\"bernoulli_scalar_cpu_\" not implemented for '{spoken(self._array.dtype)}'")
    return _coins(self, (p,), gen)


_normal_both = op("normal_both(mean, std, generator: any)",
                  _on_host(lambda mean, std, gen: kernels.normal_tensor(gen, mean, std)),
                  mean=lambda g, mean_shape: g.new_zeros(mean_shape), std=lambda g, std_shape: g.new_zeros(std_shape),
                  where="", backward_name="NormalBackward3",
                  shape=lambda mean, std, gen: (np.broadcast_shapes(mean.shape, std.shape), mean.dtype))  # fmt: skip
_normal_mean = op("normal_mean(mean, std: float, generator: any)",
                  _on_host(lambda mean, std, gen: kernels.normal_tensor(gen, mean, std)),
                  mean=_zero, where="", backward_name="NormalBackward1",
                  shape=lambda mean, std, gen: (mean.shape, mean.dtype))  # fmt: skip
_normal_std = op("normal_std(std, mean: float, generator: any)",
                 _on_host(lambda std, mean, gen: kernels.normal_tensor(gen, mean, std)),
                 std=_zero, where="", backward_name="NormalBackward2",
                 shape=lambda std, mean, gen: (std.shape, std.dtype))  # fmt: skip


@composite("function")
def normal(
    mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
) -> Tensor:  # fmt: skip
    """Normal numbers: means and deviations from tensors that broadcast, or one of each with a `size`.

    Raises: RuntimeError for a negative deviation, TypeError if neither a tensor nor a `size` is given.

    >>> import tensorgrad as torch
    >>> torch.normal(torch.tensor([1.0, 2.0]), 0.0)
    tensor([1., 2.])
    """
    gen = stream(generator, "normal")
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments - expected tensors, or a size")
        _positive("normal", "std", std, False)
        dtype = _chosen(dtype, out, dtypes.DEFAULT.floating)
        _floating(dtype.numpy, "normal_kernel_cpu")
        return _made("normal", kernels.normal, _shape("normal", (size,)), dtype, (mean, std), gen, device, requires_grad, out)
    for value in (mean, std):
        if isinstance(value, Tensor):
            _floating(value._array.dtype, "normal_kernel_cpu")
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        broadcast_lead(mean._array.shape, std._array.shape)
        result = _normal_both(mean, std, gen)
    else:
        result = _normal_mean(mean, std, gen) if isinstance(mean, Tensor) else _normal_std(std, mean, gen)
    if out is None:
        return result
    from tensorgrad.ops import slowpath

    slowpath._store(out, result)
    return out


def _poisson_kernel(rate, gen):
    from tensorgrad.kernels.array.rejection import poisson as draw

    if rate.dtype.name not in ("float32", "float64"):
        return kernels.to_dtype(draw(gen, rate.astype(np.float32)), rate.dtype)
    return draw(gen, rate)


_poisson = op("poisson_sample(input, generator: any)", _on_host(_poisson_kernel), input=_zero, where="",
              backward_name="PoissonBackward0", shape=lambda x, gen: (x.shape, x.dtype))  # fmt: skip


@composite("function")
def poisson(input: Tensor, generator=None) -> Tensor:
    """Poisson numbers whose rates are the elements of `input`. Raises: RuntimeError for a negative rate."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"poisson_cpu\" not implemented for '{spoken(input._array.dtype)}'")
    if not input.is_meta and bool((input._array < 0).any()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return _poisson(input, stream(generator, "poisson"))


def _binomial_kernel(count, prob, gen):
    from tensorgrad.kernels.array.rejection import binomial as draw

    count, prob = np.broadcast_arrays(count, prob)
    if count.dtype.name not in ("float32", "float64"):
        return kernels.to_dtype(draw(gen, count.astype(np.float32), prob.astype(np.float32)), count.dtype)
    return draw(gen, count, prob.astype(count.dtype, copy=False))


_binomial = op("binomial_sample(count, prob, generator: any)", _on_host(_binomial_kernel), where="",
               count=lambda g, count_shape: g.new_zeros(count_shape), prob=lambda g, prob_shape: g.new_zeros(prob_shape),
               shape=lambda n, p, gen: (np.broadcast_shapes(n.shape, p.shape), n.dtype),
               backward_name="BinomialBackward0")  # fmt: skip


@composite("function")
def binomial(count: Tensor, prob: Tensor, generator=None) -> Tensor:
    """The number of heads in `count` tosses with probability `prob`, elementwise with broadcasting."""
    if not count.dtype.is_floating_point:
        raise RuntimeError("binomial only supports floating-point dtypes for count, got: " + spoken(count._array.dtype))
    broadcast_lead(count._array.shape, prob._array.shape)
    return _binomial(count, prob, stream(generator, "binomial"))


@composite()
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None, out=None) -> Tensor:
    """Indices (int64) drawn by the weights in `input`, (n,) or (m, n) with a row per distribution.

    Raises: RuntimeError for weights that are negative, not finite or all zero, or for more samples than there are
    weights when none may come twice.

    >>> import tensorgrad as torch
    >>> torch.multinomial(torch.tensor([0.0, 3.0]), 2, replacement=True)
    tensor([1, 1])
    """
    array = input._array
    if array.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {spoken(array.dtype)}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > array.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    storage = input._storage
    if input.is_meta:
        made = wrap(storage.empty((*array.shape[:-1], num_samples), np.dtype("int64"), input.device))
    else:
        drawn = kernels.multinomial(stream(generator, "multinomial"), storage.to_host(array), num_samples, replacement)
        made = create.finish(drawn, False, input.device)
    if out is None:
        return made
    from tensorgrad.ops import slowpath

    slowpath._store(out, made)
    return out


def mask_like(input: Tensor, shape: tuple | None, sampler, *args) -> Tensor:
    """Noise for `input`, drawn from the default stream in its layout (or contiguous, if a `shape` is given)."""
    array = input._array
    storage = input._storage.__class__
    if storage.device_type == "meta":
        made = storage.empty(array.shape if shape is None else shape, array.dtype, input.device)
    elif shape is not None or array.flags.c_contiguous:
        made = sampler(default_generator, array.shape if shape is None else shape, array.dtype, *args)
    else:
        made = kernels.fill(_empty_like(array, array.dtype), sampler, default_generator, *args)
    if storage.device_type not in ("cpu", "meta"):
        made = storage.from_host(made, input.device)
    return share(made, storage.of(made))
