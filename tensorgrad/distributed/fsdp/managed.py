"""Which parameters a `FullyShardedDataParallel` takes, on which device, and with which values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.fsdp.model_states import clean
from tensorgrad.nn.module import Module
from tensorgrad.nn.parameter import Parameter

__all__ = ["device_for", "ignored", "materialize", "move", "own_parameters"]


def ignored(
    module: Any, modules: Iterable[Any] | None, states: Iterable[Any] | None, wrapper: type
) -> tuple[set[Any], set[Any]]:
    """The modules and parameters that are left as they are, also those that modules inside leave.

    Args:
        module: the module.
        modules, states: the arguments `ignored_modules` and `ignored_states`.
        wrapper: the class whose instances are not ignored.

    Raises:
        ValueError: both arguments are given, or one has items of other types.
        TypeError: `ignored_modules` is not iterable.
    """
    if modules is not None and states is not None:
        raise ValueError(
            "Cannot pass both ignored_modules and ignored_states at the same time. Please just pass ignored_states."
        )
    try:
        given = list(states if states is not None else modules or ())
    except TypeError as error:
        raise TypeError(
            f"`ignored_modules` should be an iterable of `torch.nn.Module`s but got {type(modules)}"
        ) from error
    kinds = sorted({type(item) for item in given}, key=repr)
    all_modules = all(isinstance(item, Module) for item in given)
    if states is not None and not all_modules and not all(isinstance(item, Parameter) for item in given):
        raise ValueError(
            f"ignored_states expects all nn.Parameter or all nn.Module list elements but got types {kinds}"
        )
    if states is None and not all_modules:
        raise ValueError(f"ignored_modules expects nn.Module list elements but got types {kinds}")
    if all_modules and any(isinstance(item, wrapper) for item in given):
        raise ValueError("`ignored_modules` should not include FSDP modules")
    found = {inner for item in given if all_modules for inner in item.modules() if not isinstance(inner, wrapper)}
    if module in found:
        warnings.warn(
            "Trying to ignore the top-level module passed into the FSDP constructor itself will result in all "
            f"parameters being ignored and is not well-supported: {module}",
            stacklevel=3,
        )
    parameters = set() if all_modules else set(given)
    for inner in module.modules():
        if isinstance(inner, wrapper):
            found |= inner._ignored_modules  # type: ignore[attr-defined]
            parameters |= inner._ignored_params  # type: ignore[attr-defined]
    return found, parameters | {p for inner in found for p in inner.parameters(recurse=False)}


def own_parameters(module: Any, ignored_params: set[Any], wrapper: type) -> list[tuple[str, Any, list]]:
    """The parameters that no module inside has taken: the name of each, itself, and all (module, name) that have it."""
    found: dict[int, tuple[str, Any, list]] = {}
    seen: set[int] = set()

    def visit(inner: Any, prefix: str) -> None:
        if id(inner) in seen:
            return
        seen.add(id(inner))
        for name, parameter in inner._parameters.items():
            if parameter is None or parameter in ignored_params or getattr(parameter, "_fsdp_flattened", False):
                continue
            found.setdefault(id(parameter), (clean(prefix + name), parameter, []))[2].append((inner, name))
        for name, child in inner.named_children():
            if not isinstance(child, wrapper):
                visit(child, f"{prefix}{name}.")

    visit(module, "")
    return list(found.values())


def device_for(device_id: Any, parameters: Iterable[Any]) -> torch.device:
    """Where parameters are gathered: the given device, or that of the parameters.

    Raises: RuntimeError if they are on several devices.
    """
    devices = {parameter.device for parameter in parameters} - {torch.device("meta")}
    if device_id is None and len(devices) > 1:
        if torch.device("cpu") in devices and len(devices) == 2:
            raise RuntimeError("To support a module with both CPU and GPU params, please pass in device_id argument.")
        raise RuntimeError(f"FSDP only supports single device modules but got params on {devices}")
    if device_id is not None:
        device = device_id if isinstance(device_id, torch.device) else torch.device(device_id)
    else:
        device = next(iter(devices), torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _inside(module: Any, ignored_modules: set[Any], wrapper: type) -> list[Any]:
    """The module and those inside that are neither wrapped nor ignored."""
    found, waiting = [], [module]
    while waiting:
        inner = waiting.pop(0)
        found.append(inner)
        waiting += [
            child for child in inner.children()
            if child not in ignored_modules and not isinstance(child, wrapper) and child not in found
        ]  # fmt: skip
    return found


def materialize(
    module: Any, init: Callable[[Any], Any] | None, device: torch.device, ignored_modules: set[Any], wrapper: type
) -> None:
    """Gives modules on the meta device memory and values: by `init`, or by their `reset_parameters`.

    Raises: ValueError if `init` cannot be called.
    """
    modules = _inside(module, ignored_modules, wrapper)
    own = [[*inner.parameters(recurse=False), *inner.buffers(recurse=False)] for inner in modules]
    if not any(tensor.is_meta for tensors in own for tensor in tensors):
        return
    if init is not None and not callable(init):
        raise ValueError(f"Expected {init} to be callable but got {type(init)}")
    with torch.no_grad():
        for inner, tensors in zip(modules, own):
            if init is not None:
                init(inner)
            elif tensors:
                inner.to_empty(device=device, recurse=False)
                if not hasattr(inner, "reset_parameters"):
                    warnings.warn(
                        "Unable to call `reset_parameters()` for module on meta device. Please ensure that your module "
                        f"of type {type(inner)} implements a `reset_parameters()` method.",
                        stacklevel=4,
                    )
                inner.reset_parameters()


def move(module: Any, device: torch.device, ignored_modules: set[Any], ignored_params: set[Any], wrapper: type) -> None:
    """Moves what is in main memory to the device."""
    for inner in _inside(module, ignored_modules, wrapper):
        for parameter in inner.parameters(recurse=False):
            if parameter.device.type == "cpu" and parameter not in ignored_params:
                parameter.data = parameter.data.to(device)
        for name, buffer in list(inner.named_buffers(recurse=False)):
            if buffer.device.type == "cpu":
                inner._buffers[name] = buffer.to(device)
