"""Fake tensors: they have a shape, strides, a dtype and a device, and no memory. (`torch._subclasses.fake_tensor`)

A fake tensor is a tensor of the meta device that says it is on another one. A mode makes what factories return fake;
from then on the class sees to the results. Functions run on the meta device, with all their rules and derivatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorgrad import devices, dtypes
from tensorgrad._subclasses.fake_devices import common, on_meta, with_index
from tensorgrad._subclasses.fake_exceptions import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    needs_values,
    value_read,
)
from tensorgrad.layouts import strided
from tensorgrad.nn.parameter import Parameter
from tensorgrad.ops.create import DEFAULT_DEVICE
from tensorgrad.overrides import TorchFunctionMode
from tensorgrad.rows.switches import LOCAL
from tensorgrad.storage.meta import MetaArray, MetaStorage
from tensorgrad.system.per_thread import PerThread
from tensorgrad.tensor import Tensor, share
from tensorgrad.utils._pytree import tree_leaves, tree_map_only
from tensorgrad.utils.weak import WeakIdKeyDictionary

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]

_RANDOM = ("rand", "bernoulli", "dropout", "multinomial", "normal", "poisson", "uniform")  # how their names begin
_LARGEST_CONSTANT = 1  # elements: results of more are not known, though all arguments are


class _Running(PerThread):
    on_meta = False  # is a call being run on the meta device? Then fake tensors say that they are on it.


_RUNNING = _Running()


class FakeTensor(Tensor):
    """A tensor without memory, on any device, whether there is one or not. Made by a `FakeTensorMode`.

    Attributes:
        fake_mode: the mode that it belongs to.
        fake_device: the device.

    >>> from tensorgrad._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    >>> with FakeTensorMode():
    ...     layer = torch.nn.Linear(3, 2, device="cuda")
    ...     y = layer(torch.ones(4, 3, device="cuda"))
    >>> y
    FakeTensor(..., device='cuda:0', size=(4, 2), grad_fn=<AddmmBackward0>)
    >>> isinstance(y, FakeTensor), y.untyped_storage().device
    (True, device(type='meta'))
    """

    __slots__ = ()

    fake_mode: FakeTensorMode
    fake_device: devices.device

    def __new__(
        cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, constant: Tensor | None = None
    ) -> FakeTensor:
        if not elem.is_meta:
            raise AssertionError(f"elem.device.type must be 'meta', got {elem.device.type}")
        made = share(elem._array, elem._storage)
        made._requires_grad = elem.requires_grad
        return _become_fake(made, fake_mode, with_index(device), constant)

    @property
    def device(self) -> devices.device:
        """The device that the tensor says it is on."""
        return devices.META if _RUNNING.on_meta else self.fake_device

    @property
    def constant(self) -> Tensor | None:
        """The tensor that it stands for, if the program has written down its values, and nothing else has since."""
        known, version = self.__dict__["_known"]
        return known if version == self._storage.version else None

    @constant.setter
    def constant(self, value: Tensor | None) -> None:
        self.__dict__["_known"] = value, self._storage.version

    def _as_gradient(self, gradient: Tensor) -> Tensor:
        """A gradient of this tensor as a fake one."""
        return _become_fake(gradient, self.fake_mode, self.fake_device)

    @property
    def data(self) -> Tensor:
        """The same tensor outside the graph."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        with _on_meta():
            Tensor.data.fset(self, value)  # type: ignore[attr-defined]
        self.__dict__.update(fake_device=value.device)
        self.constant = None

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """Returns the fake tensor that stands for another one."""
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(t, FakeTensor | Parameter) or t is Tensor for t in types):
            return NotImplemented
        kwargs = kwargs or {}
        fake = next(t for t in tree_leaves((args, kwargs)) if isinstance(t, FakeTensor))
        return fake.fake_mode.run(func, args, kwargs)

    def item(self) -> Any:
        """Returns the only element, if the program has written it down.

        Raises:
            DataDependentOutputException: If it has been computed.
        """
        if self.constant is None:
            if self.numel() != 1:
                raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
            raise value_read()
        return self.constant.item()

    def tolist(self) -> Any:
        """Returns the elements as nested lists, if the program has written them down."""
        return self.item() if not self.ndim else [part.tolist() for part in self]

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Raises: RuntimeError, as there are no values."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def new_empty_strided(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a fake tensor of another shape."""
        return self.fake_mode.run(Tensor.new_empty_strided, (self, *args), kwargs)


