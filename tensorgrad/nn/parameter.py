"""Tensors that a module owns: parameters (learned) and buffers (state that is not learned)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import tensorgrad as torch
from tensorgrad.system.names_elsewhere import elsewhere as _elsewhere
from tensorgrad.tensor import PLAIN, Tensor, share
from tensorgrad.tensor import disabled_torch_function as _disabled_torch_function


class _ParameterMeta(type):
    """As in PyTorch: parameters made of tensors of other classes keep their class, and are instances of `Parameter`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, plain=True, metaclass=_ParameterMeta):
    """A tensor that is registered in `parameters()` when it is assigned to a `tensorgrad.nn.Module`.

    Args:
        data: the tensor whose storage the parameter shares (nothing is copied); `None` makes an empty one.
        requires_grad: whether to compute gradients; by default True.

    Raises:
        RuntimeError: `requires_grad` is set for a dtype without gradients (integer or bool).

    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> w.requires_grad, w.is_leaf
    (True, True)
    >>> w
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    __slots__ = ()

    # What is made of parameters is not a parameter: also where a subclass overrides this and asks `super()`.
    __torch_function__ = _disabled_torch_function
    _results_keep_class = False

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = torch.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Parameter data has to be a Tensor, but got {type(data).__name__}")
        elif hasattr(data, "_as_parameter"):  # a class of tensors with a class of parameters of its own
            return data._as_parameter(requires_grad)
        elif data.__class__ not in PLAIN or hasattr(data, "__torch_dispatch__"):  # it keeps its class
            made: Any = data.detach().requires_grad_(requires_grad)
            if made.__class__ is not data.__class__:
                raise RuntimeError(
                    f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() "
                    f"returns an instance of the same type, but return type {type(made).__name__} was found instead. "
                    "To use the type as a Parameter, please correct the detach() semantics defined by its "
                    "__torch_dispatch__() implementation."
                )
            made.__dict__["_is_param"] = True
            return cast("Parameter", made)
        self: Any = share(data._array, data._storage, cls)
        if requires_grad:
            self.requires_grad_(True)
        return self

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__(**options)

    def __deepcopy__(self, memo: dict) -> Parameter:
        # As in PyTorch, and unlike for plain tensors, copies have no gradient and do not share memory with each other.
        done = memo.get(id(self))
        if done is None:
            done = memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return done


class Buffer(Tensor, plain=True):
    """A tensor that becomes a buffer of the module it is assigned to, as `register_buffer` would make it.

    Args:
        data: the tensor whose storage the buffer shares; `None` makes an empty one.
        persistent: whether `state_dict` includes it.

    >>> m = torch.nn.Module()
    >>> m.count = torch.nn.Buffer(torch.zeros(()))
    >>> list(m.state_dict())
    ['count']
    """

    __slots__ = ()

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = torch.empty(0)
        self: Any = share(data._array, data._storage, cls)
        if data.requires_grad:
            self.requires_grad_(True)
        self.persistent = persistent
        return self


def is_lazy(param: Any) -> bool:
    """Returns whether `param` is an uninitialized parameter or buffer, whose shape is not known yet.

    >>> [torch.nn.parameter.is_lazy(p) for p in (torch.nn.LazyLinear(2).weight, torch.nn.Linear(2, 2).weight)]
    [True, False]
    """
    return isinstance(param, Tensor) and hasattr(type(param), "materialize")


_LATER = ("UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin")  # rarely needed


if TYPE_CHECKING:
    from tensorgrad.nn.uninitialized import (  # noqa: F401
        UninitializedBuffer,
        UninitializedParameter,
        UninitializedTensorMixin,
    )

_elsewhere(__name__, dict.fromkeys(_LATER, "tensorgrad.nn.uninitialized"))
