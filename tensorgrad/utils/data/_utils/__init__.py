"""PyTorch's older paths for parts of `tensorgrad.utils.data`; programs import `default_collate` from here."""

from tensorgrad.utils.data._utils import collate, pin_memory, signal_handling, worker

__all__ = ["collate", "pin_memory", "signal_handling", "worker"]

HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between two looks at whether the other process is alive
python_exit_status = False
