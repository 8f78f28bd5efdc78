"""Optimizers for several processes: `ZeroRedundancyOptimizer`, `PostLocalSGDOptimizer`."""

from tensorgrad.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from tensorgrad.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]
