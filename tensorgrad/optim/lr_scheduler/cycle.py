"""Schedules that raise and lower the rate."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

from tensorgrad.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group, put
from tensorgrad.optim.optimizer import Optimizer


class _Cycling(LRScheduler):
    """A schedule that can also change the momentum, or β₁."""

    optimizer: Optimizer

    def _start_momentum(self, highest: Any, base: Any, last_epoch: int) -> tuple[list, list]:
        """Sets the initial momentum, and returns the maximum and the minimum of each group."""
        optimizer = self.optimizer
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        highs, bases = per_group("max_momentum", optimizer, highest), per_group("base_momentum", optimizer, base)
        if last_epoch == -1:
            for group, high, low in zip(optimizer.param_groups, highs, bases, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return highs, bases

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class OneCycleLR(_Cycling):
    """Raises the rate to `max_lr`, then lowers it far below the initial rate: one cycle per training.

    Smith and Topin, 2017, *Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates*.

    Args:
        optimizer: the optimizer whose learning rates are set.
        max_lr: the maximum rate, one for all or one per group.
        total_steps: the length of the cycle, in calls of `step`.
        epochs, steps_per_epoch: alternatively, its factors.
        pct_start: the fraction of the cycle in which the rate rises.
        anneal_strategy: `cos` or `linear`.
        cycle_momentum: change the momentum (or β₁) inversely, from `max_momentum` to `base_momentum` and back.
        base_momentum, max_momentum: the least and the greatest momentum, one for all or one per group.
        div_factor: the first rate is `max_lr` divided by this.
        final_div_factor: the last rate is the first divided by this.
        three_phase: lower the rate to the first rate in as many steps as it rose, and only then to the last rate.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: a setting is out of range, or `step` is called after the end of the cycle.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.04, 0.8117, 0.2831, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        given = {"total_steps": total_steps} if total_steps is not None else {
            "epochs": epochs, "steps_per_epoch": steps_per_epoch
        }  # fmt: skip
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.total_steps = math.prod(given.values())  # type: ignore[arg-type]
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        up, end = float(pct_start * self.total_steps) - 1, self.total_steps - 1
        rise = _phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if three_phase:
            down = float(2 * pct_start * self.total_steps) - 2
            self._schedule_phases = [
                rise,
                _phase(down, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                _phase(end, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self._schedule_phases = [rise, _phase(end, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        if last_epoch == -1:
            for group, highest in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
                group["initial_lr"], group["max_lr"] = highest / div_factor, highest
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(max_momentum, base_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, fraction: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * fraction) + 1)
        return (end - start) * fraction + start

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        start: float = 0
        phase = self._schedule_phases[0]
        for i, phase in enumerate(self._schedule_phases):
            if step <= phase["end_step"] or i == len(self._schedule_phases) - 1:
                break
            start = phase["end_step"]
        fraction = (step - start) / (phase["end_step"] - start)
        lrs = []
        for group in self.optimizer.param_groups:
            lrs.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], fraction))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._between(*ends, fraction))
        return lrs


def _phase(end_step: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
    return {
        "end_step": end_step, "start_lr": start_lr, "end_lr": end_lr, "start_momentum": start_momentum,
        "end_momentum": end_momentum,
    }  # fmt: skip


class CyclicLR(_Cycling):
    """Cycles the rate between `base_lr` and `max_lr`.

    Smith, 2015, *Cyclical Learning Rates for Training Neural Networks*. Intended for a step after every batch.

    Args:
        optimizer: the optimizer whose learning rates are set.
        base_lr, max_lr: the minimum and the maximum rate, one for all or one per group.
        step_size_up: the number of steps in which the rate rises.
        step_size_down: the number of steps in which it falls; by default the same.
        mode: `triangular`: all cycles are equal; `triangular2`: each is half as high as the previous one;
            `exp_range`: the height is multiplied by `gamma` in each step.
        gamma: see `mode`.
        scale_fn: a function that scales the height, instead of a `mode`.
        scale_mode: the argument of `scale_fn`: the number of the cycle (`cycle`) or of the step (`iterations`).
        cycle_momentum: change the momentum (or β₁) inversely, from `max_momentum` to `base_momentum` and back.
        base_momentum, max_momentum: the least and the greatest momentum, one for all or one per group.
        last_epoch: the number of steps already taken; -1 to start.

    Raises:
        ValueError: the mode is unknown, or the optimizer has no momentum and `cycle_momentum` is not False.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.0, max_lr=1.0, step_size_up=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                put(group, "lr", lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
            functions: dict[str, Callable[[float], float]] = {
                "triangular": self._triangular_scale_fn, "triangular2": self._triangular2_scale_fn,
                "exp_range": functools.partial(self._exp_range_scale_fn, gamma),
            }  # fmt: skip
            self._scale_fn_ref = functions[mode]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            ends = self._start_momentum(max_momentum, base_momentum, last_epoch)
            self.max_momentums, self.base_momentums = ends
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Returns the factor on the height in cycle or step number `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return self._scale_fn_ref(x)

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / 2.0 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def get_lr(self) -> list[Any]:
        self._warn_unless_stepping()
        cycles = 1 + self.last_epoch / self.total_size
        cycle = math.floor(cycles)
        done = cycles - cycle
        height = done / self.step_ratio if done <= self.step_ratio else (done - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            ends = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in ends:
                self._set_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Like the base class. If `scale_fn` is a function, it is not saved; of other callables, attributes are."""
        state, function = super().state_dict(), self._scale_fn_custom
        state.pop("_scale_fn_ref", None)
        saved = function is not None and not isinstance(function, types.FunctionType)
        state["_scale_fn_custom"] = function.__dict__.copy() if saved else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like the base class. If `scale_fn` is a function, the one given at construction is kept."""
        state_dict = dict(state_dict)
        attributes = state_dict.pop("_scale_fn_custom")
        super().load_state_dict(state_dict)
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)
