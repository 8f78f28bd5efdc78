"""An older path for `tensorgrad.utils.data.worker`."""

from tensorgrad.utils.data.worker import WorkerInfo, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]