def _become_fake(tensor: Tensor, mode: FakeTensorMode, device: devices.device, constant: Any = None) -> Any:
    """Makes a new tensor of the meta device a fake one: it keeps its place in the graph."""
    made: Any = tensor
    made.__class__ = FakeTensor
    made.__dict__.update(fake_mode=mode, fake_device=device)
    made.constant = constant
    return made


class _on_meta:
    """A context in which calls run on the meta device: factories make tensors there, and no fake mode is on."""

    def __enter__(self) -> None:
        self.before = LOCAL.inside_override, LOCAL.function_modes, DEFAULT_DEVICE.device, _RUNNING.on_meta
        LOCAL.inside_override, _RUNNING.on_meta, DEFAULT_DEVICE.device = True, True, devices.META
        LOCAL.function_modes = _without_fake(LOCAL.function_modes)

    def __exit__(self, *exception: Any) -> None:
        LOCAL.inside_override, LOCAL.function_modes, DEFAULT_DEVICE.device, _RUNNING.on_meta = self.before


def _without_fake(modes: tuple) -> tuple:
    return tuple(mode for mode in modes if not isinstance(mode, FakeTensorMode))


class FakeTensorConverter:
    """Makes fake tensors of others: one for each, with one storage for all that share memory."""

    def __init__(self) -> None:
        self._tensors: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._storages: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor) -> FakeTensor:
        """Returns the fake tensor that stands for `t`: a leaf for a leaf, a parameter for a parameter.

        Raises:
            UnsupportedFakeTensorException: If it is sparse or quantized.
        """
        known = self._tensors.get(t)
        if known is not None:
            return known
        if t.layout is not strided or t.is_quantized:
            kind = "quantized" if t.is_quantized else str(t.layout)
            raise UnsupportedFakeTensorException(f"{kind} tensors have no fake ones")
        array, memory = t._array, t._storage
        storage = self._storages.get(memory)
        if storage is None:
            storage = MetaStorage.of(MetaArray.empty((memory.nbytes(),), np.dtype("uint8")))
            self._storages[memory] = storage
        place = memory.offset_of(array)
        view = storage.strided(array.shape or (1,), array.strides or (array.itemsize,), place, array.dtype)
        view = view if array.ndim else MetaArray(view.phantom.reshape(()))
        made = _become_fake(share(view, storage), fake_mode, t.device)
        made._requires_grad = t.requires_grad
        if not t.is_leaf and t.requires_grad:  # it has a place in a graph, though not in that of `t`
            made = made.view_as(made)
        if isinstance(t, Parameter):
            made.__dict__["_is_param"] = True
        self._tensors[t] = made
        if t.is_leaf and t.grad is not None:
            made._grad = self.from_real_tensor(fake_mode, t.grad)
        return made

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: Tensor, device: Any) -> FakeTensor:
        """Returns a tensor of the meta device as a fake one on `device`."""
        return FakeTensor(fake_mode, t, device)


