"""Wraps the modules inside a model that a policy chooses, each by itself, as `FullyShardedDataParallel` does first."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable
from typing import Any

import tensorgrad as torch
from tensorgrad.distributed.fsdp.around_forward import cast
from tensorgrad.distributed.fsdp.wrap import _Policy, _recursive_wrap, _wrapped

__all__ = ["auto_wrap"]


def auto_wrap(
    model: Any,
    policy: Any,
    ignored_modules: Collection[Any],
    ignored_params: Collection[Any],
    options: dict[str, Any],
    wrapper: type,
) -> None:
    """Wraps modules inside a model, in place.

    Args:
        model: the model, which itself is not wrapped.
        policy: a policy or rule of `torch.distributed.fsdp.wrap`.
        ignored_modules, ignored_params: what is left as it is.
        options: arguments for the wrapper.
        wrapper: the class.

    Raises: ValueError if something inside is wrapped already.
    """
    for name, module in model.named_modules():
        if isinstance(module, wrapper):
            raise ValueError(
                f"FSDP auto wrapping requires modules to not already have FSDP applied but found {name} in\n{model}"
            )
    classes: tuple[type, ...] = ()
    if options["mixed_precision"] is not None:
        classes = tuple(options["mixed_precision"]._module_classes_to_ignore)
        _keep_precision(model, classes)
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(model, ignored_modules, {**options, "auto_wrap_policy": None})
        for module in model.modules():
            if isinstance(module, classes) and module not in ignored_modules:
                chosen.setdefault(module, {**options, "auto_wrap_policy": None})
        _wrap_chosen(model, chosen, wrapper)
        return
    rule = functools.partial(_either, rule=policy, classes=classes) if classes else policy
    _recursive_wrap(model, rule, wrapper, ignored_modules, ignored_params, only_wrap_children=True, **options)


def _either(module: Any, recurse: bool, nonwrapped_numel: int, rule: Any, classes: tuple[type, ...]) -> bool:
    """The rule, and modules of these classes."""
    asked = rule(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)
    return asked or recurse or isinstance(module, classes)


def _wrap_chosen(model: Any, chosen: dict[Any, dict[str, Any]], wrapper: type) -> None:
    made: dict[Any, Any] = {}
    for parent in reversed(list(model.modules())):  # the inner ones first
        for name, child in list(parent.named_children()):
            if child in chosen:
                if child not in made:
                    made[child] = _wrapped(child, wrapper, chosen[child])
                setattr(parent, name, made[child])


def _keep_precision(model: Any, classes: Iterable[Any]) -> None:
    """Makes modules of these classes compute in float32, whatever the rest computes in; they are wrapped apart."""
    found: set[type] = set()
    for inner in model.modules():
        if isinstance(inner, tuple(classes)):
            module: Any = inner
            found.add(type(module))
            module._wrap_overrides = {"mixed_precision": None}
            module.register_forward_pre_hook(_to_float32)
            module.register_forward_hook(_back)
    if found:
        warnings.warn(
            "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has "
            f"submodules of type:\n{found}\nThese modules will be wrapped as separate FSDP instances with mixed "
            "precision disabled.",
            stacklevel=4,
        )


def _to_float32(module: Any, args: tuple) -> tuple:
    floats = [value for value in args if isinstance(value, torch.Tensor) and value.is_floating_point()]
    module._dtype_of_input = floats[0].dtype if floats else None
    return cast(args, torch.float32)


def _back(module: Any, args: tuple, output: Any) -> Any:
    return output if module._dtype_of_input is None else cast(output, module._dtype_of_input)
