"""The base class of all schedules."""

from __future__ import annotations

import warnings
from typing import Any

from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.tensor import Tensor

EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available."
)


class LRScheduler:
    """Base class of the schedules.

    A subclass defines `get_lr`, or only `_factor`, and `_get_closed_form_lr` if it has one.

    Args:
        optimizer: the optimizer whose groups' `"lr"` is set.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        TypeError: `optimizer` is not an optimizer.
        KeyError: a schedule is resumed and a group has no `"initial_lr"`.

    >>> class Halving(torch.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base / 2**self.last_epoch for base in self.base_lrs]
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = Halving(optimizer)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    _is_initial = False  # true during the step that __init__ takes, which sets the first rate
    _get_lr_called_within_step = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for a "
                    "fresh training run (not recommended)"
                )
        self.base_lrs = values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        optimizer._opt_called = False
        optimizer._step_before_schedule = optimizer.__dict__.get("step")  # type: ignore[attr-defined]
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_last_lr(self) -> list[Any]:
        """Returns the learning rate of each group, as last set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """Computes the learning rate of each group after `last_epoch` steps. Used by `step`."""
        factor = self._factor()
        self._warn_unless_stepping()
        if factor is None:
            return values(self.optimizer, "lr")
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _factor(self) -> float | None:
        """Returns the factor of this step on the rate, or `None` for no change."""
        raise NotImplementedError

    def _warn_unless_stepping(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", stacklevel=3
            )

    def step(self, epoch: int | None = None) -> None:
        """Sets the next learning rate."""
        if self._step_count == 1 and _overridden(self.optimizer):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. See more details at "
                "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                stacklevel=2,
            )
        elif self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
                "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to "
                "do this will result in PyTorch skipping the first value of the learning rate schedule. See more "
                "details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            lrs = self.get_lr() if epoch is None or closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set(lrs)

    def _set(self, lrs: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            put(group, "lr", lr)
        self._last_lr = values(self.optimizer, "lr")

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for `load_state_dict`, without the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned."""
        self.__dict__.update(state_dict)


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _overridden(optimizer: Optimizer) -> bool:
    """Returns whether `step` was replaced after the schedule was created, by a function that does not wrap it."""
    step = optimizer.__dict__.get("step")
    before = optimizer.__dict__.get("_step_before_schedule")
    return step is not None and step is not before and not hasattr(step, "__wrapped__")


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    groups = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [copied(value) for _ in range(groups)]
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, param_groups "
            f"has {groups}."
        )
    return [copied(v) for v in value]


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def values(optimizer: Optimizer, key: str) -> list[Any]:
    return [copied(group[key]) for group in optimizer.param_groups]


def put(group: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(group[key], Tensor):  # in place, as other code may hold a reference
        group[key].fill_(value.squeeze() if isinstance(value, Tensor) else value)
    else:
        group[key] = value
