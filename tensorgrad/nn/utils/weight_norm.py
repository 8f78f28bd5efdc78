"""Weight normalization (Salimans and Kingma, 2016): a weight as a length times a direction, w = g · v / ‖v‖."""

from __future__ import annotations

import warnings
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter, is_lazy
from tensorgrad.ops.nn.weight_norm import _weight_norm
from tensorgrad.tensor import Tensor


class WeightNorm:
    """The hook that computes the weight, w = g · v / ‖v‖, before every call. `weight_norm` registers it.

    Args:
        name: the name of the parameter.
        dim: the dimension with one length per index; `None` for a single length for the whole weight.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> layer = torch.nn.utils.weight_norm(torch.nn.Linear(2, 1))
    >>> layer.weight_g.data, layer.weight_v.data = torch.tensor([[10.0]]), torch.tensor([[3.0, 4.0]])
    >>> from tensorgrad.nn.utils.weight_norm import WeightNorm
    >>> hook = WeightNorm("weight", 0)
    >>> hook.compute_weight(layer).detach()
    tensor([[6., 8.]])
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Returns the weight computed from length and direction."""
        return _weight_norm(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Replaces the parameter `name` by `name_g` and `name_v`, and registers the hook."""
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if any(isinstance(hook, WeightNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying weight normalization"
            )
        del module._parameters[name]
        module.register_parameter(f"{name}_g", Parameter(torch.norm_except_dim(weight, 2, hook.dim).data))
        module.register_parameter(f"{name}_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Makes the weight an ordinary parameter again, with its current value."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        for part in ("_g", "_v"):
            del module._parameters[self.name + part]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Replaces a weight by the product of two parameters: its lengths `name_g` and its directions `name_v`.

    Deprecated: `tensorgrad.nn.utils.parametrizations.weight_norm` does the same, and reads these checkpoints.

    Args:
        module: the layer, changed in place.
        name: the name of its parameter.
        dim: the dimension with one length per index; `None` for a single length for the whole weight.

    Returns:
        `module`.

    Raises:
        RuntimeError: the parameter is already normalized.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> layer = torch.nn.utils.weight_norm(torch.nn.Linear(20, 40))
    >>> layer.weight_g.shape, layer.weight_v.shape
    (torch.Size([40, 1]), torch.Size([40, 20]))
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `weight_norm`; the weight keeps its value. Returns `module`.

    Raises:
        ValueError: the parameter is not normalized.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> layer = torch.nn.utils.weight_norm(torch.nn.Linear(2, 2))
    >>> list(torch.nn.utils.remove_weight_norm(layer).state_dict())
    ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
