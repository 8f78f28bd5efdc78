"""Averages of a model's weights during training, which often generalize better than the final weights.

Stochastic weight averaging (SWA) is the plain mean of the weights after each epoch of a late phase with a constant,
high learning rate (Izmailov et al., 2018, *Averaging Weights Leads to Wider Optima and Better Generalization*). The
exponential moving average (EMA) forgets old weights gradually (Polyak and Juditsky, 1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.batchnorm import _BatchNorm
from tensorgrad.nn.module import Module
from tensorgrad.optim.lr_scheduler.base import LRScheduler, per_group
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.tensor import Tensor

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns the function (average, current, number of models) → decay · average + (1 - decay) · current.

    Args:
        decay: from 0 to 1.

    Raises:
        ValueError: `decay` is out of range.

    >>> average = torch.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> average(torch.tensor(1.0), torch.tensor(3.0), 1)
    tensor(1.5000)
    """
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns the function (average, current, number n of models in the average) → the mean of all n + 1.

    >>> torch.optim.swa_utils.get_swa_avg_fn()(torch.tensor(1.0), torch.tensor(4.0), 2)
    tensor(2.)
    """

    @torch.no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list, list, Any], None]:
    """Like `get_ema_avg_fn`, for lists of tensors of one dtype; the averages are updated in place.

    >>> average = [torch.tensor(1.0)]
    >>> torch.optim.swa_utils.get_ema_multi_avg_fn(0.75)(average, [torch.tensor(3.0)], 1)
    >>> average
    [tensor(1.5000)]
    """
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param_list: list[Tensor], current_param_list: list[Tensor], _: Any) -> None:
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(current, 1 - decay)
            else:  # batch counts, for example
                average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[list, list, Any], None]:
    """Like `get_swa_avg_fn`, for lists of tensors of one dtype; the averages are updated in place.

    >>> average = [torch.tensor(1.0)]
    >>> torch.optim.swa_utils.get_swa_multi_avg_fn()(average, [torch.tensor(4.0)], 2)
    >>> average
    [tensor(2.)]
    """

    @torch.no_grad()
    def swa_update(averaged_param_list: list[Tensor], current_param_list: list[Tensor], num_averaged: Any) -> None:
        fraction = 1 / (float(num_averaged) + 1)
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(current, fraction)
            else:
                average.add_((current - average) / (num_averaged + 1))

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose weights are the average of the model's weights at each `update_parameters`.

    Args:
        model: the model that is being trained.
        device: the device of the copy; by default that of the model.
        avg_fn: (average, current, number of models in the average) → the new average; by default the plain mean. See
            `get_ema_avg_fn`.
        multi_avg_fn: the same for lists of tensors, in place; see `get_ema_multi_avg_fn`.
        use_buffers: average the buffers too; otherwise they are copied from the model.

    Attributes:
        module: the copy.
        n_averaged: the number of models in the average, a tensor.

    Raises:
        AssertionError: both functions are given.

    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> averaged = torch.optim.swa_utils.AveragedModel(model)
    >>> for weight in (1.0, 2.0, 6.0):
    ...     _ = torch.nn.init.constant_(model.weight, weight)
    ...     averaged.update_parameters(model)
    >>> averaged(torch.ones(1)).item()
    3.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[list, list, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Adds the current weights of `model` to the average."""
        mine, theirs = (
            [t.detach() for t in (chain(m.parameters(), m.buffers()) if self.use_buffers else m.parameters())]
            for m in (self.module, model)
        )
        theirs = [t.to(average.device) for average, t in zip(mine, theirs, strict=False)]
        mine = mine[: len(theirs)]
        if self.n_averaged == 0:
            for average, current in zip(mine, theirs, strict=True):
                average.copy_(current)
        elif self.multi_avg_fn is not None:
            self._average_alike(self.multi_avg_fn, mine, theirs)
        else:
            update = self.avg_fn or get_swa_avg_fn()
            for average, current in zip(mine, theirs, strict=True):
                average.copy_(update(average, current, self.n_averaged.to(average.device)))
        if not self.use_buffers:
            for mine_, theirs_ in zip(self.module.buffers(), model.buffers(), strict=True):
                mine_.detach().copy_(theirs_.detach().to(mine_.device))
        self.n_averaged += 1

    def _average_alike(self, update: Callable, mine: list[Tensor], theirs: list[Tensor]) -> None:
        """Averages the tensors of each device and dtype together."""
        alike: dict[tuple, tuple[list[Tensor], list[Tensor]]] = {}
        for average, current in zip(mine, theirs, strict=True):
            averages, currents = alike.setdefault((average.device, average.dtype), ([], []))
            averages.append(average)
            currents.append(current)
        for (device, _), lists in alike.items():
            update(*lists, self.n_averaged.to(device))


@torch.no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of all batch norms, which averaged weights require.

    Args:
        loader: an iterable of batches of inputs, or of lists and tuples that start with the inputs.
        model: the model; it is called with each batch.
        device: the device to move the inputs to.

    >>> model = torch.nn.BatchNorm1d(1)
    >>> torch.optim.swa_utils.update_bn([torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])], model)
    >>> model.running_mean
    tensor([3.])
    """
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None  # weights all batches equally
    was_training = model.training
    model.train()
    for batch in loader:
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        model(inputs if device is None else inputs.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the rate from its current value to the constant `swa_lr` in `anneal_epochs` steps.

    Args:
        optimizer: the optimizer whose learning rates are set.
        swa_lr: the final rate, one for all or one per group.
        anneal_epochs: the number of steps.
        anneal_strategy: `cos` or `linear`.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: a setting is out of range.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """Returns the progress from the first rate to the last, from 0 to 1, after a fraction `t` of the steps."""
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self.anneal_func(max(0, min(1, n / max(1, self.anneal_epochs)))) for n in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            # The first rate is computed from the current one, as other schedules may have changed it.
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