class FakeTensorMode(TorchFunctionMode):
    """A context in which tensors have shapes, dtypes and devices, and no memory: a model of any size can be made.

    What needs values, `x.item()` or `x.nonzero()`, raises an exception. Sizes are plain numbers, also with a
    `shape_env`. Values that the program writes down itself, `torch.tensor(3)`, are known.

    Args:
        allow_fallback_kernels: accepted for compatibility: nothing is run to learn a shape.
        allow_non_fake_inputs: whether other tensors become fake where they meet fake ones, in place of an error.
        shape_env: accepted for compatibility.
        static_shapes: accepted for compatibility.
        export: accepted for compatibility.

    >>> from tensorgrad._subclasses.fake_tensor import FakeTensorMode
    >>> with FakeTensorMode() as mode:
    ...     model = torch.nn.Linear(10**6, 10**6)
    >>> sum(p.numel() * p.element_size() for p in model.parameters()) // 10**9  # gigabytes, of which none is used
    4000
    >>> x = mode.from_tensor(torch.ones(2, 10**6))
    >>> model(x).shape
    torch.Size([2, 1000000])
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.shape_env, self.export = shape_env, export
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.allow_meta = True
        self.fake_tensor_converter = FakeTensorConverter()

    def __deepcopy__(self, memo: dict) -> FakeTensorMode:
        return self

    def is_our_fake(self, t: object) -> bool:
        """Returns whether a value is a fake tensor of this mode."""
        return isinstance(t, FakeTensor) and t.fake_mode is self

    def from_tensor(
        self,
        tensor: Tensor,
        *,
        static_shapes: bool | None = None,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> FakeTensor:
        """Returns the fake tensor that stands for another one: the same whenever it is asked for.

        Args:
            tensor: the tensor; a fake one of this mode is returned itself.
            static_shapes: accepted for compatibility, as are all that follow: sizes are plain numbers.

        Raises:
            UnsupportedFakeTensorException: If it is sparse or quantized.

        >>> from tensorgrad._subclasses.fake_tensor import FakeTensorMode
        >>> FakeTensorMode().from_tensor(torch.ones(2, 3).t())
        FakeTensor(..., size=(3, 2))
        """
        if isinstance(tensor, FakeTensor) and tensor.fake_mode is self:
            return tensor
        return self.fake_tensor_converter.from_real_tensor(self, tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(t, FakeTensor | Parameter) or t is Tensor for t in types):
            return NotImplemented
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Runs a function on fake tensors, and makes what it returns fake.

        Raises:
            AssertionError: If other tensors are among the arguments.
            DataDependentOutputException: If it reads a value.
            DynamicOutputShapeException: If the size of its result depends on values.
        """
        name = func.op.name if hasattr(func, "op") else getattr(func, "__name__", "")
        args, kwargs = self._all_fake(name, args, kwargs)
        fakes = [t for t in tree_leaves((args, kwargs)) if isinstance(t, FakeTensor)]
        known = self._known(func, name, args, kwargs, fakes)
        if known is None and fakes:
            refused = needs_values(name, any(map(_is_mask, tree_leaves(args[1:]))))
            if refused is not None and not _says_the_size(name, args, kwargs):
                raise refused
        call = on_meta(func, name, args, kwargs)
        device = call.device
        if device is None:
            device = common(func, name, fakes) or with_index(DEFAULT_DEVICE.device)
        try:
            with _on_meta():
                result = call.function(*call.args, **call.kwargs)
        except NotImplementedError as error:
            if "Cannot copy out of meta tensor" not in str(error):
                raise
            raise value_read() from error
        return self._fake(result, device, known)

    def _all_fake(self, name: str, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments, in which all tensors are fake ones of this mode."""
        others = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and not self.is_our_fake(t)]
        if all(t._array.__class__ is MetaArray and not isinstance(t, FakeTensor) for t in others):
            return args, kwargs
        if any(isinstance(t, FakeTensor) for t in others):
            other = next(t for t in others if isinstance(t, FakeTensor))
            raise AssertionError(f"Mixing fake modes NYI x.fake_mode={other.fake_mode} vs self={self}")
        if not self.allow_non_fake_inputs:
            raise AssertionError(
                "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                f"'allow_non_fake_inputs'. Found in {name}"
            )
        made = tree_map_only(
            Tensor, lambda t: t if t._array.__class__ is MetaArray else self.from_tensor(t), (args, kwargs)
        )
        return made[0], made[1]

    def _known(self, func: Any, name: str, args: tuple, kwargs: dict[str, Any], fakes: list) -> Any:
        """What a function returns if all values are known: those that the program has written down."""
        written_down = name == "tensor" and not fakes
        if not written_down and not (fakes and all(t.constant is not None for t in fakes)):
            return None
        args, kwargs = tree_map_only(FakeTensor, lambda t: t.constant, (args, kwargs))
        kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "requires_grad")}
        if name in ("cpu", "cuda", "to", "backward") or name.startswith(_RANDOM):
            return None
        with unset_fake_temporarily(), _default_device(devices.CPU):
            made = func(*args, **kwargs)
        if written_down or all(t.numel() <= _LARGEST_CONSTANT for t in tree_leaves(made) if isinstance(t, Tensor)):
            return made
        return None

    def _fake(self, result: Any, device: devices.device, known: Any) -> Any:
        """The tensors in a result, as fake ones."""
        constants = iter(tree_leaves(known))

        def fake(t: Tensor) -> Tensor:
            constant = next(constants, None)
            if isinstance(t, FakeTensor):
                if constant is not None:
                    t.constant = constant  # it was written
                return t
            if t._array.__class__ is not MetaArray:
                return self.from_tensor(t)
            return _become_fake(t, self, device, constant)

        if isinstance(result, Tensor):
            return fake(result)
        made = tree_map_only(Tensor, fake, result)
        return result if all(a is b for a, b in zip(tree_leaves(result), tree_leaves(made), strict=True)) else made


@contextmanager
def _default_device(device: devices.device) -> Iterator[None]:
    before, DEFAULT_DEVICE.device = DEFAULT_DEVICE.device, device
    try:
        yield
    finally:
        DEFAULT_DEVICE.device = before


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (dtypes.bool, dtypes.uint8)


def _says_the_size(name: str, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether `repeat_interleave` is told how many elements it returns: by a number of repeats, or as such."""
    if name != "repeat_interleave":
        return False
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats", args[0])
    return not isinstance(repeats, Tensor) or kwargs.get("output_size") is not None


@contextmanager
def unset_fake_temporarily() -> Iterator[FakeTensorMode | None]:
    """A context in which no fake mode is on: it yields the one that was.

    >>> from tensorgrad._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
    >>> with FakeTensorMode(), unset_fake_temporarily():
    ...     torch.ones(2)
    tensor([1., 1.])
    """
    modes = LOCAL.function_modes
    LOCAL.function_modes = _without_fake(modes)
    try:
        yield active_fake_mode_of(modes)
    finally:
        LOCAL.function_modes = modes


def is_fake(x: object) -> bool:
    """Returns whether a value is a fake tensor, or made of fake tensors.

    >>> from tensorgrad._subclasses.fake_tensor import is_fake
    >>> is_fake(torch.ones(2))
    False
    """
    return maybe_get_fake_mode(x) is not None


def maybe_get_fake_mode(t: object) -> FakeTensorMode | None:
    """Returns the mode of a fake tensor, or of the fake tensors that a tensor is made of; None for all others."""
    if isinstance(t, FakeTensor):
        return t.fake_mode
    if isinstance(t, Tensor) and hasattr(type(t), "__tensor_flatten__"):
        names, _ = t.__tensor_flatten__()  # type: ignore[attr-defined]
        return next((mode for name in names if (mode := maybe_get_fake_mode(getattr(t, name))) is not None), None)
    return None


def active_fake_mode_of(modes: tuple) -> FakeTensorMode | None:
    """Returns the innermost fake mode of several modes."""
    return next((mode for mode in reversed(modes) if isinstance(mode, FakeTensorMode)), None)


def active_fake_mode() -> FakeTensorMode | None:
    """Returns the fake mode that is on in this thread, or None."""
    return active_fake_mode_of(LOCAL.function_modes)


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """Returns the fake mode that is on, or that of the fake tensors among the inputs; None if there is neither.

    Args:
        inputs: tensors, also in lists, tuples and dictionaries.

    Raises:
        AssertionError: If there are several.

    >>> from tensorgrad._subclasses.fake_tensor import FakeTensorMode, detect_fake_mode
    >>> mode = FakeTensorMode()
    >>> detect_fake_mode([mode.from_tensor(torch.ones(2))]) is mode, detect_fake_mode()
    (True, None)
    """
    found = [mode for mode in (active_fake_mode(), *map(maybe_get_fake_mode, tree_leaves(inputs))) if mode is not None]
    for mode in found[1:]:
        if mode is not found[0]:
            raise AssertionError(f"fake mode ({found[0]}) doesn't match mode ({mode})")
    return found[0] if found else None
