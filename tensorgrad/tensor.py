"""The tensor: a strided array, the storage it lives in, and its place in the autograd graph.

This file holds what a tensor *is*; what can be done with it is attached by the ops (`ops/<family>.py`), each once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad.size import Size
from tensorgrad.storage.stubs import BY_DEVICE, STORAGES, Storage, storage_class

# `_requires_grad` of a differentiable view. Whether it requires grad depends on its base, which an in-place write may
# change after the view was made; so the slot only says "ask" (autograd/views.py), and as a true value it is cheap to
# test together with True on the fast path.
VIEW: Any = "ask the base"


class Tensor:
    """A multi-dimensional array of one dtype on one device, which remembers how it was computed.

    Made by `torch.tensor`, `torch.zeros`, ... and by every op. The legacy constructor is PyTorch's:
    `Tensor(2, 3)` is uninitialised, `Tensor([1, 2])` copies data, both in the default dtype.
    """

    # `_array`  the strided view itself (its class is the device); `_storage` the memory and its version
    # `_edge`   (node, output_nr) that made it, or None for a leaf; `_grad` the accumulated gradient
    # `_view`   (base, steps, version) if it is a differentiable view; `_hooks` a leaf's hooks
    __slots__ = (
        "__dict__", "__weakref__", "_array", "_edge", "_grad", "_hooks", "_requires_grad", "_storage", "_view"
    )  # fmt: skip

    _array: Any
    _storage: Storage
    _edge: tuple | None
    _grad: Tensor | None
    _view: tuple | None
    _hooks: Any
    _requires_grad: Any

    __array_priority__ = 1000  # `ndarray * tensor` is ours to compute
    __hash__ = object.__hash__

    def __new__(cls, *args, device=None, **kwargs):
        from tensorgrad.ops import create

        made = create.legacy_tensor(args, device)
        return made if cls is Tensor else made.as_subclass(cls)

    def __init_subclass__(cls, plain: bool = False, **kwargs):
        """A subclass may override ops (`__torch_function__`), so calls must look out for it; a plain one may not."""
        super().__init_subclass__(**kwargs)
        if plain:
            PLAIN.add(cls)
            OPERANDS.add(cls)
        else:
            from tensorgrad.ops import callpath

            OPERANDS.add(cls)
            callpath.rare(+1)

    # --- geometry ---

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return Size(self._array.shape)

    @property
    def dtype(self) -> dtypes.dtype:
        """The element type."""
        return dtypes.FROM_NUMPY.get(self._array.dtype) or dtypes.from_numpy_dtype(self._array.dtype)

    @property
    def device(self) -> devices.device:
        """Where the data is."""
        return STORAGES[self._array.__class__].device_of(self._array)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    ndimension = dim

    def size(self, dim: int | None = None):
        """The shape, or the size of dimension `dim`."""
        if dim is None:
            return Size(self._array.shape)
        ndim = self._array.ndim
        if not -max(ndim, 1) <= dim < max(ndim, 1) or not ndim:
            self._dim_error(dim)
        return self._array.shape[dim]

    def _dim_error(self, dim: int):
        ndim = self._array.ndim
        if not ndim:
            raise IndexError(f"dimension specified as {dim} but tensor has no dimensions")
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")

    def stride(self, dim: int | None = None):
        """How many elements apart neighbours lie in memory, per dimension."""
        itemsize = self._array.itemsize
        if dim is not None:
            self.size(dim)
            return self._array.strides[dim] // itemsize
        return tuple(s // itemsize for s in self._array.strides)

    def storage_offset(self) -> int:
        """Where in the storage the first element lies, in elements."""
        return self._storage.offset_of(self._array) // self._array.itemsize

    def numel(self) -> int:
        """The number of elements."""
        return int(self._array.size)

    nelement = numel

    def element_size(self) -> int:
        """The bytes of one element."""
        return self._array.itemsize

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements, views counted as if they were dense."""
        return self._array.size * self._array.itemsize

    def untyped_storage(self) -> Storage:
        """The memory behind the tensor, shared by its views."""
        return self._storage

    def data_ptr(self) -> int:
        """The address of the first element; 0 for an empty tensor."""
        return self._storage.data_ptr() + self._storage.offset_of(self._array) if self._array.size else 0

    @property
    def _version(self) -> int:
        if self._storage.version is None:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage.version

    is_cuda = property(lambda self: self.device.type == "cuda", doc="Whether the data is on a CUDA device.")
    is_cpu = property(lambda self: self.device.type == "cpu", doc="Whether the data is in main memory.")
    is_meta = property(lambda self: self.device.type == "meta", doc="Whether there is only a shape and no data.")
    is_sparse = property(lambda self: False, doc="Always False: there are no sparse layouts.")
    is_quantized = property(lambda self: False, doc="Always False: there are no quantized tensors.")

    def get_device(self) -> int:
        """The index of the CUDA device; -1 on the CPU."""
        return self.device.index or 0 if self.is_cuda else -1

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point one."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self._array.dtype.kind == "c"

    def is_signed(self) -> bool:
        """Whether the dtype can hold negative numbers."""
        return self.dtype.is_signed

    def is_inference(self) -> bool:
        """Whether the tensor was made in inference mode."""
        return self._storage.version is None

    # --- values ---

    def item(self):
        """The only element, as a Python number.

        Raises: RuntimeError if there is not exactly one element.
        """
        array = self._array
        if array.size != 1:
            raise RuntimeError(f"a Tensor with {array.size} elements cannot be converted to Scalar")
        if array.__class__ is not np.ndarray:
            array = self._storage.to_host(array)
        return array.item() if array.dtype.name != "bfloat16" else float(array.astype(np.float32).item())

    def tolist(self):
        """Nested lists of Python numbers; a number for a 0-dimensional tensor."""
        host = self._storage.to_host(self._array)
        return (host.astype(np.float32) if host.dtype.name == "bfloat16" else host).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The tensor as a NumPy array that shares its memory. `force=True` detaches and copies from the device first.

        Raises: RuntimeError if the tensor requires grad, TypeError if it is not on the CPU (unless forced).
        """
        if not force:
            if self.requires_grad:
                raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
            if self._array.__class__ is not np.ndarray:
                raise TypeError(
                    f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
                    "host memory first."
                )
            return self._array
        return self._storage.to_host(self._array)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options):
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __bool__(self) -> bool:
        size = self._array.size
        if size != 1:
            raise RuntimeError(
                f"Boolean value of Tensor with {'more than one value' if size else 'no values'} is ambiguous"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._array.dtype.kind not in "iub" or self._array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self._array.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __iter__(self):
        if not self._array.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self):
        return self.flip(0) if self._array.ndim else self

    def __contains__(self, element) -> bool:
        if not isinstance(element, Tensor | int | float | complex):
            raise RuntimeError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
            )
        return bool((self == element).any())

    def __repr__(self, *, tensor_contents=None) -> str:
        from tensorgrad import printing

        return printing.tensor_repr(self)

    def __format__(self, spec: str) -> str:
        if not self._array.ndim and not self.is_meta and type(self) is Tensor:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __dir__(self):
        return sorted({*dir(type(self)), *self.__dict__})

    # --- autograd fields ---

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor. May be set on leaves of floating-point or complex dtype."""
        requires = self._requires_grad
        if requires is VIEW:
            from tensorgrad.autograd.views import view_requires_grad

            return view_requires_grad(self)
        return requires

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Sets in place whether gradients flow to this tensor; returns it.

        Raises: RuntimeError for an integer tensor, or when switching off a tensor that was computed.
        """
        value = bool(requires_grad)
        if value and not differentiable(self._array.dtype):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if self.requires_grad == value:
            return self
        if not value and not self.is_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if value and self._storage.version is None:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._requires_grad = value
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor was made by the user, not computed from tensors that require grad."""
        return self.grad_fn is None

    @property
    def grad_fn(self):
        """The node that made this tensor; None for a leaf."""
        if self._requires_grad is VIEW:
            from tensorgrad.autograd.views import view_edge

            edge = view_edge(self)
            return edge[0] if edge is not None and not isinstance(edge[0], Tensor) else None
        return None if self._edge is None else self._edge[0]

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this tensor is."""
        return 0 if self.grad_fn is None else self._edge[1]  # type: ignore[index]

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by `backward`. Only leaves, and tensors that asked with `retain_grad`, have one."""
        if self._grad is None and not self.is_leaf and not self.retains_grad:
            import warnings

            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                "won't be populated during autograd.backward(). If you indeed want the .grad field to be populated "
                "for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.",
                stacklevel=2,
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if value.dtype is not self.dtype:
                raise RuntimeError(
                    f"assigned grad has data of a different type: expected {self.dtype}, got {value.dtype}"
                )
            if value.device != self.device:
                raise RuntimeError(
                    f"assigned grad has data located on a different device: expected {self.device}, got {value.device}"
                )
            if value.shape != self.shape:
                raise RuntimeError(
                    f"assigned grad has data of a different size: expected {list(self.shape)}, got {list(value.shape)}"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def data(self) -> Tensor:
        """The same memory outside autograd: writes to it are neither recorded nor noticed."""
        return share(self._array, self._storage.__class__.of(self._storage.array))

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self.requires_grad and not differentiable(value._array.dtype):
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        version = self._storage.version
        self._array = value._array
        self._storage = value._storage.__class__.of(value._storage.array, version)

    def detach(self) -> Tensor:
        """The same memory and version counter, outside the graph: writes are noticed, gradients do not flow."""
        return share(self._array, self._storage)

    def detach_(self) -> Tensor:
        """Cuts this tensor out of the graph in place: it becomes a leaf that requires no grad.

        Raises: RuntimeError for a view, whose base would go on requiring grad.
        """
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._edge, self._requires_grad = None, False
        return self

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view[0]

    def _is_view(self) -> bool:
        return self._view is not None

    # --- copies and pickles ---

    def __deepcopy__(self, memo: dict) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
                "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage."
            )
        from copy import deepcopy

        storage = self._storage
        copied = memo.get(id(storage))
        if copied is None:
            copied = memo[id(storage)] = storage.of(storage.copy(storage.array), storage.version)
            memo.setdefault(id(memo), []).append(storage)  # keep it alive while its id is a key
        array = self._array
        if array is storage.array:
            array = copied.array
        else:
            array = copied.strided(array.shape, array.strides, storage.offset_of(array), array.dtype)
        new = share(array, copied, self.__class__)
        new._requires_grad = self.requires_grad
        memo[id(self)] = new
        new._grad = deepcopy(self._grad, memo)
        new.__dict__.update(deepcopy(self.__dict__, memo))
        return new

    def __reduce_ex__(self, protocol):
        storage, array = self._storage, self._array
        if not self.is_leaf:
            raise RuntimeError("cannot pickle a tensor that was computed and requires grad: detach() it first")
        geometry = (array.shape, array.strides, storage.offset_of(array), self.dtype)
        return _restore, (type(self), storage, geometry, self.requires_grad, dict(self.__dict__))


