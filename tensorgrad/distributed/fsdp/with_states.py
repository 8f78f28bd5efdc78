"""The state dictionaries of a `FullyShardedDataParallel`: which form they have, and how they are made and loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from tensorgrad.distributed.fsdp.flat_group import FLAT_PARAM, FlatGroup
from tensorgrad.distributed.fsdp.model_states import PREFIX, clean, reform, renamed, whole_of
from tensorgrad.distributed.fsdp.unit import Unit, units_of

__all__ = ["WithStates"]

_CONFIGS: dict[StateDictType, tuple[type, type]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


class WithStates(Unit):
    """The methods of `FullyShardedDataParallel` about the state of the model."""

    def _init_states(self) -> None:
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config, self._optim_state_dict_config = FullStateDictConfig(), FullOptimStateDictConfig()
        self._loading = ExitStack()
        self.register_load_state_dict_post_hook(_loaded)

    @staticmethod
    def set_state_dict_type(
        module: Any,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Sets the form of what `state_dict` and `optim_state_dict` return for all wrappers in a model.

        Args:
            module: the model.
            state_dict_type: the form.
            state_dict_config, optim_state_dict_config: settings, of the class that belongs to the form.

        Returns:
            What was set before.

        Raises:
            RuntimeError: the settings are of another class.
        """
        own, of_optimizer = _CONFIGS[state_dict_type]
        config = own() if state_dict_config is None else state_dict_config
        optim_config = of_optimizer() if optim_state_dict_config is None else optim_state_dict_config
        for name, wanted, given in (
            ("state_dict_config", own, config), ("optim_state_dict_config", of_optimizer, optim_config),
        ):  # fmt: skip
            if type(given) is not wanted:
                raise RuntimeError(f"Expected {name} of type {wanted} but got {type(given)}")
        before: Any = None
        for unit in units_of(module):
            before = before or unit._settings()
            unit._state_dict_type, unit._state_dict_config = state_dict_type, config
            unit._optim_state_dict_config = optim_config
        return before or StateDictSettings(None, None, None)  # type: ignore[arg-type]

    @staticmethod
    def get_state_dict_type(module: Any) -> StateDictSettings:
        """Returns the form that all wrappers in a model have.

        Args:
            module: the model.

        Raises:
            AssertionError: they have different ones.
        """
        found: Any = None
        for unit in units_of(module):
            settings = unit._settings()
            if found is not None and settings != found:
                raise AssertionError(
                    f"All FSDP modules must have the same state dict settings. Got {settings} and {found}."
                )
            found = settings
        return found

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Any,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """In this context, the wrappers in a model have another form of state dictionaries.

        Args:
            module, state_dict_type, state_dict_config, optim_state_dict_config: see `set_state_dict_type`.
        """
        change = WithStates.set_state_dict_type
        before = change(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            if before.state_dict_type is not None:
                change(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    def _settings(self) -> StateDictSettings:
        return StateDictSettings(self._state_dict_type, self._state_dict_config, self._optim_state_dict_config)

    def _form(self) -> tuple[StateDictType, StateDictConfig]:
        """The form of the state: whole tensors if nothing is divided.

        Raises:
            RuntimeError: pieces of the vector are wanted, and there is a mesh.
            NotImplementedError: or the module has its own parameters.
        """
        if self.sharding_strategy is ShardingStrategy.NO_SHARD:
            if self._state_dict_type is not StateDictType.FULL_STATE_DICT:
                warnings.warn(
                    "When using ``NO_SHARD`` for ``ShardingStrategy``, full_state_dict will be returned.", stacklevel=4
                )
            return StateDictType.FULL_STATE_DICT, FullStateDictConfig()
        if self._state_dict_type is StateDictType.LOCAL_STATE_DICT:
            if self._device_mesh is not None:
                raise RuntimeError(
                    "Found state_dict_type LOCAL_STATE_DICT. DeviceMesh is not compatible with LOCAL_STATE_DICT. "
                    "Please set state_dict_type to SHARDED_STATE_DICT to get DTensor state_dict."
                )
            if self._use_orig_params:
                raise NotImplementedError(
                    "LOCAL_STATE_DICT has the vectors, and with use_orig_params=True the module has its own "
                    "parameters: use SHARDED_STATE_DICT"
                )
        return self._state_dict_type, self._state_dict_config

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Returns the state in the form that is set. All ranks must call it.

        Args:
            destination, prefix, keep_vars: as for every module.
        """
        if args:
            given: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given
        self._find_root()
        form, config = self._form()
        returned = not (getattr(config, "rank0_only", False) and self.rank != 0)
        local = form is StateDictType.LOCAL_STATE_DICT
        with nullcontext() if local else self._group.whole_parameters(returned, False, False, False):
            state = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
            renamed(state, prefix + PREFIX, prefix)
            if not local:
                state.pop(prefix + FLAT_PARAM, None)
            with torch.no_grad():
                reform(state, prefix, self._group, self._mesh, form, config, returned)
                self._reform_buffers(state, prefix, config, returned)
        return state

    def _reform_buffers(self, state: dict[str, Any], prefix: str, config: StateDictConfig, returned: bool) -> None:
        for full_name, _ in self._fsdp_wrapped_module.named_buffers():
            name = clean(full_name)
            key = prefix + name
            if key not in state:
                continue
            if not returned:
                del state[key]
                continue
            if name in self._dtypes_of_buffers:
                state[key] = state[key].to(self._dtypes_of_buffers[name])
            if config.offload_to_cpu:
                state[key] = state[key].cpu()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        self._find_root()
        form, _ = self._form()
        inner = prefix + PREFIX
        renamed(state_dict, prefix, inner)
        group = self._group
        if form is StateDictType.LOCAL_STATE_DICT:
            given = state_dict.get(inner + FLAT_PARAM)
            if group.parameters and given is not None:
                state_dict[inner + FLAT_PARAM] = _padded(given.to_local(), group)
        else:
            for p in group.parameters:
                if inner + p.name in state_dict:
                    state_dict[inner + p.name] = whole_of(state_dict[inner + p.name])
            self._loading.enter_context(group.whole_parameters(True, True, False, False))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _loaded(module: WithStates, keys: Any) -> None:
    """Ends what `_load_from_state_dict` has begun, and takes the wrappers' parts out of the names."""
    module._loading.close()
    for names in keys:
        names[:] = [clean(name) for name in names]


def _padded(part: Any, group: FlatGroup) -> Any:
    missing = group.part - part.numel()
    return torch.cat([part, part.new_zeros(missing)]) if missing else part
