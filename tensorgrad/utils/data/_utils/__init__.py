"""PyTorch's older paths for parts of `tensorgrad.utils.data`; programs import `default_collate` from here."""

from tensorgrad.utils.data._utils import collate, pin_memory, worker

__all__ = ["collate", "pin_memory", "worker"]
