"""Schedules that multiply the rate by a factor in each step, so that several can act on one optimizer."""

from __future__ import annotations

import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tensorgrad.optim.lr_scheduler.base import LRScheduler, values
from tensorgrad.optim.optimizer import Optimizer


class _ByFunction(LRScheduler):
    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if not isinstance(lr_lambda, list | tuple):
            lr_lambda = [lr_lambda] * groups
        elif len(lr_lambda) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
        self.lr_lambdas: list[Callable[[int], float]] = list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Like the base class. Functions are not saved; of other callables, the attributes are."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in self.lr_lambdas
        ]  # fmt: skip
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like the base class. Functions given at construction are kept."""
        self.__dict__.update((name, value) for name, value in state_dict.items() if name != "lr_lambdas")
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)


class LambdaLR(_ByFunction):
    """Sets the initial rate times `lr_lambda(number of steps)`; one function, or one per group.

    Args:
        optimizer: the optimizer whose learning rates are set.
        lr_lambda: computes the factor on the initial rate; or a list of one function for each group.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: the number of functions is not that of the groups.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda epoch: 1 / (epoch + 1))
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5, 0.3333, 0.25]
    """

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """Multiplies the current rate by `lr_lambda(number of steps)`; one function, or one per group.

    Args:
        optimizer: the optimizer whose learning rates are set.
        lr_lambda: computes the factor on the current rate; or a list of one function for each group.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        TypeError: `lr_lambda` is not a function.
        ValueError: the number of functions is not that of the groups.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        for function in lr_lambda if isinstance(lr_lambda, list | tuple) else [lr_lambda]:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        current = values(self.optimizer, "lr")
        if self._is_initial:
            return current
        return [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, current, strict=True)]


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` steps.

    Args:
        optimizer: the optimizer whose learning rates are set.
        step_size: the number of steps between reductions.
        gamma: the factor.
        last_epoch: the number of steps already taken; -1 to start.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for epoch in range(4):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` after each number of steps in `milestones`.

    Args:
        optimizer: the optimizer whose learning rates are set.
        milestones: the numbers of steps; one that occurs twice counts twice.
        gamma: the factor.
        last_epoch: the number of steps already taken; -1 to start.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch)
        return None if times is None else self.gamma**times

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Multiplies the rate by `factor` for the first `total_iters` steps.

    Args:
        optimizer: the optimizer whose learning rates are set.
        factor: from 0 to 1.
        total_iters: the number of steps.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: the factor is out of range.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _get_closed_form_lr(self) -> list[Any]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Multiplies the rate by a factor that changes linearly from `start_factor` to `end_factor`.

    Args:
        optimizer: the optimizer whose learning rates are set.
        start_factor: above 0, at most 1.
        end_factor: from 0 to 1.
        total_iters: the number of steps.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: a factor is out of range.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.3333, 0.5, 0.6667, 0.8333]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * done) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` in every step.

    Args:
        optimizer: the optimizer whose learning rates are set.
        gamma: the factor.
        last_epoch: the number of steps already taken; -1 to start.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Multiplies the initial rate by (1 - step / total_iters)^power, which is 0 after `total_iters` steps.

    Args:
        optimizer: the optimizer whose learning rates are set.
        total_iters: the number of steps.
        power: the exponent; 1 is linear.
        last_epoch: the number of steps already taken; -1 to start.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4, power=2.0)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5625, 0.25, 0.0625]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        left = 1.0 - self.last_epoch / self.total_iters
        left_before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return (left / left_before) ** self.power

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]
