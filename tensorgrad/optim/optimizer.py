"""The base class of all optimizers: parameter groups with their settings, state per parameter, saving, hooks.

As in PyTorch, user-defined optimizers subclass `Optimizer` and define `step`.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, TypeAlias

from tensorgrad.autograd.handles import RemovableHandle
from tensorgrad.dtypes import float32
from tensorgrad.nn.module import clear_grad, typename
from tensorgrad.rows.switches import SLOW
from tensorgrad.tensor import PLAIN, Tensor

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

# The hooks on every optimizer's step.
_global_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_post_hooks: OrderedDict[int, Callable] = OrderedDict()

_HOOK_TABLES = tuple(
    f"_optimizer_{what}_hooks"
    for what in (
        "step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"
    )
)  # fmt: skip


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()  # a default that requires a value in every group


class Optimizer:
    """Base class of all optimizers.

    Args:
        params: the tensors to optimize: an iterable of tensors, of `(name, tensor)` pairs, or of dictionaries with
            the key `"params"` and settings that differ from `defaults`, one for each group.
        defaults: the settings.

    Raises:
        TypeError: `params` is a tensor, a set, or contains something that is not a tensor.
        ValueError: there are no parameters, one is not a leaf, or one is in two groups.

    Attributes:
        param_groups: a list of dictionaries, each with `"params"` and its settings; may be changed at any time.
        state: one dictionary per parameter.

    >>> class Signs(torch.optim.Optimizer):
    ...     @torch.no_grad()
    ...     def step(self):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p -= group["lr"] * p.grad.sign()
    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = Signs([w], {"lr": 0.5})
    >>> (w**2).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.5000, -1.5000], requires_grad=True)
    """

    _optimizer_step_pre_hooks: OrderedDict[int, Callable]
    _optimizer_step_post_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable]
    _opt_called = False  # whether step() has run; learning rate schedulers warn if they are stepped first

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for table in _HOOK_TABLES:
            setattr(self, table, OrderedDict())
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + typename(params)
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wraps a user-defined `step`, so that hooks run around it."""
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "runs_hooks", False):
            cls.step = _with_hooks(step)

    def _patch_step_function(self) -> None:
        """Does nothing: hooks run around `step` since the class was defined. Some subclasses call it."""

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        """`torch.utils._foreach_utils._group_tensors_by_device_and_dtype`."""
        from tensorgrad.utils import _foreach_utils

        return _foreach_utils._group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters by one step.

        Args:
            closure: computes the loss and its gradients, and returns the loss.

        Returns:
            The result of `closure`, or `None`.
        """
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if SLOW:
                    clear_grad(p, set_to_none)
                elif p._grad is not None:
                    if set_to_none:
                        p._grad = None
                    else:
                        clear_grad(p, False)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with their own settings: `{"params": [...], "lr": 0.01}`. Raises the class's errors."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _read_params(param_group)
        params = param_group["params"]
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + typename(param))
            if not self.defaults.get("differentiable") and not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                which = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group "
                    f"{which} to the optimizer"
                )
            if not set(group["params"]).isdisjoint(params):
                raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # --- saving ---

    def state_dict(self) -> dict[str, Any]:
        """Returns `{"state": ..., "param_groups": ...}` in PyTorch's format, with numbers for parameters."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups: list[dict[str, Any]] = []
        for group in self.param_groups:
            start = sum(len(earlier["params"]) for earlier in groups)
            for i, p in enumerate(group["params"], start):
                number.setdefault(id(p), i)
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {number[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            saved = _or(hook(self, saved), saved)
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads settings and state saved by `state_dict`, here or in PyTorch.

        State is cast to its parameter's dtype and moved to its device.

        Raises:
            ValueError: the number of groups, or of parameters in a group, differs.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = _or(hook(self, state_dict), state_dict)
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(self.param_groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        pairs = list(zip(self.param_groups, saved_groups, strict=True))
        if any(len(mine["params"]) != len(saved["params"]) for mine, saved in pairs):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        param_of = {n: p for mine, saved in pairs for n, p in zip(saved["params"], mine["params"], strict=True)}
        state: defaultdict[Any, Any] = defaultdict(dict)
        saved_group_of = {n: group for group in state_dict["param_groups"] for n in group["params"]}
        for key, value in state_dict["state"].items():
            if key in param_of:
                state[param_of[key]] = _cast(param_of[key], value, saved_group_of.get(key, {}))
            else:
                state[key] = value
        for mine, saved in pairs:
            saved["params"] = mine["params"]
            if "param_names" in mine:
                saved.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in sorted(group) if name != "params")
        return text + ")"

    # --- hooks ---

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before every step; it may return other `(args, kwargs)`."""
        return RemovableHandle.add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after every step."""
        return RemovableHandle.add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` before `state_dict`."""
        return _add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` after `state_dict`; a result, if any, replaces the dictionary."""
        return _add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before loading; a result, if any, is loaded instead."""
        return _add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` after loading."""
        return _add(self._optimizer_load_state_dict_post_hooks, hook, prepend)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Returns the kinds of devices that optimizers have `capturable=True` for, as PyTorch lists them."""
    return ["cuda", "xpu", "hpu", *(["xla"] if supports_xla else [])]


def _is_plain(p: Tensor) -> bool:
    return type(p) in PLAIN


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Returns whether to update all parameters by one fused op, or by `_foreach_` ops: the latter on GPUs."""
    if differentiable:
        return False, False
    floating = all(p is None or (_is_plain(p) and p.is_floating_point()) for p in params)
    fused = use_fused and floating and all(p is None or p.device.type in ("cuda", "cpu") for p in params)
    foreach = not fused and all(p is None or (_is_plain(p) and p.device.type == "cuda") for p in params)
    return fused, foreach


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` before every step of every optimizer.

    It may return a pair of other `args` and `kwargs`, or None.

    Returns:
        A handle, whose `remove()` unregisters the hook.

    >>> from tensorgrad.optim.optimizer import register_optimizer_step_pre_hook
    >>> handle = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: print(type(optimizer).__name__))
    >>> torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    SGD
    >>> handle.remove()
    """
    return RemovableHandle.add(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` after every step of every optimizer.

    Its result is ignored.

    Returns:
        A handle, whose `remove()` unregisters the hook.

    >>> from tensorgrad.optim.optimizer import register_optimizer_step_post_hook
    >>> handle = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: print(type(optimizer).__name__))
    >>> torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1).step()
    SGD
    >>> handle.remove()
    """
    return RemovableHandle.add(_global_post_hooks, hook)


def run_hooked(step: Callable, args: tuple, kwargs: dict) -> Any:
    """Runs `step(*args, **kwargs)` and the hooks around it. The first argument, also seen by hooks, is the optimizer.

    Raises: RuntimeError if a hook returns something that is not a pair of arguments.
    """
    optimizer = args[0]
    for hook in [*_global_pre_hooks.values(), *optimizer._optimizer_step_pre_hooks.values()]:
        given = hook(optimizer, args, kwargs)
        if given is not None:
            if not (isinstance(given, tuple) and len(given) == 2):
                raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {given}.")
            args, kwargs = given
    result = step(*args, **kwargs)
    for hook in [*optimizer._optimizer_step_post_hooks.values(), *_global_post_hooks.values()]:
        hook(optimizer, args, kwargs)
    return result


def _with_hooks(step: Callable) -> Callable:
    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        if not hasattr(self, "_optimizer_step_pre_hooks"):  # a subclass that does not call Optimizer.__init__
            return step(self, *args, **kwargs)
        return run_hooked(step, (self, *args), kwargs)

    wrapped.runs_hooks = True  # type: ignore[attr-defined]
    return wrapped


def _add(table: OrderedDict, hook: Callable, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle.add(table, hook)
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def _or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


def _read_params(group: dict[str, Any]) -> None:
    """Converts `group["params"]` to a list of tensors; names given with them go to `group["param_names"]`."""
    params = group["params"]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
            "will change between runs. Please use a list instead."
        )
    params = [params] if isinstance(params, Tensor) else list(params)
    names = [param[0] for param in params if isinstance(param, tuple)]
    if names:
        if len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        group["param_names"] = names
        params = [param[1] for param in params]
    group["params"] = params


def _cast(param: Tensor, value: Any, group: dict[str, Any], key: Any = None) -> Any:
    """Casts saved state for its parameter. `step` counts are only cast for optimizers that keep them on a device."""
    if isinstance(value, Tensor):
        if key == "step":
            there = group.get("capturable") or group.get("fused")
            return value.to(device=param.device, dtype=float32) if there else value
        if param.is_floating_point():
            return value.to(device=param.device, dtype=param.dtype)
        return value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _cast(param, v, group, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return type(value)(_cast(param, v, group) for v in value)  # type: ignore[call-arg]
    return value
