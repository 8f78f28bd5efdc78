"""The functions of all element-wise optimizers, for older programs that import them from here."""

from tensorgrad.optim.adadelta import adadelta
from tensorgrad.optim.adagrad import adagrad
from tensorgrad.optim.adam import adam
from tensorgrad.optim.adamax import adamax
from tensorgrad.optim.adamw import adamw
from tensorgrad.optim.asgd import asgd
from tensorgrad.optim.nadam import nadam
from tensorgrad.optim.radam import radam
from tensorgrad.optim.rmsprop import rmsprop
from tensorgrad.optim.rprop import rprop
from tensorgrad.optim.sgd import sgd

__all__ = [
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd",
]  # fmt: skip
