"""`DataParallel`: only one device is used, so wrapped modules run unchanged."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module


class DataParallel(Module):
    """Runs `module` on one device. Names in the `state_dict` have the prefix `module.`, as in PyTorch.

    Args:
        module: the model, stored as the attribute `module`.
        device_ids, output_device: ignored, as only one device is used.
        dim: stored, but not used; the dimension along which PyTorch splits a batch.

    >>> model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    >>> list(model.state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's own result."""
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids=None, output_device=None, dim=0, module_kwargs=None) -> Any:
    """Returns `module(*inputs, **module_kwargs)`, computed on one device.

    Args:
        module: the module to call.
        inputs: its positional arguments, as a tuple, or a single argument that is not a tuple.
        device_ids, output_device, dim: ignored, as only one device is used.
        module_kwargs: its keyword arguments.

    >>> torch.nn.parallel.data_parallel(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


def is_parallel(model: Module) -> bool:
    """Returns whether a model is wrapped in `DataParallel`."""
    return isinstance(model, DataParallel)
