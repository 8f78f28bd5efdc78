"""Random tensors: PyTorch's values from PyTorch's seeds (see `random/generator.py` and `kernels/array/sample.py`).

Each GPU has its own generator, which samples on the device (`kernels/cuda/random.py`). For other devices, samples are
drawn on the host and copied. On meta, nothing is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import dtypes
from tensorgrad.dispatch.kinds import composite
from tensorgrad.dispatch.out import store_out
from tensorgrad.dtypes import scalar_type
from tensorgrad.errors import check_flag, check_numbers, check_of_64_bits, integers_given
from tensorgrad.kernels.array import sample as kernels
from tensorgrad.layouts import AnyLayout, made_in_order, memory_strides, strided
from tensorgrad.ops import create
from tensorgrad.ops.sparse_zeros import sparse_like
from tensorgrad.random import philox
from tensorgrad.random.generator import Generator, default_generator
from tensorgrad.rows.kernel_tables import device_kernel
from tensorgrad.rows.strides import order_of_copy
from tensorgrad.rows.switches import SLOW
from tensorgrad.storage.stubs import STORAGES, storage_class
from tensorgrad.tensor import Tensor, share, wrap
from tensorgrad.transforms.batch import innermost_level
from tensorgrad.transforms.transform import beside_ops

# --- arguments -----------------------------------------------------------------------------------------------------


def stream(generator, name: str, device=None) -> Generator:
    """Returns the generator to draw from for a tensor on `device` (None: on the host, or on meta).

    Raises: TypeError if `generator` is not a generator, RuntimeError if it is of another device.
    """
    if generator is None:
        if device is None or device.type != "cuda":
            return default_generator
        return philox.default(philox.index_of(device))
    if not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    wanted, found = "cpu" if device is None else device.type, generator.device.type
    if wanted != found and "cuda" in (wanted, found) and wanted != "meta":
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")
    if wanted == "cuda" and generator.device.index != philox.index_of(device):
        raise RuntimeError(
            f"Expected a 'cuda:{philox.index_of(device)}' generator device but found '{generator.device}'"
        )
    return generator


def stream_for(tensor: Tensor, generator, name: str) -> Generator:
    """Returns the generator to draw from for a tensor's device."""
    if tensor._array.__class__ is np.ndarray:
        return stream(generator, name)
    return stream(generator, name, tensor.device)


def drawn(sampler, gen: Generator, shape, dtype: np.dtype, args: tuple, device, **to):
    """Draws samples as an array on `device`: with the device's own sampler of that name, else on the host, copied."""
    storage = storage_class(device)
    own = device_kernel(sampler.__name__, storage)
    made = NotImplemented if own is None else own(gen, shape, dtype, *args, **to)
    if made is not NotImplemented:
        return made
    made = storage.from_host(sampler(host_stream(gen), shape, dtype, *args), device)
    if to:
        storage.write(to["out"], made)
    return made


def host_stream(gen: Generator) -> Generator:
    """Returns a generator that the host's samplers can draw from."""
    return gen.host() if isinstance(gen, philox.PhiloxGenerator) else gen


def fill(array, sampler, gen: Generator, *args) -> None:
    """Overwrites an array on any device in place, in memory order."""
    if array.__class__ is np.ndarray:
        kernels.fill(array, sampler, gen, *args)
        return
    storage = STORAGES[array.__class__]
    device = storage.device_of(array)
    there = array.transpose(kernels.memory_order(array))
    if there.flags.c_contiguous:
        drawn(sampler, gen, there.shape, array.dtype, args, device, out=there)
    else:
        storage.write(there, drawn(sampler, gen, there.shape, array.dtype, args, device))


def check_shape(name: str, size: tuple) -> tuple[int, ...]:
    """Returns the requested shape. Raises: TypeError if it is not a shape, RuntimeError if a size is negative."""
    if len(size) == 1 and isinstance(size[0], tuple | list):
        size = tuple(size[0])
    for n in size:
        if n.__class__ is not int and not hasattr(n, "__index__"):
            raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(n).__name__}")
    return create.resolve_shape(size)


