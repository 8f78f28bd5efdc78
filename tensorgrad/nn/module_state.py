"""Saving and restoring a module: `state_dict`, `load_state_dict` and their hooks."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import tensorgrad as torch
from tensorgrad.autograd.handles import RemovableHandle
from tensorgrad.nn.parameter import Parameter, is_lazy
from tensorgrad.tensor import Tensor

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Stateful:
    """The state methods of `tensorgrad.nn.Module`."""

    # Saved with the module's state. Layers that change their state's format increment it and can load the old one.
    _version: int = 1

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable]
    _state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _load_state_dict_post_hooks: OrderedDict[int, Callable]
    named_buffers: Callable[..., Any]

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Returns all parameters and persistent buffers by name, sharing the module's memory.

        Args:
            destination: a dictionary to fill instead of a new one.
            prefix: prepended to every name.
            keep_vars: return the parameters themselves, not tensors detached from the graph.

        >>> list(torch.nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. That is, "
                "state_dict(destination=..., prefix=..., keep_vars=...)",
                FutureWarning,
                stacklevel=2,
            )
            given: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        tables = self.__dict__
        for hook in tables.get("_state_dict_pre_hooks", {}).values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in tables.get("_state_dict_hooks", {}).values():
            given = hook(self, destination, prefix, metadata)
            if given is not None:
                if getattr(hook, "_from_public_api", False):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = given
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Adds this module's own state (not its children's) to `destination`."""
        for name, value in self._own_state().items():
            destination[prefix + name] = value if keep_vars else value.detach()
        if _overrides(self, "get_extra_state"):
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _own_state(self) -> dict[str, Tensor]:
        own: dict[str, Tensor] = {k: v for k, v in self._parameters.items() if v is not None}
        transient = self._non_persistent_buffers_set
        own.update((k, v) for k, v in self._buffers.items() if v is not None and k not in transient)
        return own

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies the values of `state_dict` into the module's parameters and buffers of the same names.

        Args:
            state_dict: the result of `state_dict`, possibly of another module of the same structure.
            strict: raise an error if a name exists on one side only.
            assign: replace the module's own tensors by the given ones, which keep their dtype and device.

        Returns:
            A named tuple `(missing_keys, unexpected_keys)`.

        Raises:
            TypeError: `state_dict` is not a mapping.
            RuntimeError: names or shapes do not match; the message lists all mismatches.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: Any = OrderedDict(state_dict)  # hooks may rename its keys
        if metadata is not None:
            copied._metadata = metadata

        _load(self, copied, "", metadata or {}, assign, missing, unexpected, errors)
        if strict:
            for keys, text in ((unexpected, "Unexpected"), (missing, "Missing")):
                if keys:
                    listed = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{text} key(s) in state_dict: {listed}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

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
        """Loads this module's own state, not its children's, from `state_dict`. May be overridden."""
        for hook in self.__dict__.get("_load_state_dict_pre_hooks", {}).values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self._own_state()
        for name, mine in own.items():
            key = prefix + name
            if key in state_dict:
                error = _restore(self, name, key, mine, state_dict[key], assign)
                if error:
                    error_msgs.append(error)
            elif strict:
                missing_keys.append(key)

        extra = prefix + EXTRA_STATE
        if _overrides(self, "set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)

        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, dot, _ = key[len(prefix) :].partition(".")
                    if first not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def get_extra_state(self) -> Any:
        """Returns extra state to save in the `state_dict`. Override it, with `set_extra_state`, if needed."""
        raise RuntimeError("get_extra_state() was called on a Module that does not define it")

    def set_extra_state(self, state: Any) -> None:
        """Restores the extra state that `get_extra_state` returned; `load_state_dict` calls it."""
        raise RuntimeError("set_extra_state() was called on a Module that does not define it")

    def init_from_torch(self, torch_module: Any) -> Any:
        """Copies the parameters and buffers of a PyTorch module of the same structure; returns `self`.

        Args:
            torch_module: a `torch.nn.Module` whose parameters and buffers have the names and shapes of this one's.

        Raises:
            TypeError: the argument is not a PyTorch module.
            RuntimeError: names or shapes differ; the message lists all differences.

        Example (this library never imports PyTorch itself)::

            mine = tensorgrad.nn.Linear(2, 3).init_from_torch(torch.nn.Linear(2, 3))
        """
        if not callable(getattr(torch_module, "state_dict", None)):
            raise TypeError(f"init_from_torch expects a torch.nn.Module, got {type(torch_module).__name__}")
        theirs = {name: _from_torch(value) for name, value in torch_module.state_dict().items()}
        self.load_state_dict(theirs)
        transient = {name: value for name, value in torch_module.named_buffers() if name not in theirs}
        for name, mine in self.named_buffers():
            if name in transient:
                error = _restore(self, name, name, mine, _from_torch(transient[name]), False)
                if error:
                    raise RuntimeError(f"init_from_torch for {type(self).__name__}: {error}")
        return self

    # --- hooks ---

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before `state_dict` collects the state."""
        return RemovableHandle.add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, local_metadata)` afterwards; it may change the dictionary."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return RemovableHandle.add(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return RemovableHandle.add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return RemovableHandle.add(self._load_state_dict_pre_hooks, _WrappedHook(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` after loading; it may change the two lists in place."""
        return RemovableHandle.add(self._load_state_dict_post_hooks, hook)


class _WrappedHook:
    """A hook that gets its module as first argument, through a weak reference to avoid a reference cycle."""

    def __init__(self, hook: Callable, module: Any = None):
        self.hook, self.with_module = hook, module is not None
        self.module = weakref.ref(module) if self.with_module else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.module is None:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict:
        state = {"hook": self.hook, "with_module": self.with_module}
        return state if self.module is None else {**state, "module": self.module()}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["hook"], state.get("module"))  # type: ignore[misc]


