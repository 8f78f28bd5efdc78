"""Names of PyTorch's first `FullyShardedDataParallel`, which libraries import: they raise an error when used."""

from __future__ import annotations

from enum import Enum, auto

from tensorgrad.system.not_included import stand_in

REFUSED = [
    "CPUOffload", "FlatParameter", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel",
    "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision",
    "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
    "StateDictConfig", "StateDictSettings",
]  # fmt: skip
__all__ = (
    ["BackwardPrefetch", "OptimStateKeyType", "ShardingStrategy", "StateDictType"] + REFUSED + ["DataParallelMeshDims"]
)


class ShardingStrategy(Enum):
    """How the former class divided parameters."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the former class gathered parameters for backward."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class OptimStateKeyType(Enum):
    """What the former class named parameters by in optimizer states."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


class StateDictType(Enum):
    """The former class's forms of state dictionaries."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


DataParallelMeshDims = stand_in("DataParallelMeshDims", "give fully_shard a mesh of one or two dimensions", __name__)

for _name in REFUSED:
    globals()[_name] = stand_in(_name, "use torch.distributed.fsdp.fully_shard", __name__)
