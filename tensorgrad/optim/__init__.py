"""Optimizers: how parameters move along their gradients, and how the learning rate moves with time."""

from typing import TYPE_CHECKING, Any

from tensorgrad.optim.adam import Adam, AdamW
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.optim.rmsprop import RMSprop
from tensorgrad.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]


if TYPE_CHECKING:
    from tensorgrad.optim import lr_scheduler
else:  # so that a misspelt name does not pass for this one

    def __getattr__(name: str) -> Any:
        if name == "lr_scheduler":  # not every program has one: loaded when it is first asked for
            from importlib import import_module

            return import_module("tensorgrad.optim.lr_scheduler")
        hint = "" if name.startswith("_") else " (what PyTorch has under this name is not implemented yet)"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
