"""An older path for `tensorgrad.utils.data.worker`."""

import numpy as np

from tensorgrad.utils.data.worker import WorkerInfo, get_worker_info

__all__ = ["WorkerInfo", "get_worker_info"]


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Returns the four numbers that seed NumPy in a worker, as PyTorch's loaders do."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4).tolist()
