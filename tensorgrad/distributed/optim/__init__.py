"""Optimizers for several processes: `ZeroRedundancyOptimizer`, `PostLocalSGDOptimizer`."""

from tensorgrad.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from tensorgrad.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from tensorgrad.system.not_included import stand_in as _stand_in

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer", "as_functional_optim"]

DistributedOptimizer = _stand_in("DistributedOptimizer", "it needs RPC; use ZeroRedundancyOptimizer", __name__)
as_functional_optim = _stand_in("as_functional_optim", "it needs TorchScript; use torch.optim", __name__)
