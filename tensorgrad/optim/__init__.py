"""Optimizers and learning rate schedules."""

from typing import Any

from tensorgrad.optim.adam import Adam
from tensorgrad.optim.adamw import AdamW
from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.optim.sgd import SGD
from tensorgrad.system.lazy_modules import whole

# Not every program needs these, so they are loaded on first access.
_ELSEWHERE = {
    "ASGD": "asgd", "Adadelta": "adadelta", "Adafactor": "_adafactor", "Adagrad": "adagrad", "Adamax": "adamax",
    "LBFGS": "lbfgs", "Muon": "_muon", "NAdam": "nadam", "RAdam": "radam", "RMSprop": "rmsprop", "Rprop": "rprop",
    "SparseAdam": "sparse_adam", "swap_in_optimizer_params_and_state": "_stateless",
}  # fmt: skip

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("lr_scheduler", "swa_utils"):
        return import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
        return value
    raise import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


whole(__name__)
