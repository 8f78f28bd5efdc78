"""State dicts of optimizers with the names of parameters in place of numbers: nested, or flat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorgrad as torch

__all__ = ["flattened", "for_optimizer", "initialize", "named_state", "unflattened"]

Names = dict[int, list[str]]


def initialize(optimizer: Any) -> None:
    """Makes the state of an optimizer that has none, by a step with gradients and a learning rate of zero.

    Like PyTorch's, the optimizer then counts one step. Nothing happens if there are gradients.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return
    rates = [(group, group["lr"]) for group in optimizer.param_groups if "lr" in group]
    try:
        for group, rate in rates:
            group["lr"] = torch.tensor(0.0) if isinstance(rate, torch.Tensor) else 0.0
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step(closure=None)
    finally:
        for group, rate in rates:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)


def _names(parameter: Any, names: Names) -> list[str]:
    found = names.get(id(parameter))
    if found is None:
        raise KeyError(f"the optimizer has a parameter of size {tuple(parameter.shape)} that is not in the model")
    return found


def named_state(optimizers: Iterable[Any], names: Names) -> dict[str, Any]:
    """The state of all these optimizers, with the first name of each parameter.

    Raises: KeyError if an optimizer has a parameter that the model does not have.
    """
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in optimizers:
        initialize(optimizer)
        own = optimizer.state_dict()
        ids = [n for group in own["param_groups"] for n in group["params"]]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        name_of = {n: _names(p, names)[0] for n, p in zip(ids, parameters, strict=True)}
        result["state"] |= {name_of[n]: state for n, state in own["state"].items()}
        result["param_groups"] += [
            {**group, "params": [name_of[n] for n in group["params"]]} for group in own["param_groups"]
        ]
    return result


def flattened(state: dict[str, Any]) -> dict[str, Any]:
    """The same as one dict, with keys such as "state.layer.weight.step" and "param_groups.layer.weight.lr".

    Raises: NotImplementedError for state that is not a tensor, a number or a dict of such.
    """
    result: dict[str, Any] = {}

    def add(key: str, value: Any) -> None:
        if isinstance(value, dict):
            for part, item in value.items():
                add(f"{key}.{part}", item)
        elif isinstance(value, torch.Tensor | int | float):
            result[key] = value
        else:
            raise NotImplementedError(
                "Flattening optimizer state_dict only supports tensor, int, float, dict states now. "
                f"Type is {type(value)}."
            )

    for name, own in state["state"].items():
        add(f"state.{name}", own)
    for group in state["param_groups"]:
        for name in group["params"]:
            for key, value in group.items():
                if key != "params":
                    result[f"param_groups.{name}.{key}"] = value
    return result


def unflattened(flat: dict[str, Any], optimizer: Any, names: Names) -> dict[str, Any]:
    """The nested state of one optimizer. Its own state says where the names of parameters end.

    Raises: KeyError if something is missing; RuntimeError if the parameters of a group have other settings.
    """
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    for group in optimizer.param_groups:
        settings: dict[str, Any] = {"params": []}
        for parameter in group["params"]:
            known = _names(parameter, names)
            name = next((n for n in known if any(f"param_groups.{n}.{key}" in flat for key in group)), known[0])
            settings["params"].append(name)
            if parameter.requires_grad:
                result["state"][name] = {
                    key: _unflattened_value(flat, f"state.{name}.{key}") for key in optimizer.state.get(parameter, {})
                }
            for key in group:
                if key == "params":
                    continue
                value = _value(flat, f"param_groups.{name}.{key}")
                if settings.setdefault(key, value) != value:
                    raise RuntimeError(
                        "All the parameters in the same parameter group should have the same saved param_group value. "
                        f"But {name}.{key} is {value} while other(s) is {settings[key]}."
                    )
        result["param_groups"].append(settings)
    return result


def _value(flat: dict[str, Any], key: str) -> Any:
    if key not in flat:
        raise KeyError(f"{key} is missing in the optimizer's state dict")
    return flat[key]


def _unflattened_value(flat: dict[str, Any], key: str) -> Any:
    inside = {name[len(key) + 1 :]: value for name, value in flat.items() if name.startswith(key + ".")}
    if key in flat or not inside:
        return _value(flat, key)
    nested: dict[str, Any] = {}
    for name, value in inside.items():
        *parts, last = name.split(".")
        here = nested
        for part in parts:
            here = here.setdefault(part, {})
        here[last] = value
    return nested


def for_optimizer(state: dict[str, Any], optimizer: Any, names: Names, strict: bool) -> dict[str, Any]:
    """The part of a named state that belongs to one optimizer, in the order of its parameters.

    Raises: RuntimeError if the state of a parameter is missing; ValueError if it is not clear which group is meant.
    """
    if all(isinstance(name, int) for name in state["state"]):
        return state
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    group_of = {name: group for group in state["param_groups"] for name in group["params"]}
    for group in optimizer.param_groups:
        settings: dict[str, Any] = {}
        if not group["params"]:
            settings = _group_without_parameters(state, optimizer)
        chosen = []
        for parameter in group["params"]:
            known = _names(parameter, names)
            name = next((n for n in known if n in group_of), known[0])
            chosen.append(name)
            settings = group_of.get(name, settings)
            if name in state["state"] and parameter.requires_grad:
                result["state"][name] = state["state"][name]
            elif parameter.requires_grad and strict:
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients "
                    "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
        result["param_groups"].append({**settings, "params": chosen})
    return result


def _group_without_parameters(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    found = [group for group in state["param_groups"] if not group["params"]]
    if len(found) != 1:
        raise ValueError(
            "There are param groups that have zero parameters. In such a case, DSD only support exactly one param "
            "group with zero parameters.But the loaded state_dict has zero or more than one param groups that have "
            "zero parameters."
        )
    if len(state["param_groups"]) != len(optimizer.param_groups):
        raise ValueError(
            "When there is a parameter group that has zero parameters, multiple optimizers are not supported."
        )
    return found[0]
