"""Schedules that combine others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tensorgrad.optim.lr_scheduler.base import LRScheduler, put, values
from tensorgrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tensorgrad.optim.optimizer import Optimizer


class _Several(LRScheduler):
    """Schedulers that act together on one optimizer."""

    _schedulers: Any

    def _check(self, schedulers: Sequence[Any], optimizer: Optimizer | None, verb: str) -> Optimizer:
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler{verb}, but got no scheduler.")
        found = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
                )
            if found is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different from "
                    f"{type(found).__name__}."
                )
        return found

    def state_dict(self) -> dict[str, Any]:
        """Like the base class, with the state of each scheduler."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like the base class, with the state of each scheduler."""
        self.__dict__.update((name, value) for name, value in state_dict.items() if name != "_schedulers")
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Several):
    """Runs schedulers one after another; `milestones` has the numbers of steps after which the next one starts.

    Args:
        optimizer: the optimizer whose learning rates are set.
        schedulers: the schedulers, all of this optimizer.
        milestones: the numbers of steps, one fewer than schedulers.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: there is no scheduler, the number of milestones is wrong, or a scheduler cannot be combined.
        TypeError: an element is not a scheduler.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = torch.optim.lr_scheduler
    >>> warm_up = schedule.ConstantLR(optimizer, factor=0.1, total_iters=2)
    >>> scheduler = schedule.SequentialLR(optimizer, [warm_up, schedule.ExponentialLR(optimizer, 0.5)], [2])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.1, 0.1, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[Any], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._check(schedulers, optimizer, "")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each scheduler set its own first rate when it was created; only that of the first one counts.
        for group in optimizer.param_groups:
            put(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Undoes the step that each scheduler took when it was created."""
        scheduler = self if sched is None else sched
        if hasattr(scheduler, "_schedulers"):
            for inner in scheduler._schedulers:
                self.recursive_undo(inner)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Sets the next learning rate."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Several):
    """Runs several chainable schedulers together: each step is a step of all.

    Args:
        schedulers: the schedulers, all of the same optimizer.
        optimizer: their optimizer; by default the first scheduler's.

    Raises:
        ValueError: there is no scheduler, or one cannot be combined.
        TypeError: an element is not a scheduler.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> schedule = torch.optim.lr_scheduler
    >>> warm_up = schedule.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> scheduler = schedule.ChainedScheduler([warm_up, schedule.ExponentialLR(optimizer, 0.5)])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.5, 0.25, 0.25, 0.125]
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        self.optimizer = self._check(schedulers, optimizer, " to be chained")
        self._schedulers = schedulers
        self._last_lr = values(self.optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Sets the next learning rate."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values(self.optimizer, "lr")
