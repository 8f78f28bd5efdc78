"""States of models in `FullyShardedDataParallel`, and of their optimizers: in pieces, with names without wrappers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tensorgrad.distributed.checkpoint import optimizer_states
from tensorgrad.distributed.fsdp import FullyShardedDataParallel, StateDictType

__all__ = ["in_pieces", "is_wrapped", "load_optimizer", "named_state"]


def is_wrapped(model: Any) -> bool:
    """Whether there is such a wrapper in the model."""
    return bool(FullyShardedDataParallel.fsdp_modules(model))


def in_pieces(model: Any) -> AbstractContextManager[Any]:
    """A context in which what is divided is a `DTensor` in the state of a model and of its optimizers."""
    if not is_wrapped(model):
        return nullcontext()
    return FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)


def named_state(model: Any, optimizers: tuple[Any, ...]) -> dict[str, Any]:
    """The state of all these optimizers by names, in pieces."""
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    with in_pieces(model):
        for optimizer in optimizers:
            optimizer_states.initialize(optimizer)
            own = FullyShardedDataParallel.optim_state_dict(model, optimizer)
            result["state"] |= own["state"]
            result["param_groups"] += own["param_groups"]
    return result


def load_optimizer(model: Any, optimizer: Any, state: dict[str, Any], strict: bool) -> None:
    """Loads what of a named state belongs to one optimizer; the state may be flat, and have whole tensors.

    Raises: RuntimeError if the state of a parameter is missing.
    """
    own = named_state(model, (optimizer,))
    nested = state if not state or "state" in state else _nested(state, own)
    group_of = {name: group for group in nested["param_groups"] for name in group["params"]}
    groups = []
    for group in own["param_groups"]:
        settings = next((group_of[name] for name in group["params"] if name in group_of), group)
        groups.append({**settings, "params": group["params"]})
        for name in group["params"]:
            if strict and name in own["state"] and name not in nested["state"]:
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients "
                    "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
    chosen = {name: nested["state"][name] for name in own["state"] if name in nested["state"]}
    with in_pieces(model):
        FullyShardedDataParallel.optim_state_dict_to_load(
            model, optimizer, {"state": chosen, "param_groups": groups}, load_directly=True
        )


def _nested(flat: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A flat state as nested dictionaries, of the form of an optimizer's own."""
    states = {
        name: {key: flat[f"state.{name}.{key}"] for key in values if f"state.{name}.{key}" in flat}
        for name, values in own["state"].items()
    }
    groups = []
    for group in own["param_groups"]:
        settings = {
            key: next((flat[f"param_groups.{name}.{key}"] for name in group["params"]
                       if f"param_groups.{name}.{key}" in flat), value)
            for key, value in group.items() if key != "params"
        }  # fmt: skip
        groups.append({**settings, "params": group["params"]})
    return {"state": {name: values for name, values in states.items() if values}, "param_groups": groups}
