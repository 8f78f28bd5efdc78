"""Wraps modules so that their activations are computed again, or kept in main memory, until the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.graph import save_on_cpu
from tensorgrad.distributed.fsdp.wrap import _Policy, _recursive_wrap, lambda_auto_wrap_policy
from tensorgrad.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
    "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(Enum):
    """The two ways of `torch.utils.checkpoint.checkpoint`."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


def _renamed(state: dict[str, Any], before: str, after: str) -> None:
    """Replaces a prefix of the names in a state dictionary, which keeps its order."""
    items = list(state.items())
    state.clear()
    state.update((after + name[len(before) :] if name.startswith(before) else name, value) for name, value in items)


def _without_prefix(module: Any, state: dict[str, Any], prefix: str, *others: Any) -> dict[str, Any]:
    _renamed(state, prefix + _CHECKPOINT_PREFIX, prefix)
    return state


def _with_prefix(module: Any, state: dict[str, Any], prefix: str, *others: Any) -> None:
    _renamed(state, prefix, prefix + _CHECKPOINT_PREFIX)


class ActivationWrapper(torch.nn.Module):
    """A module around another one, whose names in `state_dict` and `named_parameters` do not change.

    Args:
        mod: the module.
    """

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_CHECKPOINT_WRAPPED_MODULE), name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The parameters with their names in the wrapped module."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter


class OffloadWrapper(ActivationWrapper):
    """Keeps what a module saves for the backward pass in main memory."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own result."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Runs a module again in the backward pass instead of keeping its activations.

    Args:
        mod: the module.
        checkpoint_impl: the way of `torch.utils.checkpoint.checkpoint`.
        checkpoint_fn: what to call instead of that function.
        checkpoint_fn_kwargs: further arguments for it.
    """

    def __init__(
        self,
        mod: Any,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
        run = partial(checkpoint, use_reentrant=reentrant) if checkpoint_fn is None else checkpoint_fn
        self.checkpoint_fn = partial(run, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own result."""
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:  # which knows positional arguments only
            names, count = list(kwargs), len(args)

            def with_names(*given: Any) -> Any:
                return inner(*given[:count], **dict(zip(names, given[count:])))

            return self.checkpoint_fn(with_names, *args, *kwargs.values())
        return self.checkpoint_fn(inner, *args, **kwargs)


def offload_wrapper(module: Any) -> OffloadWrapper:
    """Wraps a module in `OffloadWrapper`.

    >>> from tensorgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
    >>> list(offload_wrapper(torch.nn.Linear(2, 1)).state_dict())
    ['weight', 'bias']
    """
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Any,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:
    """Wraps a module in `CheckpointWrapper`, whose arguments it has.

    >>> from tensorgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    >>> list(checkpoint_wrapper(torch.nn.Linear(2, 1)).state_dict())
    ['weight', 'bias']
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Any,
    checkpoint_wrapper_fn: Callable[..., Any] = checkpoint_wrapper,
    check_fn: Callable[[Any], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wraps modules inside a model, in place. The model itself is not wrapped.

    Args:
        model: the model.
        checkpoint_wrapper_fn: `checkpoint_wrapper`, `offload_wrapper` or another function of a module.
        check_fn: says of each module inside whether it is wrapped.
        auto_wrap_policy: a rule of `torch.distributed.fsdp.wrap`, instead of `check_fn`.

    Raises:
        ValueError: the rule is none.

    >>> from tensorgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> apply_activation_checkpointing(model, check_fn=lambda layer: isinstance(layer, torch.nn.Linear))
    >>> [type(layer).__name__ for layer in model]
    ['CheckpointWrapper', 'ReLU']
    """
    policy = auto_wrap_policy or partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    if callable(policy):
        _recursive_wrap(model, policy, checkpoint_wrapper_fn, (), (), only_wrap_children=True)
        return
    if not isinstance(policy, _Policy):
        raise ValueError(f"Expected {policy} to be callable or be a pre-defined wrap policy")
    chosen = policy._run_policy(model, set(), {})
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child in chosen:
                setattr(parent, name, checkpoint_wrapper_fn(child, **chosen[child]))
