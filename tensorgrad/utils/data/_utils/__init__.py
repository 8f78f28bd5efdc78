"""PyTorch's older paths of what `tensorgrad.utils.data` is made of; programs import `default_collate` from here."""

from tensorgrad.utils.data._utils import collate, pin_memory, worker

__all__ = ["collate", "pin_memory", "worker"]
