"""Calling a module as a function of its parameters, which are temporarily replaced by given tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorgrad as torch
from tensorgrad.nn.module import Module
from tensorgrad.tensor import Tensor

_MISSING: Any = object()


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated: use `tensorgrad.func.functional_call`, which takes the same arguments.

    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> from tensorgrad.nn.utils.stateless import functional_call
    >>> functional_call(torch.nn.Linear(1, 1, bias=False), {"weight": torch.ones(1, 1)}, torch.tensor([2.0]))
    tensor([2.])
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    if isinstance(module, torch.nn.DataParallel):
        raise RuntimeError("The stateless API can't be used with nn.DataParallel module")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def _reparametrize_module(
    module: Module, parameters_and_buffers: dict[str, Tensor], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """Replaces parameters and buffers by the given tensors inside a `with` block.

    If the module itself replaces one of them (a buffer, say), the dictionary contains the new tensor afterwards.

    Args:
        tie_weights: replace a shared parameter under all of its names.
        strict: raise an error if a name exists on one side only.
    """
    given = _with_tied(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    if strict:
        _check_names(module, given)
    before: dict[str, Any] = {}
    try:
        for name, tensor in given.items():
            before[name] = _swap(module, name, tensor)
        yield
    finally:
        # In reverse order, as a module that has two names was changed twice.
        after = {name: _swap(module, name, before[name]) for name in reversed(before)}
        for name in parameters_and_buffers:
            if after.get(name, _MISSING) is not _MISSING:
                parameters_and_buffers[name] = after[name]


def _swap(module: Module, path: str, tensor: Any) -> Any:
    """Replaces a tensor and returns the old one; `_MISSING` means that there is none."""
    prefix, _, name = path.rpartition(".")
    owner = _owner(module, prefix)
    if not isinstance(tensor, Tensor) and tensor is not None and tensor is not _MISSING:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    for table in (owner._parameters, owner._buffers):
        if name in table:
            before = table[name]
            if tensor is _MISSING:
                del table[name]
            else:
                table[name] = tensor
            return before
    before = getattr(owner, name, _MISSING)
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(owner, name, tensor)
    elif before is not _MISSING:
        delattr(owner, name)
    return before


def _owner(module: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        module = getattr(module, name)
        if not isinstance(module, Module):
            raise TypeError(f"submodule `{name}`: {module} is not an instance of torch.nn.Module")
    return module


def _named_tensors(module: Module) -> dict[str, Tensor]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))
    }  # fmt: skip


def _check_names(module: Module, given: dict) -> None:
    known = set(_named_tensors(module))
    errors = []
    for kind, names in (("Unexpected", set(given) - known), ("Missing", known - set(given))):
        if names:
            errors.append(f"{kind} key(s): {', '.join(map(repr, sorted(names)))}.")
    if errors:
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(errors))


def _with_tied(module: Module, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the given tensors under all names of the tensors that they replace.

    Raises: ValueError if different tensors are given for names of the same tensor.
    """
    names_of: dict[Tensor, list[str]] = {}
    for name, tensor in _named_tensors(module).items():
        names_of.setdefault(tensor, []).append(name)
    complete = dict(given)
    for names in names_of.values():
        present = [name for name in names if name in given]
        if len(names) < 2 or not present:
            continue
        if len({id(given[name]) for name in present}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. Consider using "
                "tie_weights=False"
            )
        complete.update(dict.fromkeys(names, given[present[0]]))
    return complete


def merged(dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Merges one or several dictionaries. Raises: ValueError for other types, or if a name occurs twice."""
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}"
        )
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for d in dicts for name in d]
    repeated = sorted({name for name in names if names.count(name) > 1}, key=names.index)
    if repeated:
        raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {name: tensor for d in dicts for name, tensor in d.items()}
