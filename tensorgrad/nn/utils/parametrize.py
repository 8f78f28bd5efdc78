"""Parametrizations: a parameter or buffer of a module as a function of other tensors, which are learned instead.

After `register_parametrization(layer, "weight", Symmetric())`, the parameter is
`layer.parametrizations.weight.original`, and `layer.weight` computes `Symmetric()(original)` whenever it is read.
For this, the layer gets a new class, derived from its former class, with a property called `weight`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.container import ModuleDict, ModuleList
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter
from tensorgrad.tensor import Tensor

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """A context manager in which each parametrized tensor is computed only once, when it is first read.

    This is useful if a module is called many times per step, such as the cell of a recurrent network.

    >>> from tensorgrad.nn.utils import parametrize
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> with parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first to last, with the original tensor(s) that they are applied to.

    `register_parametrization` creates it. The originals are called `original`; or `original0`,
    `original1`, ... if the first parametrization has a `right_inverse` that returns several tensors.

    Args:
        modules: the parametrizations.
        original: the parameter or buffer that they replace.
        unsafe: allow the parametrizations to change its dtype and shape.

    Raises:
        ValueError: there are no modules, or their results have another dtype or shape without `unsafe`.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> layer.parametrizations.weight
    ParametrizationList(
      (0): _WeightNorm()
    )
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        start: Any = original
        with torch.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # then the tensor itself is the original
                        start = module.right_inverse(start)
        if not isinstance(start, Tensor | Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(start).__name__}"
            )
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if isinstance(start, Tensor) else len(start)
        if isinstance(start, Tensor):
            self._keep_one(original, start)
        else:
            self._keep_several(original, start)
        if not unsafe:
            self._check(shape, dtype)

    def _keep_one(self, original: Tensor, start: Tensor) -> None:
        for what in ("dtype", "device"):
            had, has = getattr(original, what), getattr(start, what)
            if had != has:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                    f"original.{what}: {had}\nright_inverse(original).{what}: {has}"
                )
        original.data = start.data  # keeps the parameter object, which an optimizer may already reference
        _register(self, "original", original)

    def _keep_several(self, original: Tensor, start: Sequence) -> None:
        for i, value in enumerate(start):
            if not isinstance(value, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{i} of the sequence with type {type(value).__name__}."
                )
            if isinstance(original, Parameter):
                value = Parameter(value.detach(), original.requires_grad)
            value.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", value)

    def _check(self, shape: Any, dtype: Any) -> None:
        made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        for what, had, has in (("dtype", dtype, made.dtype), ("shape", shape, made.shape)):
            if had != has:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is "
                    f"enabled.\nunparametrized {what}: {had}\nparametrized {what}: {has}"
                )

    def right_inverse(self, value: Any) -> None:
        """Sets the original tensor(s) so that the parametrized one becomes `value`. Called by an assignment.

        Raises:
            RuntimeError: a parametrization has no `right_inverse`.
            ValueError: the type, dtype or number of the tensors it returns is wrong.
        """
        with torch.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                        f"{self.original.dtype}"
                    )
                self.original.data = value.data
                return
            if not isinstance(value, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                    f"length {len(value)}."
                )
            for i, tensor in enumerate(value):
                original = getattr(self, f"original{i}")
                if not isinstance(tensor, Tensor):
                    raise ValueError(
                        f"`right_inverse` must return a sequence of tensors. Got element {i} of type "
                        f"{type(tensor).__name__}"
                    )
                if original.dtype != tensor.dtype:
                    raise ValueError(
                        f"Tensor {i} returned by `right_inverse` has dtype {tensor.dtype} while `original{i}` has "
                        f"dtype {original.dtype}"
                    )
                original.data = tensor.data

    def forward(self) -> Any:
        """Returns the parametrized tensor."""
        first, *others = self
        if self.is_tensor:
            value = first(self.original)
        else:
            value = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in others:
            value = module(value)
        return value


# --- the class of a module that has parametrizations -----------------------------------------------------------------


