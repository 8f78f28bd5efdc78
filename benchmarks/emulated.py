"""A model whose backward pass sleeps instead of computing: each gradient is there at a given time."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["model", "precise_sleep", "sleep_until"]

_PR_SET_TIMERSLACK = 29


def precise_sleep() -> None:
    """Lets the system wake this thread without its usual tolerance of 50 µs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def sleep_until(moment: float) -> None:
    """Sleeps until `time.perf_counter()` has this value."""
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


def model(torch: Any, sizes: Sequence[int], times: Sequence[float]) -> Any:
    """A module with parameters of these bytes in float32, whose gradients are complete at these times.

    They count from its attribute `began`, to be set when the backward pass begins.
    """

    class Sleeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, parameter: Any, module: Any, at: float) -> Any:
            ctx.module, ctx.at, ctx.shape = module, at, parameter.shape
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gradient = torch.ones(ctx.shape)
            sleep_until(ctx.module.began + ctx.at)
            return grad, gradient, None, None

    class Emulated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size // 4)) for size in sizes])
            self.began = 0.0

        def forward(self, x: Any) -> Any:
            for number in reversed(range(len(times))):  # the backward pass comes to the last one first
                x = Sleeps.apply(x, self.weights[number], self, times[number])
            return x.sum()

    return Emulated()
