"""`torch.nn.parallel`: one device is all there is, so wrapped modules run as they are."""

from __future__ import annotations

from typing import Any

from tensorgrad.nn.module import Module


class DataParallel(Module):
    """Runs `module` on one device; the `state_dict` has the prefix `module.`, as in PyTorch.

    Args:
        module: the model, kept as the attribute `module`.
        device_ids, output_device: taken and not used: there is one device.
        dim: kept; the dimension along which PyTorch would split a batch.

    >>> import tensorgrad as torch
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


class DistributedDataParallel(Module):
    """Always raises RuntimeError: training in several processes is not included.

    >>> import tensorgrad as torch
    >>> torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    Traceback (most recent call last):
    RuntimeError: DistributedDataParallel: training in several processes is not included
    """

    def __init__(self, module: Module, *args: Any, **kwargs: Any):
        raise RuntimeError("DistributedDataParallel: training in several processes is not included")


def data_parallel(module: Module, inputs: Any, device_ids=None, output_device=None, dim=0, module_kwargs=None) -> Any:
    """`module(*inputs, **module_kwargs)`, on one device.

    Args:
        module: what is called.
        inputs: its positional arguments: a tuple, or one thing that is not a tuple.
        device_ids, output_device, dim: taken and not used: there is one device.
        module_kwargs: its keyword arguments.

    >>> import tensorgrad as torch
    >>> torch.nn.parallel.data_parallel(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


def is_parallel(model: Module) -> bool:
    """Whether a model is wrapped in `DataParallel`."""
    return isinstance(model, DataParallel)