def _load(
    module: Any,
    state_dict: Any,
    prefix: str,
    metadata: Mapping,
    assign: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    local = dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(state_dict, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            inner = f"{prefix}{name}."
            part = {key: value for key, value in state_dict.items() if key.startswith(inner)}
            _load(child, part, inner, metadata, assign, missing, unexpected, errors)
    for hook in module.__dict__.get("_load_state_dict_post_hooks", {}).values():
        if hook(module, _IncompatibleKeys(missing, unexpected)) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, "
                "if incompatible_keys need to be modified, it should be done inplace."
            )


def _restore(module: Any, name: str, key: str, mine: Tensor, given: Any, assign: bool) -> str | None:
    """Copies `given` into `mine`, or assigns it; returns an error message if that fails."""
    if not isinstance(given, Tensor) and not hasattr(given, "__torch_function__"):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
            f"but received {type(given)}"
        )
    if is_lazy(mine) and is_lazy(given):  # neither has a shape, so there is nothing to copy
        return None
    if mine.dim() == 0 and given.shape == (1,):  # checkpoints of old PyTorch store scalars as one-element vectors
        given = given[0]
    if given.shape != mine.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in current "
            f"model is {mine.shape}."
        )
    if mine.is_meta and not given.is_meta and not assign:
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, "
            "which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their "
            "corresponding key in the module instead of copying them in place?)",
            stacklevel=6,
        )
        return None
    try:
        with torch.no_grad():
            if assign:
                if isinstance(mine, Parameter):
                    if isinstance(given, Parameter):
                        given.requires_grad_(mine.requires_grad)
                    else:
                        given = Parameter(given, requires_grad=mine.requires_grad)
                setattr(module, name, given)
            else:
                mine.copy_(given)
    except Exception as error:
        return (
            f'While copying the parameter named "{key}", whose dimensions in the model are {mine.size()} and whose '
            f"dimensions in the checkpoint are {given.size()}, an exception occurred : {error.args}."
        )
    return None


def _from_torch(value: Any) -> Any:
    """Converts a PyTorch tensor; returns anything else (extra state) unchanged."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    if str(value.dtype) == "torch.bfloat16":  # NumPy has no such type; every bfloat16 is a float32
        value = value.float()
    return torch.from_numpy(np.array(value.numpy()))


def _overrides(module: Any, method: str) -> bool:
    return getattr(type(module), method) is not getattr(Stateful, method)


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix, such as DataParallel's `module.`, from the names in a state dict, and from its metadata.

    >>> from tensorgrad.nn.modules.utils import consume_prefix_in_state_dict_if_present
    >>> state = torch.nn.DataParallel(torch.nn.Linear(2, 1)).state_dict()
    >>> consume_prefix_in_state_dict_if_present(state, "module.")
    >>> list(state)
    ['weight', 'bias']
    """
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[name.removeprefix(prefix)] = state_dict.pop(name)
    metadata: Any = getattr(state_dict, "_metadata", {})
    for name in list(metadata):
        if name and (name.startswith(prefix) or name == prefix.rstrip(".")):
            metadata[name[len(prefix) :]] = metadata.pop(name)
