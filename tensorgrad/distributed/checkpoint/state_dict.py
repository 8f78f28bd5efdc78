"""State dicts that do not depend on how a model is distributed: the names are those of the model without wrappers.

They are also what `save` and `load` need to resume with another number of processes or another sharding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.checkpoint import fully_sharded, optimizer_states
from tensorgrad.distributed.checkpoint.parameter_names import (
    named_states,
    names_of_parameters,
    plain_name,
    submodule_prefixes,
)
from tensorgrad.distributed.checkpoint.whole_tensors import broadcast_whole, each_tensor, on_cpu, shard_like, whole
from tensorgrad.distributed.process_group import get_rank, is_initialized
from tensorgrad.nn.module_state import _IncompatibleKeys
from tensorgrad.optim import Optimizer

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip


_init_optim_state = optimizer_states.initialize  # programs import it from here


@dataclass
class StateDictOptions:
    """How state dicts are made and loaded.

    Args:
        full_state_dict: whether tensors are whole. Otherwise those that are sharded are DTensors.
        cpu_offload: whether tensors are in main memory. With `full_state_dict`, only rank 0 gets them, and the other
            ranks get empty dicts.
        ignore_frozen_params: whether to leave out parameters that do not require gradients.
        keep_submodule_prefixes: whether names of submodules are complete; deprecated like `submodules`.
        strict: whether keys must match when loading.
        broadcast_from_rank0: whether rank 0 sends what it loads to the others. Needs `full_state_dict`.
        flatten_optimizer_state_dict: whether an optimizer's state dict is flat, with names in its keys.
        dsd_fqn_modifiers: must be left as it is.

    >>> from tensorgrad.distributed.checkpoint.state_dict import StateDictOptions
    >>> StateDictOptions(full_state_dict=True).strict
    True
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(options: StateDictOptions | None) -> StateDictOptions:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    if options.dsd_fqn_modifiers != "_fqn_modifiers":
        raise NotImplementedError("StateDictOptions: dsd_fqn_modifiers is not included; leave it out")
    return options


