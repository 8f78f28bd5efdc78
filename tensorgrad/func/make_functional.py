"""The older functional API for modules from the package `functorch`: parameters in tuples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

from tensorgrad.func.modules import functional_call, stack_module_state
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor

Tensors = tuple[Tensor, ...]


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future version of PyTorch. "
        f"Please use `torch.func.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class _Stateless(Module):
    """A module without data: a copy on the meta device, and the names of the tensors that it needs."""

    def __init__(self, model: Module):
        super().__init__()
        self.stateless_model = copy.deepcopy(model).to("meta")
        self.param_names = tuple(name for name, _ in model.named_parameters())
        self.buffer_names = tuple(name for name, _ in model.named_buffers())
        names: dict[int, list[str]] = {}  # id of a tensor -> its names; the copy on meta has a tensor for each
        for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
            for name, tensor in named:
                names.setdefault(id(tensor), []).append(name)
        self.names_of = {first: (first, *others) for first, *others in names.values()}

    def _call(self, tensors: dict[str, Tensor], args: tuple, kwargs: dict[str, Any]) -> Any:
        tied = {name: tensor for first, tensor in tensors.items() for name in self.names_of[first]}
        result = functional_call(self.stateless_model, tied, args, kwargs)
        tensors.update((name, tied[name]) for name in tensors)
        return result


class FunctionalModule(_Stateless):
    """The type returned by `make_functional`: call it with the parameters, then the module's arguments."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """Runs the module with these parameters."""
        return self._call(dict(zip(self.param_names, params, strict=True)), args, kwargs)


class FunctionalModuleWithBuffers(_Stateless):
    """The type returned by `make_functional_with_buffers`: call it with parameters, buffers, then arguments."""

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """Runs the module with these tensors. Buffers that it updates are modified in place."""
        given = dict(zip(self.buffer_names, buffers, strict=True))
        return self._call(dict(zip(self.param_names, params, strict=True)) | given, args, kwargs)


def _copies(tensors: Any, tracking: bool) -> Tensors:
    return tuple(t.detach().clone().requires_grad_(t.requires_grad and tracking) for _, t in tensors)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, Tensors]:
    """Deprecated: returns a function of parameters, and copies of the module's parameters.

    Raises:
        RuntimeError: If the module has buffers.

    >>> import warnings
    >>> from tensorgrad.functorch import make_functional
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> function, params = make_functional(torch.nn.Linear(2, 1, bias=False))
    >>> function((torch.tensor([[3.0, 4.0]]),), torch.ones(2))
    tensor([7.])
    """
    _deprecated("make_functional", "functional_call")
    if list(model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    return FunctionalModule(model), _copies(model.named_parameters(), not disable_autograd_tracking)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """Deprecated: returns a function of parameters and buffers, and copies of the module's.

    >>> import warnings
    >>> from tensorgrad.functorch import make_functional_with_buffers
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> function, params, buffers = make_functional_with_buffers(torch.nn.BatchNorm1d(2))
    >>> function(params, buffers, torch.ones(3, 2)).shape, buffers[-1]
    (torch.Size([3, 2]), tensor(1))
    """
    _deprecated("make_functional_with_buffers", "functional_call")
    params = _copies(model.named_parameters(), not disable_autograd_tracking)
    return FunctionalModuleWithBuffers(model), params, _copies(model.named_buffers(), False)


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """Deprecated: returns a function of parameters and buffers, and the stacked ones of several modules of one class.

    Raises:
        RuntimeError: If there are no modules, or if their classes or modes differ.

    >>> import warnings
    >>> from tensorgrad.functorch import combine_state_for_ensemble, vmap
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> function, params, buffers = combine_state_for_ensemble([torch.nn.Linear(2, 1) for _ in range(3)])
    >>> vmap(function, (0, 0, None))(params, buffers, torch.ones(4, 2)).shape
    torch.Size([3, 4, 1])
    """
    _deprecated("combine_state_for_ensemble", "stack_module_state")
    try:
        params, buffers = stack_module_state(models)
    except RuntimeError as error:
        raise RuntimeError(str(error).replace("stack_module_state", "combine_state_for_ensemble")) from None
    function = FunctionalModuleWithBuffers(models[0])
    return function, tuple(t.detach() for t in params.values()), tuple(t.detach() for t in buffers.values())