def _deepcopy(self: Any, memo: dict) -> Any:
    if id(self) not in memo:
        cls: Any = type(self)  # the copy gets its own class: removing a parametrization deletes a property of the class
        own: Any = type(cls.__name__, cls.__bases__, dict(vars(cls)))
        memo[id(self)] = made = own.__new__(own)
        made.__setstate__(copy.deepcopy(self.__dict__, memo))
    return memo[id(self)]


def _getstate(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _give_own_class(module: Any) -> None:
    cls: type = type(module)
    methods: dict[str, Callable] = {"__getstate__": _getstate}
    if not hasattr(cls, "__deepcopy__"):
        methods["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), methods)


def _make_property(module: Any, name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


# --- public functions ------------------------------------------------------------------------------------------------


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Replaces `module.<tensor_name>` by `parametrization(original)`, where the original is learned instead.

    If the parametrization has a method `right_inverse(tensor)`, it computes the initial original, which may be
    several tensors: `parametrization(*right_inverse(t))` should be `t`. It also makes the tensor assignable.
    Several parametrizations of one tensor are applied one after another.

    Args:
        module: the module, changed in place.
        tensor_name: the name of its parameter or buffer.
        parametrization: a module that maps a tensor to a tensor.
        unsafe: allow changes of dtype and shape; nothing is checked.

    Returns:
        `module`.

    Raises:
        ValueError: there is no such tensor, or the parametrization changes its dtype or shape.

    >>> from tensorgrad.nn.utils import parametrize
    >>> class Symmetric(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = parametrize.register_parametrization(torch.nn.Linear(3, 3), "weight", Symmetric())
    >>> torch.equal(layer.weight, layer.weight.T)
    True
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_addition(module, tensor_name, parametrization)
        parametrizations = module.parametrizations[tensor_name]
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        parametrizations = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_own_class(module)
            module.parametrizations = ModuleDict()
        _make_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _check_addition(module: Any, name: str, parametrization: Any) -> None:
    """Raises ValueError if another parametrization, or its inverse, would change dtype or shape."""
    before = getattr(module, name)
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        had, has = getattr(before, what), getattr(after, what)
        if had != has:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless the `unsafe` flag is "
                f"enabled.\nmodule.{name}.{what}: {had}\nparametrization(module.{name}).{what}: {has}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what in ("dtype", "shape"):
        had, has = getattr(before, what), getattr(back, what)
        if had != has:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, "
                f"unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {had}\nreturned {what}: {has}"
            )


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Returns whether a module has parametrizations, of the named tensor or of any tensor.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> [torch.nn.utils.parametrize.is_parametrized(layer, name) for name in ("weight", "bias")]
    [True, False]
    """
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Makes `module.<tensor_name>` an ordinary parameter or buffer again; returns `module`.

    Args:
        leave_parametrized: keep the parametrized value; if False, restore the original tensor.

    Raises:
        ValueError: the tensor is not parametrized; or, with `leave_parametrized=False`, has several originals.

    >>> from tensorgrad.nn.utils import parametrize
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> parametrize.remove_parametrizations(layer, "weight")
    Linear(in_features=2, out_features=2, bias=True)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        value = parametrizations.original
        if leave_parametrized:
            with torch.no_grad():
                value.data = getattr(module, tensor_name).data
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        value = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, value)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """Returns the class that a module had before it was parametrized.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    >>> type(layer).__name__, torch.nn.utils.parametrize.type_before_parametrizations(layer).__name__
    ('ParametrizedLinear', 'Linear')
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Any, to_module: Any, tensor_name: str | None = None) -> Any:
    """Registers the parametrizations of one module (of one tensor or all) on another, with their original tensors.

    Returns:
        `to_module`; unchanged if `from_module` has no parametrizations.

    >>> layer, other = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2)), torch.nn.Linear(2, 2)
    >>> other = torch.nn.utils.parametrize.transfer_parametrizations_and_params(layer, other)
    >>> torch.equal(layer.weight, other.weight)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        theirs = from_module.parametrizations[name]
        for parametrization in theirs:
            register_parametrization(to_module, name, parametrization)
        mine = to_module.parametrizations[name]
        names = ["original"] if theirs.is_tensor else [f"original{i}" for i in range(theirs.ntensors)]
        for original in names:
            setattr(mine, original, getattr(theirs, original))
    return to_module
