"""What happens before and after the forward of a module whose parameters are divided, and what its graph saves."""

from __future__ import annotations

from typing import Any

import tensorgrad as torch
from tensorgrad.autograd.saved_tensor_hooks import saved_tensors_hooks
from tensorgrad.distributed.fsdp.param_group import ParamGroup
from tensorgrad.distributed.fsdp.policies import MixedPrecisionPolicy
from tensorgrad.distributed.utils import _apply_to_tensors
from tensorgrad.rows.switches import LOCAL

__all__ = ["State", "after_forward", "before_forward", "cast"]


class State:
    """What is known of one module: its parameters, its dtypes, and whether they are dropped after forward."""

    def __init__(self, group: ParamGroup, policy: MixedPrecisionPolicy, reshard: bool | None) -> None:
        self.group, self.policy, self.reshard = group, policy, reshard
        self.forward_prefetch: list[ParamGroup] = []
        self.backward_prefetch: list[ParamGroup] = []
        self.hooks: list[saved_tensors_hooks] = []


def before_forward(state: State, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Gathers the parameters. Returns the arguments on their device, and in the policy's dtype."""
    state.group.gather()
    for group in state.forward_prefetch:
        group.start()
    hooks = _hooks(state)
    state.hooks.append(hooks)
    hooks.__enter__()
    if state.group.device.type != "cpu":
        args, kwargs = _apply_to_tensors(lambda tensor: tensor.to(state.group.device), (args, kwargs))
    dtype = state.policy.param_dtype
    if dtype is not None and state.policy.cast_forward_inputs:
        args, kwargs = cast(args, dtype), cast(kwargs, dtype)
    return args, kwargs


def after_forward(state: State, output: Any) -> Any:
    """Drops the parameters, if they are to be dropped. Returns the output in the policy's dtype."""
    if state.hooks:
        state.hooks.pop().__exit__()
    if state.reshard:
        state.group.release()
    return output if state.policy.output_dtype is None else cast(output, state.policy.output_dtype)


def _hooks(state: State) -> saved_tensors_hooks:
    """Packs gathered parameters; other tensors go through the hooks that were there before."""
    group = state.group
    outer = LOCAL.saved_hooks[-1] if LOCAL.saved_hooks else (lambda tensor: tensor, lambda tensor: tensor)

    def pack(tensor: Any) -> Any:
        packed = group.pack(tensor)
        return (None, outer[0](tensor)) if packed is None else (packed, None)

    def unpack(saved: Any) -> Any:
        packed, other = saved
        if packed is None:
            return outer[1](other)
        gather()
        return group.unpack(*packed[1:])

    def gather() -> None:
        if not group.gathered:
            group.gather()
            for following in state.backward_prefetch:
                following.start()

    pack.again = gather  # type: ignore[attr-defined]  # for checkpoints within, which save nothing by these hooks
    return saved_tensors_hooks(pack, unpack)


def cast(value: Any, dtype: Any) -> Any:
    """Floating-point tensors in nested arguments, cast."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {name: cast(item, dtype) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(cast(item, dtype) for item in value)
    return value
