"""Batched tensors, and the level on which they live (`torch.func.vmap`).

Inside of `vmap(f)`, a tensor of `f` stands for one sample, and its array is a `BatchedArray`: it has the shape, strides
and dtype of one sample, and refers to a tensor that holds all of them, the *value*. Ops on it run the batching rule of
their row (transforms/batch_rules.py), which is one op on the values, with the level off: so they are interpreted by the
transforms further out, down to the kernels.

A class of arrays is the right place for this, rather than a table as forward mode has one. Everything above arrays (the
graph, what nodes save, views and their bases, promotion, checks of shapes) then works on samples without knowing it:
formulas run on what a node saved, inside of the vmap, give gradients per sample. What reads elements from an array
finds none, so nothing can compute from one sample what is meant for all. And a tensor without a batch pays nothing.

The batch is the first dimension of a value. Where `in_dims` says another one, the value is a view that has it first.

Gradients may flow at two places: to leaves inside of the vmap, through nodes over batched arrays, and to leaves
outside, through the graph of the values. A batched tensor requires grad if its value does, and an op is recorded at
both places.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.gradients import refuse_backward
from tensorgrad.autograd.modes import GRAD
from tensorgrad.autograd.views import edge_of
from tensorgrad.dispatch.slow_path import remember, unrecorded
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.layouts import memory_strides
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.stubs import STORAGES, Storage, storage_class
from tensorgrad.tensor import PLAIN, Tensor, share, tensors_in
from tensorgrad.transforms.transform import Off, Transform, arrays_of, run_by_outer


class BatchedArray:
    """An array of one sample, by the tensor that holds all samples; if not `mapped`, it is the same for all of them."""

    __slots__ = ("__weakref__", "dtype", "given", "level", "mapped", "ndim", "shape", "value")

    def __init__(self, level: Batch, value: Tensor, mapped: bool):
        array = value._array
        self.level, self.value, self.mapped = level, value, mapped
        self.given: Any = None  # the tensor that was given, and where its batch is, if that is not first
        self.dtype = array.dtype
        self.shape = shape = array.shape[1:] if mapped else array.shape
        self.ndim = len(shape)

    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: math.prod(self.shape) * self.dtype.itemsize)

    @property
    def strides(self) -> tuple:
        """The strides of one sample."""
        array = self.value._array
        if self.mapped and not array.shape[0]:  # NumPy's arrays without elements have none
            return tuple([s * array.itemsize for s in memory_strides(array.shape[1:], None)])
        return array.strides[1:] if self.mapped else array.strides

    @property
    def flags(self) -> Flags:
        """What NumPy calls the flags of an array."""
        return Flags(self)

    @property
    def real(self) -> BatchedArray:
        """The real parts."""
        return self.with_value(self.value.real)

    def with_value(self, value: Tensor) -> BatchedArray:
        """An array of the same level, mapped like this one, for another value."""
        return BatchedArray(self.level, value, self.mapped)

    def astype(self, dtype, order: str = "K", copy: bool = True) -> BatchedArray:
        """Returns the array cast to another dtype."""
        return BatchedStorage.cast(self, np.dtype(dtype), order)

    def transpose(self, axes) -> BatchedArray:
        """Returns the array with its dimensions permuted."""
        with self.level.off():
            lead = (0,) if self.mapped else ()
            return self.with_value(self.value.permute((*lead, *[d + len(lead) for d in axes])))

    def view(self, dtype) -> BatchedArray:
        """Returns the same bytes as another dtype."""
        with self.level.off():
            return self.with_value(self.value.view(from_numpy_dtype(np.dtype(dtype))))

    def __len__(self) -> int:
        return self.shape[0]


class Shared:
    """A result of a batching rule that has no batch, as it is the same for all samples."""

    __slots__ = ("value",)

    def __init__(self, value: Tensor):
        self.value = value


class Flags:
    """The flags of a batched array."""

    __slots__ = ("array",)

    writeable = True

    def __init__(self, array: BatchedArray):
        self.array = array

    @property
    def c_contiguous(self) -> bool:
        """Whether each sample is stored row by row."""
        array, step = self.array, self.array.dtype.itemsize
        if 0 in array.shape:
            return True
        for n, s in zip(reversed(array.shape), reversed(array.strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return True


class BatchedStorage(Storage):
    """The memory of a batched array: that of its value, which counts the writes."""

    __slots__ = ()

    device_type = backend = "batched"
    array_type = BatchedArray

    @classmethod
    def of(cls, array, version=0):
        storage = object.__new__(cls)
        storage.array = array
        return storage

    @property
    def memory(self):
        """That of the value."""
        return self.array.value._storage.memory

    @property
    def version(self):
        """The version of the value's memory."""
        value = self.array.value
        memory = value._memory
        return value._storage.version if memory is None else memory.version

    @version.setter
    def version(self, version) -> None:
        self.array.value._storage.version = version

    def bump(self) -> None:
        self.array.value._storage.check_writable()  # the write to the value counts

    @classmethod
    def device_of(cls, array):
        return array.value.device

    @classmethod
    def to_host(cls, array):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    @classmethod
    def number_on_host(cls, array):
        raise RuntimeError(NO_ITEM)

    @classmethod
    def check_branch(cls, array):
        raise RuntimeError(NO_BRANCH)

    def strided(self, shape, strides, offset, dtype):
        raise RuntimeError("vmap: the memory of a batched tensor cannot be viewed with another size or other strides")

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    @classmethod
    def from_host(cls, array, device):
        raise NotImplementedError("vmap: a batched array cannot be made of one on the host")

    @classmethod
    def empty(cls, shape, dtype, device):
        return storage_class(device).empty(shape, dtype, device)  # without a batch, until `new_empty` gives it one

    @classmethod
    def copy(cls, array):
        with array.level.off():
            return array.with_value(array.value.clone())

    @classmethod
    def cast(cls, array, dtype, order="K"):
        with array.level.off():
            return array.with_value(array.value.to(from_numpy_dtype(dtype)))

    @classmethod
    def number(cls, value, like):
        array = whole(like.value)._array
        return BatchedArray(like.level, share(STORAGES[array.__class__].number(value, array), None), False)

    @classmethod
    def write(cls, target, values):
        if target.__class__ is not BatchedArray:
            STORAGES[target.__class__].write(target, values)
            return
        with target.level.off():
            if values.__class__ is BatchedArray and values.level is target.level:
                if values.mapped and not target.mapped:
                    raise_unbatched()
                target.value.copy_(target.level.aligned(values, target.ndim))
            elif values.__class__ in STORAGES:
                target.value.copy_(share(values, None))
            else:
                target.value.fill_(values)

    @classmethod
    def add_to(cls, target, values):
        with target.level.off():
            target.value.add_(target.level.aligned(values, target.ndim))

    @classmethod
    def apart(cls, array):
        with array.level.off():
            value = array.value.detach()
            if value._array is array.value._array:  # nothing is further out, but a level further in may know it
                value = share(value._storage.apart(value._array), value._storage)
            return array.with_value(value)

    @classmethod
    def all_samples(cls, array):
        while array.__class__ is BatchedArray:
            array = array.value._array
        return array

    @classmethod
    def for_each_sample(cls, array, made):
        level, value = array.level, array.value._array
        with level.off():
            if value.__class__ is BatchedArray:
                made = cls.for_each_sample(value, made)
            if not array.mapped:
                return made
            copies = made.detach().expand(level.size, *made.shape).clone(memory_format="contiguous")
        each = share(BatchedArray(level, copies, True), None)
        each._requires_grad = made._requires_grad
        return each

    def nbytes(self) -> int:
        return self.array.nbytes

    size = nbytes


STORAGES[BatchedArray] = BatchedStorage  # a layer over devices, not a device: it is not registered as one

NO_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
    "internals, please file a bug report."
)

NO_BRANCH = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that "
    "yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)


def whole(tensor: Tensor) -> Tensor:
    """The values of all samples, below all levels: for checks of values, which one wrong sample fails.

    >>> from tensorgrad.transforms.batch import whole
    >>> torch.func.vmap(lambda x: x * bool(whole(x > 0).all()))(torch.tensor([1.0, -1.0]))
    tensor([0., -0.])
    """
    while tensor._array.__class__ is BatchedArray:
        tensor = tensor._array.value
    return tensor


_NUMBERS = {int, float, bool, str, type(None)}  # classes of values that are not tensors, and contain none


class Batch(Transform):
    """One level of `vmap`, on within a `with` block: `size` samples.

    >>> from tensorgrad.transforms.batch_map import Batch  # this file loads the rules
    >>> with Batch(3, "error") as level:
    ...     x = level.batched(torch.ones(2, 3), 1)
    ...     total, shape = level.value_of(x * 2)[0].sum(), x.shape
    >>> shape, total
    (torch.Size([2]), tensor(12.))
    """

    name = "vmap"
    rule_of: Any = None  # an op's batching rule; None for one that runs as its twin (transforms/batch_rules.py)
    storage_of: Any = None  # the class of storage of all values, if they may be used as arrays

    def __init__(self, size: int, randomness: str):
        self.size, self.randomness = size, randomness

    @property
    def number(self) -> int:
        """How many levels there are up to this one."""
        return 1 + sum(isinstance(t, Batch) for t in self.around)

    # --- in and out ---

    def batched(self, value: Tensor, dim: int = 0) -> Tensor:
        """A tensor that stands for each slice of `value` along `dim`."""
        with self.off():
            if not dim:
                return self.made(run_by_outer(OPS["alias"], (value,)), True)
            made = self.made(value.movedim(dim, 0), True)
            made._array.given = value, dim % value._array.ndim
            return made

    def made(self, value: Tensor, mapped: bool) -> Tensor:
        """A tensor of this level over a value; a leaf that requires grad if the value does."""
        tensor = share(BatchedArray(self, value, mapped), None)
        tensor._requires_grad = bool(value._requires_grad and value.requires_grad)
        return tensor

    def value_of(self, tensor: Tensor) -> tuple[Tensor, bool]:
        """The value of a tensor on this level, and whether that has the batch as its first dimension."""
        array = tensor._array
        if array.__class__ is BatchedArray and array.level is self:
            return array.value, array.mapped
        return tensor, False

    def lifted(self, tensor: Tensor) -> Tensor:
        """A tensor of this level with the same values for each sample; the tensor itself if it is of this level."""
        array = tensor._array
        if array.__class__ is BatchedArray and array.level is self:
            return tensor
        made = share(BatchedArray(self, tensor, False), None)
        if tensor._requires_grad:
            made._edge = edge_of(tensor)
            made._requires_grad = made._edge is not None
        return made

    def hidden(self, tensor: Tensor) -> Tensor:
        """A tensor of this level over the same memory, so that gradients by it do not depend on the values."""
        array = tensor._array
        if array.__class__ is BatchedArray and array.level is self:
            return share(array, tensor._storage)
        return share(BatchedArray(self, share(array, tensor._storage), False), None)

    def aligned(self, array: BatchedArray, ndim: int) -> Tensor:
        """The value, with so many dimensions beside the batch that it broadcasts against others of `ndim`."""
        value = array.value
        if array.mapped:
            for _ in range(ndim - array.ndim):
                value = value.unsqueeze(1)
        return value

    def taken(self, tensor: Tensor) -> Tensor:
        """The value of a tensor, with the batch first, also of one that is the same for all samples."""
        value, mapped = self.value_of(tensor)
        return value if mapped else value.expand(self.size, *value._array.shape)

    # --- ops ---

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op: on all samples at once if one of its arguments has a batch."""
        if op.kind == "sample":
            return self._sampled(op, args)
        some, every = self._owned(args)
        if not some:
            return self.run_below(op, args)
        if LOCAL.overwritten is not None and not LOCAL.computing_tangents and self._overwrites_plain(op, args):
            result = self._recorded(op, self._all_lifted(args))
            found = result._array.value  # no value has a batch: the result is written to memory outside of the level
            result, of_level = share(found._array, found._storage), result
            result._edge, result._requires_grad = of_level._edge, of_level._requires_grad
            return result
        given: Any = args if every else self._all_lifted(args)
        if self.rule_of(op) is None:
            if op.batch_kernel and self.storage_of([v._array for v in given if isinstance(v, Tensor)]):
                return self._recorded(op, given)
            prepared = self._prepared(op, args)
            if prepared is not None:
                with Off((*self.around, self)):
                    return op.twin(*prepared)
        return self._recorded(op, given)

    def _prepared(self, op: Any, args: tuple) -> tuple | None:
        """The arguments for an op's twin: checked, and normalized as by the row; None if a tensor was replaced."""
        if op.prepare is None:
            return args
        given = arrays_of(args)
        made = list(op.prepare(*given))
        for i, (p, before) in enumerate(zip(op.params, given, strict=True)):
            if p.is_tensor:
                if made[i] is not before:
                    return None
                made[i] = args[i]
        return tuple(made)

    def _owned(self, args: Any) -> tuple[bool, bool]:
        """Whether some of the tensors among these values are of this level, and whether all of them are."""
        some, every = False, True
        for value in args:
            cls = value.__class__
            if cls in _NUMBERS:
                continue
            if cls in PLAIN or isinstance(value, Tensor):
                array = value._array
                if array.__class__ is BatchedArray and array.level is self:
                    some = True
                else:
                    every = False
            elif cls is list or cls is tuple:
                for inner in value:
                    if inner.__class__ is not int:
                        inside = self._owned(value)
                        some, every = some or inside[0], every and inside[1]
                        break
        return some, every

    def _all_lifted(self, args: tuple) -> list:
        """The arguments of an op, all tensors among them of this level."""
        lifted: list = []
        for value in args:
            if isinstance(value, Tensor):
                value = self.lifted(value)
            elif (value.__class__ is list or value.__class__ is tuple) and value and isinstance(value[0], Tensor):
                value = [self.lifted(v) for v in value]
            lifted.append(value)
        return lifted

    def _recorded(self, op: Any, lifted: Any) -> Any:
        result = unrecorded(op, tuple(lifted)) if GRAD.inference else op.compiled.plain(*lifted)
        if ANOMALY.enabled:
            remember(result)
        return result

    def owns(self, tensor: Tensor) -> bool:
        """Whether a tensor is of this level."""
        array = tensor._array
        return array.__class__ is BatchedArray and array.level is self

    def keeps_values(self, tensors: list) -> bool:
        """Whether a value requires grad."""
        return any(self.owns(t) and t._array.value.requires_grad for t in tensors)

    def _overwrites_plain(self, op: Any, args: tuple) -> bool:
        """Whether the result is to be written into a tensor that is not of this level.

        Raises: RuntimeError if values with a batch are to be written into a tensor without one.
        """
        target = args[0]
        if not isinstance(target, Tensor) or target._storage is not LOCAL.overwritten or self.value_of(target)[1]:
            return False
        if any(self.value_of(t)[1] for t in tensors_in(args[1:])):
            raise_unbatched()
        return not self.owns(target)

    # --- random numbers ---

    def check_random(self) -> None:
        """Raises: RuntimeError if no random numbers may be drawn."""
        if self.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )

    def drawn(self, draw: Any, one_by_one: bool = False) -> Tensor:
        """Random numbers that no tensor is given for: `draw(lead)` draws so many samples (`()`: one).

        Raises: RuntimeError if there may be none.
        """
        self.check_random()
        with self.off():
            if self.randomness == "same":
                return draw(())
            if one_by_one:
                rows = [draw(()) for _ in range(max(self.size, 1))]  # of no samples: one, for its shape
                made = rows[0].new_empty((self.size, *rows[0].shape))
                for place, row in zip(made.unbind(0), rows, strict=False):
                    place.copy_(row)
            else:
                made = draw((self.size,))
        return self.made(made, True)

    def _sampled(self, op: Any, args: tuple) -> Any:
        """Runs an op that draws random numbers."""
        self.check_random()
        fills = op.name.endswith("_fill")  # in place, whatever the tensor's values are
        mapped = any(self.value_of(t)[1] for t in tensors_in(args))
        if self.randomness == "same":
            if mapped and not fills:
                raise RuntimeError(
                    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue "
                    "with functorch"
                )
            if fills and mapped:
                value = self.value_of(args[0])[0]
                with self.off():
                    args = (value.new_empty(value._array.shape[1:]), *args[1:])
            return self.run_below(op, args)
        if fills and not mapped:
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same "
                "randomness. If this is necessary for your usage, please file an issue with functorch."
            )
        if LOCAL.overwritten is not None:
            self._overwrites_plain(op, args)
        given: list = []
        for value in args:
            if isinstance(value, Tensor):
                found, has = self.value_of(value)
                if not has:
                    with self.off():
                        found = found.expand(self.size, *found._array.shape)
                    value = self.made(found, True)
            given.append(value)
        return self._recorded(op, given)

    # --- what has no batch ---

    def refuse_out(self, op: Any, tensors: Any) -> None:
        """Raises: RuntimeError if one of the tensors has a batch."""
        if any(self.owns(t) for t in tensors_in(tensors)):
            raise RuntimeError(
                f"Batching rule not implemented for aten::{op.name}.out; the fallback path doesn't work on out= or "
                "view ops."
            )

    def refuse_backward(self) -> None:
        """Raises: RuntimeError, as a leaf outside cannot have a gradient for each sample."""
        refuse_backward()

    # --- custom functions ---

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        """Runs a custom function on all samples at once.

        Raises: RuntimeError unless it has a `vmap`, or says `generate_vmap_rule`.
        """
        if not any(self.owns(t) for t in tensors_in(args)):
            return super().call_function(function, args, kwargs)
        has_rule = function.vmap is not Function.vmap
        if function.generate_vmap_rule:
            if has_rule:
                raise RuntimeError(
                    f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an "
                    "overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap "
                    "staticmethod to avoid ambiguity. For more details, please see "
                    "https://pytorch.org/docs/main/notes/extending.func.html"
                )
            return function._recorded(args, kwargs)
        if not has_rule:
            raise RuntimeError(
                f"You tried to vmap over {function.__name__}, but it does not have vmap support. Please override and "
                "implement the vmap staticmethod or set generate_vmap_rule=True. For more details, please see "
                "https://pytorch.org/docs/main/notes/extending.func.html"
            )
        return _with_rule(function, self)._recorded(args, kwargs)


