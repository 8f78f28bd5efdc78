"""Temporarily replacing the parameters and state of an optimizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrad.optim.optimizer import Optimizer
from tensorgrad.tensor import Tensor

NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """A context manager in which `optimizer` updates other parameters, with other settings and state.

    Args:
        optimizer: an optimizer that has made a step.
        swapin_parameters: the parameters, in the order of the optimizer's own.
        swapin_optim_state: their state and settings, as returned by `tensorgrad.optim.Optimizer.state_dict`.

    Raises:
        RuntimeError: the parameters, settings or state do not match the optimizer.

    >>> w, other = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=1.0, momentum=0.9)
    >>> w.grad = other.grad = torch.ones(1)
    >>> optimizer.step()
    >>> with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, optimizer.state_dict()):
    ...     optimizer.step()
    >>> w.item(), round(other.item(), 4)
    (0.0, -1.9)
    """
    params, state = _checked(optimizer, swapin_parameters, swapin_optim_state)
    groups, own_state = optimizer.param_groups, optimizer.state
    own_groups = [dict(group) for group in groups]
    try:
        optimizer.state = defaultdict(dict)
        for group, given, tensors in zip(groups, swapin_optim_state["param_groups"], params, strict=True):
            group.update(given, params=tensors)
            for id_, tensor in zip(given["params"], tensors, strict=True):
                optimizer.state[tensor] = dict(state.get(id_, {}))
        yield
    finally:
        for group, own in zip(groups, own_groups, strict=True):
            group.clear()
            group.update(own)
        optimizer.state = own_state


def _checked(optimizer: Optimizer, parameters: Any, saved: Any) -> tuple[list[list[Tensor]], dict[Any, Any]]:
    """Returns the parameters by group, and the state. Raises: RuntimeError if they do not match the optimizer."""
    _demand(optimizer.state, f"{NAME} requires initialized optimizer state.")
    _demand(isinstance(saved, dict), f"{NAME} requires a DCP-style optimizer state_dict.")
    state, groups = saved.get("state"), saved.get("param_groups")
    _demand(
        isinstance(state, dict),
        f"{NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param state "
        f"dicts, got {type(state).__name__}.",
    )
    _demand(
        not any(isinstance(key, Tensor) for key in state),
        f"{NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.",
    )
    _demand(
        all(isinstance(value, dict) for key, value in state.items() if isinstance(key, int)),
        f"{NAME} requires per-parameter optimizer state entries to be dictionaries.",
    )
    _demand(
        isinstance(groups, list),
        f"{NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, got "
        f"{type(groups).__name__}.",
    )
    _demand(
        len(optimizer.param_groups) == len(groups),
        "swapin_optim_state has a different number of parameter groups than the live optimizer.",
    )
    left, params, known = list(parameters.values()), [], set()
    for i, (own, given) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        ids = _parameter_ids(i, own, given)
        known.update(ids)
        _demand(
            len(ids) <= len(left),
            f"{NAME} requires the explicit parameter state to match optimizer.param_groups ordering.",
        )
        params.append(left[: len(ids)])
        left = left[len(ids) :]
    extra = [key for key in state if key not in known]
    _demand(
        not extra,
        f"{NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
        f"param_groups[*]['params']; got extra keys {extra!r}.",
    )
    return params, state


def _parameter_ids(i: int, own: dict[str, Any], given: Any) -> list[int]:
    """Returns the ids of the parameters in a saved group, which must have the same settings as the optimizer's."""
    _demand(isinstance(given, dict), f"{NAME} requires each optimizer param group to be a dictionary.")
    ids = given.get("params")
    _demand(
        isinstance(ids, list) and all(isinstance(id_, int) for id_ in ids),
        f"{NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter "
        "ids.",
    )
    _demand(
        len(own["params"]) == len(ids),
        f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group.",
    )
    extra, lacking = [key for key in given if key not in own], [key for key in own if key not in given]
    _demand(
        not extra and not lacking,
        f"{NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer group keys "
        f"for group {i}. Keys only in swap-in: {extra}. Keys only in live: {lacking}.",
    )
    return ids


def _demand(condition: Any, message: str) -> None:
    if not condition:
        raise RuntimeError(message)