PLAIN = {Tensor}  # the classes whose ops run on the fast path: Tensor itself, and nn.Parameter
OPERANDS = {Tensor, *dtypes.NUMBERS}  # what `a + b` computes with; for anything else Python asks the other operand


def _restore(cls, storage, geometry, requires_grad, attributes):
    shape, strides, offset, dtype = geometry
    tensor = share(storage.strided(shape, strides, offset, dtype.numpy), storage, cls)
    tensor._requires_grad = requires_grad
    tensor.__dict__.update(attributes)
    return tensor


def wrap(array) -> Tensor:
    """A new tensor that owns `array`: its storage is fresh, it is a leaf and requires no grad."""
    return share(array, STORAGES[array.__class__].of(array))


def share(array, storage: Storage, cls: type[Tensor] = Tensor) -> Tensor:
    """A new leaf over existing memory, without any graph or view relation."""
    tensor = object.__new__(cls)
    tensor._array, tensor._storage = array, storage
    tensor._requires_grad = False
    tensor._edge = tensor._grad = tensor._view = tensor._hooks = None
    return tensor


def differentiable(dtype: np.dtype) -> bool:
    """Whether values of this (array) dtype can have gradients: floating-point and complex ones."""
    return dtype.kind in "fc" or dtype.name == "bfloat16"


__all__ = ["BY_DEVICE", "PLAIN", "VIEW", "Tensor", "differentiable", "share", "wrap"]