class VmapInfo(NamedTuple):
    """What the `vmap` of a custom function is told: how many samples there are, and the `randomness` of `vmap`."""

    batch_size: int
    randomness: str


def _with_rule(function: Any, level: Batch) -> Any:
    """The custom function whose `forward` runs its `vmap` on the values."""

    def taken(x: Any) -> tuple:
        """A value, and where its batch is."""
        if not isinstance(x, Tensor):
            return x, None
        value, has = level.value_of(x)
        return (x._array.given or (value, 0)) if has else (value, None)

    def forward(*args: Any) -> Any:
        values, dims = (_mapped(lambda x, i=i: taken(x)[i], args) for i in (0, 1))
        with level.off():
            found = function.vmap(VmapInfo(level.size, level.randomness), dims, *values)
            if not (isinstance(found, tuple) and len(found) == 2):
                raise RuntimeError(
                    "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
                    "compatible with the output."
                )
            output, places = found
            several = isinstance(output, tuple | list)
            outputs = [*output] if several else [output]
            places = [*places] if isinstance(places, tuple | list) else [places] * len(outputs)
            made = [
                value if place is None or not isinstance(value, Tensor) else level.batched(value, place)
                for value, place in zip(outputs, places, strict=True)
            ]
        return tuple(made) if several else made[0]

    made: Any = type(function.__name__, (function,), {"forward": staticmethod(forward)})
    made._backward_cls = function._backward_cls
    return made


def _mapped(change: Any, value: Any) -> Any:
    """`change` of a value, or of those in nested tuples and lists."""
    if isinstance(value, tuple | list):
        return type(value)(_mapped(change, v) for v in value)
    return change(value)


def raise_unbatched() -> None:
    """Raises: RuntimeError for values with a batch that are to be written into a tensor without one."""
    raise RuntimeError(
        "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in "
        "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but `self` not "
        "being vmapped over in a vmap. Please try to use out-of-place operators instead of inplace arithmetic. If said "
        "operator is being called inside the PyTorch framework, please file a bug report instead."
    )


def innermost_level() -> Batch | None:
    """The innermost `vmap` that is on."""
    return next((t for t in reversed(LOCAL.transforms) if isinstance(t, Batch)), None)
