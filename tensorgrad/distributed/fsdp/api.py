"""`torch.distributed.fsdp.api`: the settings of `FullyShardedDataParallel`."""

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
    """What is divided among the ranks.

    `FULL_SHARD` divides parameters, gradients and the optimizer's state; `SHARD_GRAD_OP` keeps the gathered parameters
    between forward and backward; `NO_SHARD` divides nothing. `HYBRID_SHARD` and `_HYBRID_SHARD_ZERO2` are the first two
    within groups of ranks, which are replicas of each other.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When parameters are gathered for backward. Here they are when backward needs them."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class OptimStateKeyType(Enum):
    """What names the parameters in optimizer states."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


class StateDictType(Enum):
    """The forms of state dictionaries: whole tensors, the ranks' vectors, or `DTensor`s of rows."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class MixedPrecision:
    """The dtypes of a `FullyShardedDataParallel`; `fully_shard` takes a `MixedPrecisionPolicy`.

    Args:
        param_dtype: of the gathered parameters, and so of the computation.
        reduce_dtype: in which gradients are averaged; `param_dtype` if None.
        buffer_dtype: of floating-point buffers.
        keep_low_precision_grads: whether gradients keep the dtype in which they were averaged.
        cast_forward_inputs: whether floating-point arguments of forward are cast to `param_dtype`.
        cast_root_forward_inputs: the same for the wrapper that is not inside another one.
        _module_classes_to_ignore: modules of these classes compute in float32, with an `auto_wrap_policy`.
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[Module]] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether the ranks' parts are kept in main memory; `fully_shard` takes a `CPUOffloadPolicy`."""

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