def check_floating(dtype: np.dtype, kernel: str, complex_too: bool = True) -> None:
    """Raises: NotImplementedError if the sampler does not support the dtype."""
    if dtype.kind in "biu" or (dtype.kind == "c" and not complex_too):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(dtype)}'")


# --- new tensors ---------------------------------------------------------------------------------------------------


def sampled(name, sampler, shape, dtype, args, generator, device, requires_grad, out=None) -> Tensor:
    """Returns a new tensor of `shape` (or `out`) filled by a sampler."""
    if out is not None:
        return _into(out, name, sampler, shape, dtype, args, generator)
    level = innermost_level() if SLOW else None
    if level is not None:
        given = sampler, dtype, args, generator, device, requires_grad
        return level.drawn(
            lambda lead: sampled(name, given[0], (*lead, *shape), *given[1:]), one_by_one=name == "randperm"
        )
    if SLOW:
        every = (name, sampler, shape, dtype, args, generator, device, requires_grad)
        made = beside_ops(sampled, every, kind="random")
        if made is not NotImplemented:
            return made
    device = create.resolve_device(device)
    if requires_grad:
        check_flag(requires_grad, "requires_grad")
    if requires_grad and dtype.category < dtypes.FLOATING and device.type != "meta":
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if device.type == "cpu":
        made = wrap(sampler(stream(generator, name), shape, dtype.numpy, *args))
    elif device.type == "meta":
        stream(generator, name, device)
        made = wrap(storage_class(device).empty(shape, dtype.numpy, device))
    else:
        made = wrap(drawn(sampler, stream(generator, name, device), shape, dtype.numpy, args, device))
    if requires_grad:
        made._requires_grad = True
    return made


