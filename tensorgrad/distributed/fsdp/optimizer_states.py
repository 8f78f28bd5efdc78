"""States of optimizers of a `FullyShardedDataParallel`, by the names of the parameters in the model without wrappers.

What an optimizer keeps for a part of a parameter is put together from all ranks (`named_state`), and divided again when
it is loaded (`state_to_load`). Tensors without dimensions, and what is no tensor, are the same for all of a parameter.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorgrad as torch
from tensorgrad.distributed import collectives
from tensorgrad.distributed.fsdp.flat_group import FlatGroup, Original
from tensorgrad.distributed.fsdp.model_states import clean, in_rows, on_cpu, whole_of

__all__ = ["Managed", "managed_parameters", "named_state", "rekeyed", "state_to_load"]


class Managed(NamedTuple):
    """One parameter of an optimizer: the vector of a unit, a part of a parameter of a unit, or a parameter of none."""

    names: list[str]
    group: FlatGroup | None
    mesh: Any
    original: Original | None


def managed_parameters(model: Any, units: Callable[[Any], Any]) -> dict[int, Managed]:
    """All parameters of a model that optimizers may have, by their `id`.

    Args:
        model: the model.
        units: from a module, (group, mesh) if it is a `FullyShardedDataParallel`, else None.
    """
    found: dict[int, Managed] = {}
    for path, module in model.named_modules():
        unit = units(module)
        if unit is None:
            continue
        group, mesh = unit
        prefix = clean(path + ".") if path else ""
        names = [prefix + p.name for p in group.parameters]
        if group.keeps:
            for name, p in zip(names, group.parameters):
                found[id(p.parameter)] = Managed([name], group, mesh, p)
        elif group.parameters:
            found[id(group.flat)] = Managed(names, group, mesh, None)
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), Managed([clean(name)], None, None, None))
    return found


def _entries(optimizer: Any, known: dict[int, Managed]) -> list[tuple[Any, Managed]]:
    """The parameters of an optimizer in its order.

    Raises: KeyError if one is not in the model.
    """
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise KeyError(
                    f"the optimizer has a parameter of size {tuple(parameter.shape)} that is not in the model"
                )
            found.append((parameter, known[id(parameter)]))
    return found


def _keys(state: dict[str, Any]) -> list[Any]:
    return [key for group in state["param_groups"] for key in group["params"]]


# --- saving -----------------------------------------------------------------------------------------------------------


def named_state(
    known: dict[int, Managed], optimizer: Any, state: dict[str, Any], rows: bool, returned: bool, offload: bool
) -> dict[str, Any]:
    """The state of an optimizer with names and whole tensors, or with `DTensor`s. All ranks must call it.

    Args:
        known: the model's parameters.
        optimizer: the optimizer.
        state: its `state_dict()`.
        rows: whether tensors are `DTensor`s of rows.
        returned: whether this rank gets the result; else it gets an empty dictionary.
        offload: whether tensors are put into main memory.
    """
    entries = _entries(optimizer, known)
    own = {key: state["state"][key] for key in _keys(state) if key in state["state"]}
    by_key = dict(zip(_keys(state), (managed for _, managed in entries), strict=True))
    result: dict[Any, dict[str, Any]] = {}

    def put(name: str, key: str, value: Any, mesh: Any) -> None:
        if returned:
            if isinstance(value, torch.Tensor):
                value = in_rows(value, mesh) if rows and mesh is not None else value.detach().clone()
                value = on_cpu(value) if offload else value
            result.setdefault(name, {})[key] = value

    with torch.no_grad():
        for group, mesh, parts in _by_group(by_key, own):
            for name, key, value in _group_state(group, parts):
                put(name, key, value, mesh)
    for key, values in own.items():
        managed = by_key[key]
        if managed.group is None:
            for state_name, value in values.items():
                put(managed.names[0], state_name, value, None)
    if not returned:
        return {}
    for key, value in state["state"].items():
        if key not in by_key:
            warnings.warn(
                f"Found a optim state, {key}, that FSDP cannot process. FSDP will directly copy everything to the "
                "returned state_dict.",
                stacklevel=4,
            )
            result[key] = value
    groups = []
    for group_settings in state["param_groups"]:
        settings = {name: copy.deepcopy(value) for name, value in group_settings.items() if name != "params"}
        names = [name for key in group_settings["params"] for name in by_key[key].names]
        groups.append({**settings, "params": names})
    return {"state": result, "param_groups": groups}


def _by_group(
    by_key: dict[Any, Managed], own: dict[Any, dict[str, Any]]
) -> Iterator[tuple[FlatGroup, Any, list[tuple[Managed, dict[str, Any]]]]]:
    """Each group of which the optimizer has parameters, with the state of those parameters; empty if there is none."""
    parts: dict[int, tuple[FlatGroup, Any, list[tuple[Managed, dict[str, Any]]]]] = {}
    for key, managed in by_key.items():
        if managed.group is not None:
            _, _, found = parts.setdefault(id(managed.group), (managed.group, managed.mesh, []))
            found.append((managed, own.get(key, {})))
    yield from parts.values()


def _group_state(group: FlatGroup, parts: list[tuple[Managed, dict[str, Any]]]) -> Iterator[tuple[str, str, Any]]:
    """Name, key and value of all that is kept for the parameters of a group, with whole tensors."""
    if not group.keeps:
        managed, values = parts[0]
        for key, value in values.items():
            whole = group.collect(value) if _is_part(value, group.flat) else None
            for name, p in zip(managed.names, group.parameters):
                yield name, key, value if whole is None else group.of(p, whole)
        return
    described = _described(group, parts)
    numbers: dict[str, Any] = {managed.names[0]: managed.original for managed, _ in parts}
    local = {managed.names[0]: values for managed, values in parts}
    wanted: dict[tuple[str, Any], list[str]] = {}
    for name, values in described.items():
        for key, (dtype, value) in values.items():
            if dtype is None:
                yield name, key, value
            else:
                wanted.setdefault((key, dtype), []).append(name)
    for (key, dtype), names in sorted(wanted.items(), key=str):
        part = torch.zeros(group.part, dtype=dtype, device=group.flat.device)
        for name in names:
            p = numbers[name]
            first, last = group.span(p)
            if first < last and key in local[name]:
                part[first:last].copy_(local[name][key].reshape(-1))
        whole = group.collect(part)
        for name in names:
            yield name, key, group.of(numbers[name], whole)


def _described(group: FlatGroup, parts: list[tuple[Managed, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of each parameter's state by key: (dtype, None) of what is divided, and (None, value) of what is not.

    Ranks without elements of a parameter have no state of it, so all of them tell each other.
    """
    own: dict[str, dict[str, Any]] = {}
    for managed, values in parts:
        p: Any = managed.original
        first, last = group.span(p)
        if values and first < last:
            own[managed.names[0]] = {
                key: (value.dtype, None) if _is_part(value, p.parameter) else (None, value)
                for key, value in values.items()
            }
    everywhere: list[Any] = [own]
    if group.group is not None:
        everywhere = [None] * group.size
        collectives.all_gather_object(everywhere, own, group.group)
    merged: dict[str, dict[str, Any]] = {}
    for found in everywhere:
        for name, values in found.items():
            merged.setdefault(name, values)
    return {managed.names[0]: merged[managed.names[0]] for managed, _ in parts if managed.names[0] in merged}


