"""The optimizers as functions of lists of tensors, for programs that manage parameters, gradients and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorgrad.tensor import Tensor


class _Given:
    """A parameter with a given gradient instead of its own."""

    __slots__ = ("_grad", "_tensor")

    def __init__(self, tensor: Tensor, grad: Tensor) -> None:
        self._tensor, self._grad = tensor, grad

    @property
    def grad(self) -> Tensor:
        return self._grad

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def functional(optimizer: Any, name: str, kept: list[str]) -> Callable[..., None]:
    """Returns PyTorch's function for one step of an optimizer.

    Args:
        optimizer: the class of the optimizer.
        name: the name of the function.
        kept: the names of the entries of a parameter's state, one list argument each, in order.

    Returns:
        `step(params, grads, *lists of state tensors, **settings)`, which changes the tensors in these lists.

    >>> from tensorgrad.optim.sgd import sgd
    >>> w, g = torch.ones(2), torch.tensor([1.0, -2.0])
    >>> sgd(
    ...     [w], [g], [None], lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False
    ... )
    >>> w
    tensor([0.9000, 1.2000])
    """

    def step(params: list[Tensor], grads: list[Tensor], *lists: list[Any], **settings: Any) -> None:
        if len(lists) != len(kept):
            raise TypeError(f"{name}() takes {len(kept)} lists of state ({', '.join(kept)}), but got {len(lists)}")
        if "step" in kept and not all(isinstance(t, Tensor) for t in lists[kept.index("step")]):
            raise RuntimeError("API has changed, `state_steps` argument must contain a list of singleton tensors")
        runner: Any = optimizer.__new__(optimizer)
        runner._forget()
        group: dict[str, Any] = {"foreach": None, **optimizer._flags.missing, **settings}
        for pair in (("betas", "beta1", "beta2"), ("etas", "etaminus", "etaplus")):
            if pair[1] in settings:
                group[pair[0]] = settings[pair[1]], settings[pair[2]]
        if "step_size_min" in settings:
            group["step_sizes"] = settings["step_size_min"], settings["step_size_max"]
        runner.defaults = {"differentiable": False, **group}
        group["params"] = given = [_Given(p, g) for p, g in zip(params, grads, strict=True)]
        runner.state = {
            p: {key: values[i] for key, values in zip(kept, lists, strict=True) if len(values) > i}
            for i, p in enumerate(given)
        }
        runner._step_group(0, group)
        for key, values in zip(kept, lists, strict=True):  # a momentum buffer may have been created
            values[:] = [runner.state[p][key] for p in given if key in runner.state[p]]

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"""Makes one step of :class:`~tensorgrad.optim.{optimizer.__name__}` on lists of tensors.

    Args:
        params, grads: lists of parameters and of their gradients.
        lists: lists of the state of each parameter: {", ".join(kept)}. The tensors are changed in place.
        settings: those of the class, by name (pairs are split: beta1, beta2).
    """
    return step
