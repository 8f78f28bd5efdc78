"""Learning rate schedules. Call `scheduler.step()` once per epoch (or batch), after `optimizer.step()`.

Most schedules are chainable: they multiply the current rate by a factor, so that several can act on one optimizer.
These also compute the rate in closed form, for `step(epoch)` and for `SequentialLR`, which restarts them.
"""

from tensorgrad.optim.lr_scheduler.base import LRScheduler
from tensorgrad.optim.lr_scheduler.chainable import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from tensorgrad.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from tensorgrad.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from tensorgrad.optim.lr_scheduler.cycle import CyclicLR, OneCycleLR
from tensorgrad.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # its name before PyTorch 2.0

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