def _is_part(value: Any, parameter: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and tuple(value.shape) == tuple(parameter.shape)


# --- loading ----------------------------------------------------------------------------------------------------------


def state_to_load(
    known: dict[int, Managed], optimizer: Any, state: dict[str, Any], named: bool = False
) -> dict[str, Any]:
    """What an optimizer can load, from the state that `named_state` returned.

    Args:
        known: the model's parameters.
        optimizer: the optimizer.
        state: the state by names, with whole tensors or `DTensor`s; the same names on all ranks.
        named: whether the result has names, too, for optimizers that know their parameters by name.

    Raises:
        ValueError: the parameters that are in one vector have different states.
    """
    entries = _entries(optimizer, known)
    by_name = state["state"]
    result: dict[Any, Any] = {}
    key_of: dict[str, Any] = {}
    with torch.no_grad():
        whole = {name: {key: whole_of(value) for key, value in values.items()} if isinstance(values, dict) else values
                 for name, values in by_name.items()}  # fmt: skip
        for number, (_, managed) in enumerate(entries):
            key = managed.names[0] if named else number
            key_of.update(dict.fromkeys(managed.names, key))
            found = _divided(managed, whole)
            if found:
                result[key] = found
    used = {name for _, managed in entries for name in managed.names}
    result |= {name: values for name, values in whole.items() if name not in used}
    loaded: dict[str, Any] = {"state": result}
    if "param_groups" in state:
        loaded["param_groups"] = []
        for group in state["param_groups"]:
            settings = {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
            keys = list(dict.fromkeys(key_of[name] for name in group["params"]))
            loaded["param_groups"].append({**settings, "params": sorted(keys)})
    return loaded


def _divided(managed: Managed, whole: dict[str, Any]) -> dict[str, Any]:
    """This rank's part of the state of one parameter."""
    group, p = managed.group, managed.original
    if group is None:
        return dict(whole.get(managed.names[0], {}))
    if p is not None:
        first, last = group.span(p)
        values = whole.get(managed.names[0], {})
        if first == last:
            return {}
        return {key: _own(group, p, value) if _is_whole(value, p) else value for key, value in values.items()}
    states = [whole.get(name) for name in managed.names]
    present = [values for values in states if values is not None]
    if not present:
        return {}
    if any(set(values) != set(present[0]) for values in present):
        raise ValueError(f"Differing optimizer state names for the unflattened parameters: {managed.names}")
    return {key: _joined(group, managed, states, key) for key in present[0]}


def _own(group: FlatGroup, p: Original, value: Any) -> Any:
    own = group.piece(p, value).clone()
    return own.reshape(p.shape) if group.group is None else own


def _is_whole(value: Any, p: Original) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and tuple(value.shape) == p.shape


def _joined(group: FlatGroup, managed: Managed, states: list[Any], key: str) -> Any:
    """What the vector of a unit has, from what each of its parameters has; zeros where one has nothing."""
    values = [None if state is None else state[key] for state in states]
    given = [value for value in values if value is not None]
    if not given:
        return None
    if isinstance(given[0], torch.Tensor) and given[0].dim():
        part = torch.zeros(group.part, dtype=given[0].dtype, device=group.flat.device)
        for value, p in zip(values, group.parameters):
            if value is None:
                continue
            if not _is_whole(value, p):
                raise ValueError(
                    f"Tensor optimizer state does not have same shape as its parameter: {value.shape} {p.shape}"
                )
            group.put(part, p, value)
        return part
    plain = [value.item() if isinstance(value, torch.Tensor) else value for value in given]
    if len(given) != len(values) or any(value != plain[0] for value in plain):
        raise ValueError(
            "All unflattened parameters comprising a single flat parameter must have scalar state with the same value "
            f"and dtype but got values {plain} for state {key} and unflattened parameter names {managed.names}"
        )
    return given[0].clone() if isinstance(given[0], torch.Tensor) else given[0]


def rekeyed(state: dict[str, Any], to_names: bool, names: list[str]) -> dict[str, Any]:
    """The same state with names in place of numbers, or with numbers in place of names.

    Args:
        state: an optimizer's state for a model without wrappers.
        to_names: which of the two.
        names: those of the optimizer's parameters, in its order.

    Raises: ValueError if some keys are names and others numbers.
    """
    keys = list(state["state"])
    if any(type(key) is str for key in keys) and any(type(key) is int for key in keys):
        raise ValueError(f"Invalid parameter keys: {state['state'].keys()}")
    if all(type(key) is (str if to_names else int) for key in keys):
        return state
    new: dict[Any, Any] = dict(enumerate(names)) if to_names else {name: i for i, name in enumerate(names)}
    groups = [{**copy.deepcopy(group), "params": sorted(new[key] for key in group["params"])}
              for group in state["param_groups"]]  # fmt: skip
    return {"state": {new[key]: value for key, value in state["state"].items()}, "param_groups": groups}
