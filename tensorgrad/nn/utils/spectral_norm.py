"""Spectral normalization (Miyato et al., 2018): a weight divided by its largest singular value.

The singular value is estimated by the power method: u ← W v / ‖W v‖ and v ← Wᵀ u / ‖Wᵀ u‖ converge to the singular
vectors, and the value is uᵀ W v. One step per training call is enough, as weights change little from call to call.
"""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.nn import functional as F
from tensorgrad.nn.conv import _ConvTransposeNd
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter, is_lazy
from tensorgrad.tensor import Tensor


def output_dim(module: Module, dim: int | None) -> int:
    """Returns the user's choice or, without one, the dimension of the weight that corresponds to the outputs."""
    return dim if dim is not None else 1 if isinstance(module, _ConvTransposeNd) else 0


class SpectralNorm:
    """The hook that divides the weight by its largest singular value before every call; see `spectral_norm`.

    Args:
        name, n_power_iterations, dim, eps: those of `spectral_norm`; here `dim` is an int.

    Raises:
        ValueError: `n_power_iterations` is not positive.

    >>> from tensorgrad.nn.utils.spectral_norm import SpectralNorm
    >>> SpectralNorm(dim=1).reshape_weight_to_matrix(torch.zeros(2, 3, 5)).shape
    torch.Size([3, 10])
    """

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """Reshapes the weight to (outputs, everything else)."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Returns the weight divided by its estimated largest singular value, after optional power iterations."""
        weight, u, v = (getattr(module, self.name + part) for part in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):  # in place: the buffers are part of the module's state
                    v = F.normalize(torch.mv(matrix.t(), u), dim=0, eps=self.eps, out=v)
                    u = F.normalize(torch.mv(matrix, v), dim=0, eps=self.eps, out=u)
                u, v = u.clone(), v.clone()  # backward needs these values, and the next call overwrites the buffers
        return weight / torch.dot(u, torch.mv(matrix, v))

    def remove(self, module: Module) -> None:
        """Makes the weight an ordinary parameter again, with its current value."""
        with torch.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for part in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + part)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Replaces the parameter `name` by `name_orig`, and registers the hook."""
        if any(isinstance(hook, SpectralNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying spectral normalization"
            )
        with torch.no_grad():
            rows, columns = hook.reshape_weight_to_matrix(weight).size()
            u, v = (F.normalize(weight.new_empty(n).normal_(0, 1), dim=0, eps=eps) for n in (rows, columns))
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        setattr(module, name, weight.data)  # so that the attribute exists before the first call
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Reads checkpoints of PyTorch 0.4, which contain the normalized weight and u, but not v."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        hook = self.fn
        version = local_metadata.get("spectral_norm", {}).get(f"{hook.name}.version")
        key = prefix + hook.name
        complete = all(key + part in state_dict for part in ("_orig", "_u", "_v")) and key not in state_dict
        if version is not None or complete:
            return
        missing = [key + part for part in ("_orig", "", "_u") if key + part not in state_dict]
        if missing:
            missing_keys += missing if strict else []
            return
        with torch.no_grad():
            weight, u = state_dict[f"{key}_orig"], state_dict[f"{key}_u"]
            sigma = (weight / state_dict.pop(key)).mean()
            matrix = hook.reshape_weight_to_matrix(weight)
            # The v that minimizes ‖W v - u‖, scaled so that uᵀ W v is sigma.
            v = (matrix.t().mm(matrix).pinverse() @ (matrix.t() @ u.unsqueeze(1))).squeeze(1)
            state_dict[f"{key}_v"] = v.mul_(sigma / torch.dot(u, torch.mv(matrix, v)))


class SpectralNormStateDictHook:
    """Writes the version of this normalization into the metadata of checkpoints."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = f"{self.fn.name}.version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides a weight by its largest singular value before every call; the parameter is renamed to `name_orig`.

    `tensorgrad.nn.utils.parametrizations.spectral_norm` does the same by the newer mechanism.

    Args:
        module: the layer, changed in place.
        name: the name of its parameter.
        n_power_iterations: the steps of the power method for each call in training mode.
        eps: the lower bound of the norms that vectors are divided by.
        dim: the dimension of the outputs; by default 0, or 1 for transposed convolutions.

    Returns:
        `module`.

    >>> layer = torch.nn.utils.spectral_norm(torch.nn.Linear(20, 40))
    >>> layer.weight_u.shape
    torch.Size([40])
    """
    SpectralNorm.apply(module, name, n_power_iterations, output_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undoes `spectral_norm`; the weight keeps its normalized value. Returns `module`.

    Raises:
        ValueError: the parameter is not normalized.

    >>> layer = torch.nn.utils.spectral_norm(torch.nn.Linear(2, 2))
    >>> list(torch.nn.utils.remove_spectral_norm(layer).state_dict())
    ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for table in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, hook in list(table.items()):
            mine = isinstance(hook, SpectralNormStateDictHook | SpectralNormLoadStateDictPreHook)
            if mine and hook.fn.name == name:
                del table[key]
    return module
