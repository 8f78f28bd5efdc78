"""Modules as functions of their parameters, singly or stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorgrad as torch
from tensorgrad.tensor import Tensor

if TYPE_CHECKING:  # `torch.vmap`, also in this package, does not need the modules
    from tensorgrad.nn.module import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module(*args, **kwargs)` with other tensors in place of its parameters and buffers.

    Args:
        parameter_and_buffer_dicts: The tensors by name, in one dictionary or several; others are unchanged. If the
            module replaces a buffer, the dictionary contains the new one afterwards.
        args: The arguments, in a tuple; or a single one that is not a tuple.
        tie_weights: Replace a tensor that the module has under several names under all of them.
        strict: Raise an error for missing or unexpected names.
        module: the module; it is unchanged afterwards.

    Raises:
        ValueError: If there are two tensors for the same parameter or buffer.
        RuntimeError: See `strict`.

    >>> layer = torch.nn.Linear(2, 1)
    >>> tensors = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    >>> torch.func.functional_call(layer, tensors, torch.tensor([[3.0, 4.0]]))
    tensor([[7.]])
    """
    from tensorgrad.nn.utils.stateless import _functional_call, merged

    tensors = merged(parameter_and_buffer_dicts)
    return _functional_call(module, tensors, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Module] | Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stacks the parameters and buffers of several modules of one class by name, for `vmap` over an ensemble.

    Raises:
        RuntimeError: If there are no modules, or if their classes, modes or `requires_grad` differ.

    >>> from tensorgrad.func import functional_call, stack_module_state, vmap
    >>> models = [torch.nn.Linear(2, 1) for _ in range(3)]
    >>> params, buffers = stack_module_state(models)
    >>> params["weight"].shape
    torch.Size([3, 1, 2])
    >>> def run(params, buffers, x):
    ...     return functional_call(models[0], (params, buffers), (x,))
    >>> vmap(run, in_dims=(0, 0, None))(params, buffers, torch.ones(4, 2)).shape
    torch.Size([3, 4, 1])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return _stacked(parameters), _stacked(buffers)


def _stacked(members: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    stacked = {}
    for name in members[0]:
        tensors = [member[name] for member in members]
        wanted = {tensor.requires_grad for tensor in tensors}
        if len(wanted) > 1:
            raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
        made = torch.stack(tensors)
        stacked[name] = made.detach().requires_grad_() if wanted == {True} else made
    return stacked


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Makes every batch norm in `root` discard and stop tracking running statistics; returns `root`.

    >>> net = torch.func.replace_all_batch_norm_modules_(torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
    >>> list(net.state_dict())
    ['0.weight', '0.bias']
    """
    from tensorgrad.nn.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
