"""`torch.distributed.fsdp.api`: the settings of PyTorch's first `FullyShardedDataParallel`.

Libraries make them before they decide whether to use that class, which is not included (absent.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tensorgrad.dtypes import dtype
from tensorgrad.nn.batchnorm import _BatchNorm
from tensorgrad.nn.module import Module

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig",
    "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """What is divided."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When parameters are gathered for backward."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class OptimStateKeyType(Enum):
    """What names the parameters in optimizer states."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


class StateDictType(Enum):
    """The forms of state dictionaries."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class MixedPrecision:
    """The dtypes to compute and to communicate in; `fully_shard` takes a `MixedPrecisionPolicy`."""

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[Module]] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether parameters stay on the CPU; `fully_shard` takes a `CPUOffloadPolicy`."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """Where the tensors of a state dictionary are put."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """The settings for `StateDictType.FULL_STATE_DICT`."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """The settings for `StateDictType.LOCAL_STATE_DICT`."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """The settings for `StateDictType.SHARDED_STATE_DICT`."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Where the tensors of an optimizer's state dictionary are put."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """The settings for optimizers and `StateDictType.FULL_STATE_DICT`."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """The settings for optimizers and `StateDictType.LOCAL_STATE_DICT`."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """The settings for optimizers and `StateDictType.SHARDED_STATE_DICT`."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """A form of state dictionaries with its settings."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig
