"""Schedules that follow a cosine."""

from __future__ import annotations

import math
from typing import Any

from tensorgrad.optim.lr_scheduler.base import LRScheduler, values
from tensorgrad.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Follows a cosine from the initial rate down to `eta_min` in `T_max` steps, then up again, and so on.

    After t steps: eta_min + (lr - eta_min) · (1 + cos(π t / T_max)) / 2 (Loshchilov and Hutter, 2016, *SGDR: Stochastic
    Gradient Descent with Warm Restarts*).

    Args:
        optimizer: the optimizer whose learning rates are set.
        T_max: the number of steps from the initial to the minimum rate.
        eta_min: the minimum rate.
        last_epoch: the number of steps already taken; -1 to start.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.8536, 0.5, 0.1464]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        if self._is_initial:
            return values(self.optimizer, "lr")
        t, T, low = self.last_epoch, self.T_max, self.eta_min
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (t - 1 - T) % (2 * T) == 0:  # at the minimum, the recursion divides by zero
            rise = (1 - math.cos(math.pi / T)) / 2
            return [g["lr"] + (base - low) * rise for base, g in zip(self.base_lrs, groups, strict=True)]
        factor = (1 + math.cos(math.pi * t / T)) / (1 + math.cos(math.pi * (t - 1) / T))
        return [factor * (g["lr"] - low) + low for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Like `CosineAnnealingLR`, but restarts after `T_0` steps, then `T_mult` times as many, and so on.

    Args:
        optimizer: the optimizer whose learning rates are set.
        T_0: the number of steps of the first cycle.
        T_mult: the factor by which each cycle is longer than the previous one.
        eta_min: the minimum rate.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: a setting is out of range, or has the wrong type.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, float | int):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0: Any = T_0
        self.T_i: Any = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: Any = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Sets the next rate; `epoch` may be a fraction."""
        if epoch is None:
            epoch = max(self.last_epoch + 1, 0)
            self.T_cur = self.T_cur + 1 if self.last_epoch >= 0 else 0
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.T_cur, self.T_i = epoch, self.T_0
            if epoch >= self.T_0 and self.T_mult == 1:
                self.T_cur = epoch % self.T_0
            elif epoch >= self.T_0:
                n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
                self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            lrs = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(lrs)
