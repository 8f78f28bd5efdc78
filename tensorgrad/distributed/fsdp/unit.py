"""What the files of `FullyShardedDataParallel` know of one wrapper."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tensorgrad.distributed.device_mesh import DeviceMesh
from tensorgrad.distributed.fsdp.api import OptimStateDictConfig, ShardingStrategy, StateDictConfig, StateDictType
from tensorgrad.distributed.fsdp.around_forward import State
from tensorgrad.distributed.fsdp.flat_group import FlatGroup
from tensorgrad.nn.module import Module

__all__ = ["Unit", "units_of"]


class Unit(Module):
    """A wrapper: its parameters, ranks and settings."""

    rank: int
    sharding_strategy: ShardingStrategy
    _fsdp: State
    _fsdp_wrapped_module: Any
    _mesh: DeviceMesh  # over which states are divided
    _device_mesh: DeviceMesh | None  # the argument
    _use_orig_params: bool
    _is_root: bool | None  # None: not known yet
    _dtypes_of_buffers: dict[str, Any]  # those that were cast
    _loading: ExitStack  # what ends when a state is loaded
    _state_dict_type: StateDictType
    _state_dict_config: StateDictConfig
    _optim_state_dict_config: OptimStateDictConfig

    @property
    def _group(self) -> FlatGroup:
        group: Any = self._fsdp.group
        return group

    def _find_root(self) -> None:
        """Called before a wrapper is used: the first that is used contains the others, if there are others."""
        raise NotImplementedError


def units_of(module: Any) -> list[Any]:
    """The wrappers in a model."""
    return [inner for inner in module.modules() if isinstance(inner, Unit)]
