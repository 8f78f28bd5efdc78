"""Gradients of each sample of a batch by itself, as training with differential privacy needs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from typing import Any

import tensorgrad as torch
from tensorgrad.tensor import Tensor
from tensorgrad.utils import _pytree as pytree


def call_for_per_sample_grads(
    module: Any, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable:
    """Returns a module's `forward` after which `backward` fills `grad_sample` of its parameters, and not `grad`.

    The module is called once for all samples (by `vmap`), with a batch of one each. So layers that mix samples, such as
    BatchNorm, see each alone.

    Args:
        module: the module.
        batch_size: the number of samples; by default the size that all tensors among the arguments have.
        loss_reduction: "sum" or "mean": how the loss brings the samples together. For "mean" the gradients are
            multiplied by the number of samples.
        batch_first: whether dimension 0 of the arguments and the result is that of the samples, not dimension 1.

    Raises:
        RuntimeError: An argument is not what is said here; a parameter has a `grad_sample` already; or, when it is
            called, the batch size cannot be told from the arguments.

    >>> from tensorgrad.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> layer = torch.nn.Linear(4, 3)
    >>> call_for_per_sample_grads(layer)(torch.randn(5, 4)).sum().backward()
    >>> layer.weight.grad_sample.shape, layer.bias.grad_sample.shape, layer.weight.grad
    (torch.Size([5, 3, 4]), torch.Size([5, 3]), None)
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, torch.nn.Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for weight in module.parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                "Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls "
                f"without clearing gradients. Please clear out the grad_sample parameter of {weight}"
            )
    dim = 0 if batch_first else 1

    @wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        sizes = [leaf.shape[dim] for leaf in leaves if isinstance(leaf, Tensor)]
        size = _number_of_samples(sizes, batch_size)
        parameters = {
            name: _EachSamples.apply(p, size, size if loss_reduction == "mean" else 1)
            for name, p in module.named_parameters()
            if p.requires_grad
        }

        def alone(parameters: dict[str, Tensor], *leaves: Any) -> Any:
            given = [leaf.unsqueeze(dim) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(given, spec)
            result = torch.func.functional_call(module, parameters, args, kwargs)
            return pytree.tree_map_only(Tensor, lambda t: t.squeeze(dim), result)

        where = (0, *(dim if isinstance(leaf, Tensor) else None for leaf in leaves))
        return torch.func.vmap(alone, in_dims=where, out_dims=dim, randomness="different")(parameters, *leaves)

    return forward


def _number_of_samples(sizes: list[int], batch_size: int | None) -> int:
    if batch_size is not None:
        for size in sizes:
            if size != batch_size:
                raise RuntimeError(
                    "Expected ExpandedWeights to have batch size matching input but got input batch size of "
                    f"{size} with ExpandedWeight of batch size {batch_size}"
                )
        return batch_size
    if not sizes:
        raise RuntimeError(
            "Unable to find a tensor in the passed args and kwargs. They may not be pytree-able and so "
            "ExpandedWeights cannot compute the batch size from the inputs. Please specify it explicitly"
        )
    for before, size in pairwise(sizes):
        if size != before:
            raise RuntimeError(
                f"When computing batch size, found at least one input with batch size {before} and one with batch "
                f"size {size}. Please specify it explicitly using the batch size kwarg in call_for_per_sample_grads"
            )
    return sizes[0]


class _EachSamples(torch.autograd.Function):
    """A copy of a parameter for each sample, whose gradients become the parameter's `grad_sample`."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, size: int, factor: int) -> Tensor:
        ctx.parameter, ctx.factor = parameter, factor
        return parameter.expand(size, *parameter.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        parameter = ctx.parameter
        if ctx.factor != 1:
            g = g * ctx.factor
        before = getattr(parameter, "grad_sample", None)
        parameter.grad_sample = g if before is None else before + g
        return None, None, None