def _into(out, name, sampler, shape, dtype, args, generator) -> Tensor:
    """Draws in the dtype of `out` and stores the samples there."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtype is not out.dtype:
        requested, given = scalar_type(dtype), scalar_type(out)
        raise RuntimeError(f"dtype {requested} does not match dtype of out parameter ({given})")
    device = None if out._array.__class__ is np.ndarray else out.device
    gen, kind = stream(generator, name, device), out.dtype.numpy
    if device is None or device.type == "meta":
        made = create.finish(sampler(gen, shape, kind, *args), False, out.device)
    else:
        made = wrap(drawn(sampler, gen, shape, kind, args, device))
    return store_out(name, out, made, quietly=True)


def chosen_dtype(dtype, out, default):
    """Returns the dtype of the result, and what to check `out` against."""
    return default if dtype is None and out is None else dtype if dtype is not None else out.dtype


@composite("function")
def rand(
    *size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **kw
) -> Tensor:
    """Returns samples from the uniform distribution on [0, 1).

    Raises:
        NotImplementedError: If the dtype is integral.

    >>> _ = torch.manual_seed(0)
    >>> torch.rand(3)
    tensor([0.4963, 0.7682, 0.0885])
    """
    dtype = chosen_dtype(dtype, out, dtypes.DEFAULT.floating)
    check_floating(dtype.numpy, "check_uniform_bounds")
    shape = check_shape("rand", integers_given("rand", "size", size, kw))
    made = sampled("rand", kernels.uniform, shape, dtype, (), generator, device, requires_grad, out)
    return create.pinned(made) if pin_memory else made


@composite("function")
def randn(
    *size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **kw
) -> Tensor:
    """Returns samples from the standard normal distribution, with mean 0 and variance 1.

    Raises:
        NotImplementedError: If the dtype is integral.

    >>> _ = torch.manual_seed(0)
    >>> torch.randn(3)
    tensor([ 1.5410, -0.2934, -2.1788])
    """
    dtype = chosen_dtype(dtype, out, dtypes.DEFAULT.floating)
    check_floating(dtype.numpy, "normal_kernel_cpu")
    shape = check_shape("randn", integers_given("randn", "size", size, kw))
    made = sampled("randn", kernels.normal, shape, dtype, (), generator, device, requires_grad, out)
    return create.pinned(made) if pin_memory else made


def _bounds(name: str, args: tuple, low, high, size):
    """Returns `(low, high, size)` from `(high, size)` or `(low, high, size)`. Raises: TypeError for anything else."""
    bounds = list(args)
    if size is None and bounds and isinstance(bounds[-1], tuple | list):
        size = bounds.pop()
    if size is None:
        if len(bounds) >= 2:
            raise TypeError(
                f"{name}(): argument 'size' (position {len(bounds)}) must be tuple of ints, "
                f"not {type(bounds[-1]).__name__}"
            )
        raise TypeError(
            f"{name}() received an invalid combination of arguments: expected (high, size) or (low, high, size)"
        )
    return *_range(name, bounds, low, high), size


def _range(name: str, args: list, low, high):
    if high is None and args:
        high = args.pop()
    if args:
        low = args.pop()
    if args or high is None:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: expected (high, ...) or (low, high, ...)"
        )
    values = []
    value: Any
    for word, value, position in (("low", low, 1), ("high", high, 1 if low == 0 else 2)):
        value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if not hasattr(value, "__index__") or value.__class__ is bool:
            raise TypeError(
                f"{name}(): argument '{word}' (position {position}) must be int, not {type(value).__name__}"
            )
        values.append(value.__index__())
        check_of_64_bits(values[-1], word)
    return values


@composite("function")
def randint(
    *args, low=0, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
    requires_grad=False, pin_memory=False,
) -> Tensor:  # fmt: skip
    """Returns random integers in [low, high), called as `randint(high, size)` or `randint(low, high, size)`.

    The dtype is int64 unless given.

    Args:
        low: the lowest, 0 if it is not given.
        high: one above the highest.
        size: the shape.

    Raises:
        RuntimeError: If the range is empty or does not fit the dtype.

    >>> _ = torch.manual_seed(0)
    >>> torch.randint(10, (5,))
    tensor([4, 9, 3, 0, 3])
    """
    low, high, size = _bounds("randint", args, low, high, size)
    dtype = chosen_dtype(dtype, out, dtypes.int64)
    if dtype.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    shape = check_shape("randint", (size,))
    made = sampled("randint", kernels.randint, shape, dtype, (low, high), generator, device, requires_grad, out)
    return create.pinned(made) if pin_memory else made


@composite("function")
def randperm(
    n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
) -> Tensor:
    """Returns a random permutation of 0 .. n - 1, int64 unless `dtype` is given.

    Args:
        n: how many numbers.

    Raises:
        RuntimeError: If `n` is negative or does not fit the dtype.

    >>> _ = torch.manual_seed(0)
    >>> torch.randperm(4)
    tensor([0, 1, 3, 2])
    """
    from tensorgrad.kernels.array.permutation import randperm as permutation

    if not hasattr(n, "__index__"):
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    dtype = chosen_dtype(dtype, out, dtypes.int64)
    if dtype is dtypes.bool or dtype.is_complex:
        raise NotImplementedError(f"\"randperm\" not implemented for '{scalar_type(dtype.numpy)}'")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    most = 2 ** kernels.DIGITS[dtype.name] if dtype.is_floating_point else dtypes.iinfo(dtype).max
    if n > most + 1:
        if dtype.is_floating_point:
            raise RuntimeError(f"n cannot be greater than {most + 1} for {scalar_type(dtype.numpy)} type.")
        raise RuntimeError(f"value cannot be converted to type {dtype.name}_t without overflow")

    def randperm(gen, shape, np_dtype):
        return permutation(gen, n.__index__(), np_dtype)

    made = sampled("randperm", randperm, (n.__index__(),), dtype, (), generator, device, requires_grad, out)
    return create.pinned(made) if pin_memory else made


def _drawn_like(input: Tensor, sampler, gen: Generator, args: tuple, dtype, memory_format, device) -> Tensor:
    """Draws samples into new memory in the layout of `input`."""
    if SLOW:
        made = beside_ops(_drawn_like, (input, sampler, gen, args, dtype, memory_format, device), kind="random")
        if made is not NotImplemented:
            return made
    array = empty_like(input._array, dtype.numpy, memory_format, device)
    fill(array, sampler, gen, *args)
    return wrap(array)


def _like(name: str, kernel: str, check):
    def like(
        input, *args, generator=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False,
        memory_format=None
    ) -> Tensor:  # fmt: skip
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        dtype = dtype or input.dtype
        check(dtype.numpy)
        sampler = getattr(kernels, kernel)
        if SLOW and innermost_level() is not None:
            where = input.device if device is None else device
            return sampled(name, sampler, input._array.shape, dtype, args, generator, where, requires_grad)
        device = create.resolve_device(input.device if device is None else device)
        gen = stream(generator, name, device)
        own = STORAGES[input._array.__class__].layout
        if (own if layout is None else layout) is not strided:
            wanted = own if layout is None else layout
            return sparse_like(
                name, input, wanted, dtype, device, requires_grad, lambda values: fill(values, sampler, gen, *args)
            )
        if own is not strided:
            input = create.empty(input.shape, dtype=dtype)
        if device.type == "meta":
            return create.empty_like(
                input, dtype=dtype, device=device, requires_grad=requires_grad, memory_format=memory_format
            )
        made = _drawn_like(input, sampler, gen, args, dtype, memory_format, device)
        if requires_grad:
            made.requires_grad_()
        return made

    return like


def empty_like(array, dtype: np.dtype, memory_format=None, device=None) -> np.ndarray:
    """Allocates memory (`device` None: on the host) in the layout that PyTorch gives to `*_like` tensors."""
    storage = None if device is None or device.type == "cpu" else storage_class(device)

    def make(shape: tuple) -> Any:
        return np.empty(shape, dtype) if storage is None else storage.empty(shape, dtype, device)

    if memory_format is not None and "preserve" not in str(memory_format):
        strides = memory_strides(array.shape, memory_format)
        return made_in_order(make, array.shape, sorted(range(array.ndim), key=lambda d: -strides[d]))
    return make(array.shape) if array.flags.c_contiguous else made_in_order(make, array.shape, order_of_copy(array))


_rand_like = _like("rand_like", "uniform", lambda d: check_floating(d, "check_uniform_bounds"))
_randn_like = _like("randn_like", "normal", lambda d: check_floating(d, "normal_kernel_cpu"))
_randint_like = _like("randint_like", "randint", lambda d: None)


@composite("function")
def rand_like(
    input, *, generator=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False, memory_format=None
) -> Tensor:
    """`rand` with the shape, layout, dtype and device of `input`.

    >>> torch.rand_like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """
    return _rand_like(
        input,
        generator=generator,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
        memory_format=memory_format,
    )


@composite("function")
def randn_like(
    input, *, generator=None, dtype=None, layout: AnyLayout = None, device=None, requires_grad=False, memory_format=None
) -> Tensor:
    """`randn` with the shape, layout, dtype and device of `input`.

    >>> torch.randn_like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """
    return _randn_like(
        input,
        generator=generator,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
        memory_format=memory_format,
    )


@composite("function")
def randint_like(
    input, *args, low=0, high=None, generator=None, dtype=None, layout: AnyLayout = None, device=None,
    requires_grad=False, memory_format=None,
) -> Tensor:  # fmt: skip
    """`randint(low, high)` with the shape, layout, dtype and device of `input`.

    >>> torch.randint_like(torch.zeros(2, 3), 10).dtype
    torch.float32
    """
    low, high = _range("randint_like", list(args), low, high)
    return _randint_like(
        input, low, high, generator=generator, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad,
        memory_format=memory_format,
    )  # fmt: skip


# --- sampling from tensors ------------------------------------------------------------------------------------------


@composite()
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None, out=None) -> Tensor:
    """Samples indices (int64) with the probabilities in `input`, (n,) or (m, n) with one distribution per row.

    The probabilities are weights that need not sum to 1.

    Args:
        num_samples: how many indices of each row; the result is (num_samples,) or (m, num_samples).
        replacement: whether an index may come more than once.

    Raises:
        RuntimeError: If weights are negative, not finite or all zero, there are more than 2²⁴ of them (on the CPU), or
            more samples than weights are requested without replacement.

    >>> torch.multinomial(torch.tensor([0.0, 3.0]), 2, replacement=True)
    tensor([1, 1])
    """
    array = input._array
    if array.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {scalar_type(array)}")
    check_numbers("multinomial", first=2, wanted="int", num_samples=num_samples)
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > array.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if array.shape[-1] > 2**24 and not input.is_cuda:  # PyTorch's CPU version counts categories in float32
        raise RuntimeError("number of categories cannot exceed 2^24")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {scalar_type(out)}")
    storage = input._storage
    level = innermost_level() if SLOW else None
    if level is not None:
        result = _multinomial_of_each(level, input, num_samples, replacement, generator)
    elif input.is_meta:
        result = wrap(storage.empty((*array.shape[:-1], num_samples), np.dtype("int64"), input.device))
    else:
        result = _multinomial(input, stream_for(input, generator, "multinomial"), num_samples, replacement)
    return store_out("multinomial", out, result, quietly=True)


def _multinomial_of_each(level, input: Tensor, num_samples: int, replacement: bool, generator) -> Tensor:
    """Draws for each sample of a batch, or the same for all."""
    level.check_random()
    value, mapped = level.value_of(input)
    if mapped and level.randomness == "same":
        raise RuntimeError(
            "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with "
            "functorch"
        )
    with level.off():
        if level.randomness == "same":
            return multinomial(value, num_samples, replacement, generator=generator)
        value = value if mapped else value.expand(level.size, *value.shape)
        rows = multinomial(value.flatten(0, -2), num_samples, replacement, generator=generator)
        return level.made(rows.reshape(*value.shape[:-1], num_samples), True)


def _multinomial(input: Tensor, gen: Generator, num_samples: int, replacement: bool) -> Tensor:
    if SLOW:
        drawn_by = beside_ops(_multinomial, (input, gen, num_samples, replacement), kind="random")
        if drawn_by is not NotImplemented:
            return drawn_by
    storage = input._storage
    own = device_kernel("multinomial", storage.__class__)
    made = NotImplemented if own is None else own(gen, input._array, num_samples, replacement)
    if made is NotImplemented:
        host = kernels.multinomial(host_stream(gen), storage.to_host(input._array), num_samples, replacement)
        return create.finish(host.astype(np.int64, copy=False), False, input.device)
    return wrap(made)


def mask_like(input: Tensor, shape: tuple | None, sampler, *args) -> Tensor:
    """Draws random values for `input` from the default generator, in its layout (contiguous if a `shape` is given)."""
    array = input._array
    level = innermost_level() if SLOW else None
    if level is not None:
        own, like = array.shape if shape is None else shape, level.value_of(input)[0]
        return level.drawn(lambda lead: mask_like(like, (*lead, *own), sampler, *args))
    if SLOW:
        drawn_by = beside_ops(mask_like, (input, shape, sampler, *args), kind="random")
        if drawn_by is not NotImplemented:
            return drawn_by
    storage = input._storage.__class__
    if storage.device_type == "meta":
        made = storage.empty(array.shape if shape is None else shape, array.dtype, input.device)
    elif storage.device_type != "cpu":
        device = input.device
        if shape is None:
            made = empty_like(array, array.dtype, None, device)
        else:
            made = storage.empty(shape, array.dtype, device)
        fill(made, sampler, stream(None, "dropout", device), *args)
    elif shape is not None or array.flags.c_contiguous:
        made = sampler(default_generator, array.shape if shape is None else shape, array.dtype, *args)
    else:
        made = kernels.fill(empty_like(array, array.dtype), sampler, default_generator, *args)
    return share(made, storage.of(made))