def _optimizers(given: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (given,) if isinstance(given, Optimizer) else tuple(given)


def _needed_optimizers(given: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    optimizers = _optimizers(given)
    if not optimizers:
        raise RuntimeError("Optimizers are not passed in but optim_only is set to True.")
    return optimizers


def _as_asked(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """The state with whole tensors, and in main memory, if the options say so."""
    if options.full_state_dict:
        state = each_tensor(whole, state)
        if options.cpu_offload and is_initialized() and get_rank() != 0:
            return {}
    return each_tensor(on_cpu, state) if options.cpu_offload else state


def get_model_state_dict(
    model: Any, *, submodules: set[Any] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Returns the model's state dict, with the names of the model that was wrapped or sharded.

    Args:
        model: a module, also in DistributedDataParallel or FullyShardedDataParallel, or after `fully_shard`.
        submodules: deprecated: only what belongs to these.
        options: how it is made. With `full_state_dict`, all ranks must call this.

    >>> from tensorgrad.distributed.checkpoint.state_dict import get_model_state_dict
    >>> list(get_model_state_dict(torch.nn.Linear(1, 1)))
    ['weight', 'bias']
    """
    options = _checked(options)
    with torch.no_grad(), fully_sharded.in_pieces(model):
        own = model.state_dict()
        state = {plain_name(model, key): value for key, value in own.items()}
        if submodules:
            state = _of_submodules(state, model, submodules, options.keep_submodule_prefixes)
        if options.ignore_frozen_params:
            frozen = [plain_name(model, key) for key, p in model.named_parameters(remove_duplicate=False)
                      if not p.requires_grad]  # fmt: skip
            state = {name: value for name, value in state.items() if name not in frozen}
        state = _as_asked(state, options)
    _check_model_state(state, options, bool(submodules))
    return state


def _of_submodules(state: dict[str, Any], model: Any, submodules: set[Any], keep: bool) -> dict[str, Any]:
    warnings.warn(
        "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This feature can be "
        "achieved by manually filtering out the state_dict returned from get_state_dict.",
        FutureWarning,
        stacklevel=3,
    )
    return {name if keep else name[len(prefix) :]: value for name, value in state.items()
            for prefix in submodule_prefixes(model, submodules) if name.startswith(prefix)}  # fmt: skip


def _check_model_state(state: dict[str, Any], options: StateDictOptions, may_be_empty: bool = False) -> None:
    allowed = may_be_empty or options.ignore_frozen_params or (options.cpu_offload and options.full_state_dict)
    if not state and options.strict and not allowed and not options.broadcast_from_rank0:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save or load, but model state_dict is empty."
            f"rank = dist.get_rank()={get_rank() if is_initialized() else 0}."
        )


def get_optimizer_state_dict(
    model: Any,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Any] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """Returns the state of optimizers, with the names of parameters in place of numbers.

    An optimizer that made no step yet is given its first state, by a step with gradients of zero.

    Args:
        model: the model, as for `get_model_state_dict`.
        optimizers: one or several of its optimizers.
        submodules: deprecated; not used.
        options: how it is made. With `full_state_dict`, all ranks must call this.

    Raises:
        KeyError: an optimizer has a parameter that the model does not have.

    >>> from tensorgrad.distributed.checkpoint.state_dict import get_optimizer_state_dict
    >>> model = torch.nn.Linear(1, 1)
    >>> state = get_optimizer_state_dict(model, torch.optim.Adam(model.parameters()))
    >>> list(state["state"]), state["param_groups"][0]["params"]
    (['weight', 'bias'], ['weight', 'bias'])
    """
    return _optimizer_state(model, _needed_optimizers(optimizers), _checked(options))


def _optimizer_state(model: Any, optimizers: tuple[Optimizer, ...], options: StateDictOptions) -> dict[str, Any]:
    if not optimizers:
        return {}
    with torch.no_grad():
        if fully_sharded.is_wrapped(model):
            state = fully_sharded.named_state(model, optimizers)
        else:
            state = optimizer_states.named_state(optimizers, names_of_parameters(model))
        if options.flatten_optimizer_state_dict:
            state = optimizer_states.flattened(state)
        return _as_asked(state, options)


def get_state_dict(
    model: Any,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Any] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the state dicts of a model and of its optimizers. See the functions for each of them.

    Args:
        model, submodules, options: as for `get_model_state_dict`.
        optimizers: one or several, or an empty tuple.

    >>> from tensorgrad.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> weights, state = get_state_dict(model, optimizer)
    >>> set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    <All keys matched successfully>
    """
    found = get_model_state_dict(model, submodules=submodules, options=options)
    return found, _optimizer_state(model, _optimizers(optimizers), _checked(options))


def set_model_state_dict(
    model: Any, model_state_dict: dict[Any, Any], *, options: StateDictOptions | None = None
) -> _IncompatibleKeys:
    """Loads a state dict as `get_model_state_dict` returns it. The dict stays as it is.

    Args:
        model: a module, also in DistributedDataParallel or after `fully_shard`. If it is on the meta device and
            whole tensors are given, it gets those.
        model_state_dict: names and values, with DTensors or, with `full_state_dict`, with whole tensors. With
            `broadcast_from_rank0` only that of rank 0 is used.
        options: how it is loaded.

    Returns:
        The keys that are missing, and those that are unexpected.

    Raises:
        RuntimeError: keys or sizes do not match.

    >>> from tensorgrad.distributed.checkpoint.state_dict import set_model_state_dict
    >>> set_model_state_dict(torch.nn.Linear(1, 1, bias=False), {"weight": torch.ones(1, 1)})
    <All keys matched successfully>
    """
    options = _checked(options)
    state = _with_names(model, model_state_dict)
    _check_model_state(state, options)
    return _load_model_state(model, state, options)


def _with_names(model: Any, state: dict[Any, Any]) -> dict[str, Any]:
    """The same with names as keys, if they are submodules."""
    if not any(isinstance(key, torch.nn.Module) for key in state):
        return dict(state)
    warnings.warn(
        "Passing model_state_dict as a ``Dict[nn.Module, Dict[str, Any]]``is deprecated and will be removed in 2.5. "
        "If you need this feature, please preprocess the model_state_dict to achieve the same functionality.",
        FutureWarning,
        stacklevel=3,
    )
    return {prefix + name: value for module, values in state.items()
            for prefix in submodule_prefixes(model, [module]) for name, value in values.items()}  # fmt: skip


def _load_model_state(model: Any, state: dict[str, Any], options: StateDictOptions) -> _IncompatibleKeys:
    if not state and not options.broadcast_from_rank0:
        return _IncompatibleKeys([], [])
    with torch.no_grad(), fully_sharded.in_pieces(model):
        names = named_states(model)
        own = {names[key]: value for key, value in model.state_dict().items()}
        if options.broadcast_from_rank0:
            state = broadcast_whole(state, lambda path, tensor: shard_like(tensor, own.get(path[0])))
        elif options.full_state_dict:
            state = {name: shard_like(value, own.get(name)) for name, value in state.items()}
        keys = {name: key for key, name in names.items() if key != name}
        missing = [name for name in keys if name not in state]
        if missing and options.strict:
            raise RuntimeError(f"Missing key: {missing[0]}.")
        whole = options.broadcast_from_rank0 or options.full_state_dict
        assign = whole and any(isinstance(value, torch.Tensor) and value.is_meta for value in own.values())
        given = {keys.get(k, k): v for k, v in state.items()}
        return model.load_state_dict(given, strict=options.strict, assign=assign)


def set_optimizer_state_dict(
    model: Any,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Loads the state of optimizers as `get_optimizer_state_dict` returns it. The dict stays as it is.

    Call it when there are no gradients: before backward, or after the optimizer's step and `zero_grad()`.

    Args:
        model: the model, as for `get_model_state_dict`.
        optimizers: one or several of its optimizers.
        optim_state_dict: the state, nested or flat.
        options: how it is loaded.

    Raises:
        RuntimeError: state is missing.
        ValueError: the groups do not match.

    >>> from tensorgrad.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    >>> model = torch.nn.Linear(1, 1)
    >>> first, second = (torch.optim.SGD(model.parameters(), lr=lr) for lr in (0.1, 0.2))
    >>> set_optimizer_state_dict(model, second, get_optimizer_state_dict(model, first))
    >>> second.param_groups[0]["lr"]
    0.1
    """
    _load_optimizer_state(model, _needed_optimizers(optimizers), optim_state_dict, _checked(options))


def _load_optimizer_state(
    model: Any, optimizers: tuple[Optimizer, ...], state: dict[str, Any], options: StateDictOptions
) -> None:
    if not optimizers:
        return
    if not state and not (options.cpu_offload and options.full_state_dict) and not options.broadcast_from_rank0:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save, or load but optim state_dict is empty. "
            f"{state}"
        )
    with torch.no_grad():
        if fully_sharded.is_wrapped(model):
            if options.broadcast_from_rank0:
                state = broadcast_whole(state, lambda path, tensor: tensor)
            for optimizer in optimizers:
                fully_sharded.load_optimizer(model, optimizer, state, options.strict)
            return
        names = names_of_parameters(model)
        if options.broadcast_from_rank0:
            for optimizer in optimizers:
                optimizer_states.initialize(optimizer)
            own = optimizer_states.named_state(optimizers, names)
            flat = optimizer_states.flattened({"state": own["state"], "param_groups": []})
            state = broadcast_whole(state, lambda path, tensor: shard_like(tensor, flat.get(".".join(map(str, path)))))
        for optimizer in optimizers:
            optimizer_states.initialize(optimizer)
            if state and "state" not in state:
                loaded = optimizer_states.unflattened(state, optimizer, names)
            else:
                loaded = optimizer_states.for_optimizer(state, optimizer, names, options.strict)
            if options.full_state_dict:
                loaded = {**loaded, "state": _sharded(loaded["state"], optimizer, names)}
            optimizer.load_state_dict(loaded)


def _sharded(state: dict[Any, Any], optimizer: Optimizer, names: dict[int, list[str]]) -> dict[Any, Any]:
    """The state with whole tensors placed as the optimizer's own."""
    own = {name: values for p, values in optimizer.state.items() for name in names.get(id(p), ())}
    return {name: {key: shard_like(value, own.get(name, {}).get(key)) for key, value in values.items()}
            for name, values in state.items()}  # fmt: skip


def set_state_dict(
    model: Any,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[Any, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> _IncompatibleKeys:
    """Loads the state dicts of a model and of its optimizers. See the functions for each of them.

    Args:
        model, model_state_dict, options: as for `set_model_state_dict`.
        optimizers: one or several, or an empty tuple.
        optim_state_dict: as for `set_optimizer_state_dict`.

    Returns:
        The keys of the model that are missing, and those that are unexpected.

    >>> from tensorgrad.distributed.checkpoint.state_dict import set_state_dict
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> set_state_dict(model, (), model_state_dict={"weight": torch.ones(1, 1)}, optim_state_dict={})
    <All keys matched successfully>
    """
    options = _checked(options)
    state = _with_names(model, model_state_dict)
    found = _optimizers(optimizers) if state or options.broadcast_from_rank0 else _needed_optimizers(optimizers)
    if state:
        _check_model_state(state, options)
    _load_optimizer_state(model, found, optim_state_dict, options)
    return _load_model_state(model, state, options)
