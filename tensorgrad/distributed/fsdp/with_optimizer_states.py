"""The methods of `FullyShardedDataParallel` about the states of optimizers."""

from __future__ import annotations

import warnings
from typing import Any

from tensorgrad.distributed import collectives
from tensorgrad.distributed.fsdp import optimizer_states
from tensorgrad.distributed.fsdp.api import OptimStateKeyType, StateDictType
from tensorgrad.distributed.fsdp.model_states import clean
from tensorgrad.distributed.fsdp.unit import Unit
from tensorgrad.distributed.fsdp.with_states import WithStates
from tensorgrad.distributed.process_group import get_rank

__all__ = ["WithOptimizerStates"]


class WithOptimizerStates(WithStates):
    """The methods of `FullyShardedDataParallel` about the states of optimizers."""

    @staticmethod
    def optim_state_dict(
        model: Any, optim: Any, optim_state_dict: dict[str, Any] | None = None, group: Any = None
    ) -> dict[str, Any]:
        """Returns the state of an optimizer, by the names of the parameters in the model without wrappers.

        All ranks must call it. Whether tensors are whole, `set_state_dict_type` says.

        Args:
            model: the model.
            optim: its optimizer.
            optim_state_dict: its `state_dict()`, if it is not to be asked for it.
            group: the ranks of which rank 0 gets the result if only that gets it; all if None.
        """
        settings = WithStates.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        return _optim_state(
            model, optim, optim_state_dict, whole, getattr(config, "rank0_only", False), group, config.offload_to_cpu
        )

    @staticmethod
    def optim_state_dict_to_load(
        model: Any,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """Returns what an optimizer can load, from the state that `optim_state_dict` returned.

        All ranks must call it, with the same state; if it is set that only rank 0 has it, that sends it to the others.

        Args:
            model: the model.
            optim: its optimizer.
            optim_state_dict: the state.
            is_named_optimizer: whether the optimizer knows its parameters by name.
            load_directly: whether to load it, too.
            group: the ranks; all if None.
        """
        settings = WithStates.get_state_dict_type(model)
        from_first = getattr(settings.optim_state_dict_config, "rank0_only", False)
        result = _state_to_load(model, optim, optim_state_dict, from_first, group, is_named_optimizer)
        if load_directly:
            optim.load_state_dict(result)
        return result

    @staticmethod
    def full_optim_state_dict(
        model: Any, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """The former way to `optim_state_dict` with whole tensors."""
        _former("full_optim_state_dict", "optim_state_dict")
        return _optim_state(model, optim, None, True, rank0_only, group, True)

    @staticmethod
    def sharded_optim_state_dict(model: Any, optim: Any, group: Any = None) -> dict[str, Any]:
        """The former way to `optim_state_dict` with `DTensor`s."""
        _former("sharded_optim_state_dict", "optim_state_dict")
        return _optim_state(model, optim, None, False, False, group, True)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any], model: Any, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:
        """The former way to `optim_state_dict_to_load` from whole tensors that all ranks have."""
        _former("shard_full_optim_state_dict", "optim_state_dict_to_load")
        return _state_to_load(model, _needed(optim), full_optim_state_dict, False, None, False)

    @staticmethod
    def flatten_sharded_optim_state_dict(
        sharded_optim_state_dict: dict[str, Any], model: Any, optim: Any
    ) -> dict[str, Any]:
        """The former way to `optim_state_dict_to_load` from `DTensor`s."""
        _former("flatten_sharded_optim_state_dict", "optim_state_dict_to_load")
        return _state_to_load(model, optim, sharded_optim_state_dict, False, None, False)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None,
        model: Any,
        optim_input: Any = None,
        optim: Any = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """The former way to `optim_state_dict_to_load` from whole tensors that only rank 0 has."""
        _former("scatter_full_optim_state_dict", "optim_state_dict_to_load")
        return _state_to_load(model, _needed(optim), full_optim_state_dict or {}, True, group, False)

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Any,
        optim_input: Any = None,
        optim: Any = None,
    ) -> dict[str, Any]:
        """Returns the state with names in place of numbers, or the other way, for a model whose own parameters stay.

        Args:
            optim_state_dict: the state.
            optim_state_key_type: what the keys are to be.
            model: a model without wrappers, or with `use_orig_params`.
            optim_input: what the optimizer was given: parameters or groups, in place of `optim`.
            optim: the model's optimizer; if neither is given, it has all parameters in their order.

        Raises:
            ValueError: some keys are names and others numbers.
        """
        if optim is not None:
            parameters = [p for group in optim.param_groups for p in group["params"]]
        else:
            given = list(model.parameters() if optim_input is None else optim_input)
            parameters = [p for item in given for p in (item["params"] if isinstance(item, dict) else [item])]
        names = {id(p): clean(name) for name, p in model.named_parameters()}
        to_names = optim_state_key_type is OptimStateKeyType.PARAM_NAME
        return optimizer_states.rekeyed(optim_state_dict, to_names, [names[id(p)] for p in parameters])


def _managed(model: Any) -> dict[int, optimizer_states.Managed]:
    return optimizer_states.managed_parameters(
        model, lambda module: (module._group, module._mesh) if isinstance(module, Unit) else None
    )


def _optim_state(
    model: Any, optim: Any, state: dict[str, Any] | None, whole: bool, rank0_only: bool, group: Any, on_cpu: bool
) -> dict[str, Any]:
    known = _managed(model)
    returned = not rank0_only or get_rank(group) == 0 or not whole
    own = optim.state_dict() if state is None else state
    return optimizer_states.named_state(known, optim, own, not whole, returned, on_cpu)


def _state_to_load(
    model: Any, optim: Any, state: dict[str, Any], from_first: bool, group: Any, named: bool
) -> dict[str, Any]:
    if from_first:
        sent = [state if get_rank(group) == 0 else None]
        collectives.broadcast_object_list(sent, group=group, group_src=0)
        state = sent[0]  # type: ignore[assignment]
    return optimizer_states.state_to_load(_managed(model), optim, state, named)


def _needed(optim: Any) -> Any:
    """The optimizer.

    Raises: ValueError if it is not given.
    """
    if optim is None:
        raise ValueError("FullyShardedDataParallel: the argument optim is needed")
    return optim


def _former(name: str, now: str) -> None:
    warnings.warn(
        f"``FullyShardedDataParallel.{name}``is being deprecated and is replaced by "
        f"``FullyShardedDataParallel.{now}``. ``FullyShardedDataParallel.{name}`` may be removed after PyTorch 2.2.",
        FutureWarning,
        stacklevel=3,
    )
