"""Selective checkpointing: a policy says of each operator whether its result is kept, or computed again in backward.

    context_fn = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    checkpoint(function, x, use_reentrant=False, context_fn=context_fn)

Two modes watch the operators of the two runs. In the second one, an operator whose result was kept does not run: the
mode returns the result, and gives the checkpoint what the operator would have saved for its derivative. That is mostly
its arguments, which the second run has just computed, or its result; anything else is kept with the result.
"""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from tensorgrad._ops import OpOverload
from tensorgrad.autograd.saved_tensor_hooks import saved_tensors_hooks
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.utils._python_dispatch import TorchDispatchMode
from tensorgrad.utils._pytree import tree_leaves, tree_map

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What a policy says of an operator. MUST and PREFER differ for PyTorch's compiler only.

    >>> from tensorgrad.utils.checkpoint import CheckpointPolicy
    >>> [policy.name for policy in CheckpointPolicy][:4]
    ['MUST_SAVE', 'PREFER_SAVE', 'MUST_RECOMPUTE', 'PREFER_RECOMPUTE']
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True, *_OFFLOADED)  # it may return True or False


class SelectiveCheckpointContext:
    """What a policy is told besides the operator: whether this is the second run (it is asked in the first one).

    >>> import functools
    >>> from tensorgrad.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
    >>> def policy(ctx, op, *args, **kwargs):
    ...     print(ctx.is_recompute, op)
    ...     return CheckpointPolicy.MUST_SAVE
    >>> contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    >>> x = torch.ones(2, requires_grad=True)
    >>> checkpoint(torch.exp, x, use_reentrant=False, context_fn=contexts).sum().backward()
    False aten.exp.default
    """

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


class _Kept:
    """The result of an operator, and where to find what it saved: an argument's number, or a tensor."""

    def __init__(self, result: Any, saved: list[Any], offloaded: bool) -> None:
        self.devices = [leaf.device for leaf in tree_leaves(result) if isinstance(leaf, Tensor)] if offloaded else []
        self.result = tree_map(_on_cpu if offloaded else _detached, result)
        self.saved = saved
        self.versions = [leaf._version for leaf in tree_leaves(self.result) if isinstance(leaf, Tensor)]

    def restored(self) -> Any:
        """The result, on the device where it was."""
        if not self.devices:
            return self.result
        devices = iter(self.devices)
        return tree_map(lambda leaf: leaf.to(next(devices)) if isinstance(leaf, Tensor) else leaf, self.result)

    def changed(self) -> bool:
        """Whether the result was changed in place."""
        return self.versions != [leaf._version for leaf in tree_leaves(self.result) if isinstance(leaf, Tensor)]


def _on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf


def _detached(leaf: Any) -> Any:
    return leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf


def _tensors(args: Any, kwargs: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]


class _FirstRun(TorchDispatchMode):
    def __init__(self, policy: Callable, kept: dict[Any, deque[_Kept | None]]) -> None:
        super().__init__()
        self.policy, self.kept = policy, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        told = self.policy(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs)
        if told not in _SAVED:
            self.kept[func].append(None)
            return func(*args, **kwargs)
        given, saved = _tensors(args, kwargs), []
        make_slot, fetch = LOCAL.saved_hooks[-1]  # the checkpoint's

        def remember(tensor: Tensor) -> Any:
            same = (i for i, argument in enumerate(given) if argument._array is tensor._array)
            saved.append(next(same, tensor.detach()))
            return make_slot(tensor)

        with saved_tensors_hooks(remember, fetch):
            result = func(*args, **kwargs)
        self.kept[func].append(_Kept(result, saved, told in _OFFLOADED))
        return result


class _SecondRun(TorchDispatchMode):
    def __init__(self, kept: dict[Any, deque[_Kept | None]], allow_mutation: bool) -> None:
        super().__init__()
        self.kept, self.allow_mutation = kept, allow_mutation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.kept:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        if not self.kept[func]:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        entry = self.kept[func].popleft()
        if entry is None:
            return func(*args, **kwargs)
        if entry.changed() and not self.allow_mutation:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        given, fill = _tensors(args, kwargs), LOCAL.saved_hooks[-1][0]  # the checkpoint's
        for saved in entry.saved:
            fill(given[saved] if isinstance(saved, int) else saved)
        return entry.restored()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Returns the two contexts of a selective checkpoint: give `checkpoint` a function that calls this, as context_fn.

    Args:
        policy_fn_or_list: `policy(ctx, op, *args, **kwargs)`, which returns a `CheckpointPolicy`; or a list of the
            operators whose results are kept.
        allow_cache_entry_mutation: Whether a kept result may have been changed in place.

    Raises:
        TypeError: If it is neither.
        ValueError: If something else than an operator is in the list.

    >>> import functools
    >>> from tensorgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> checkpoint(lambda x: (x @ x).sin().sum(), x, use_reentrant=False, context_fn=kept).backward()
    >>> x.grad
    tensor([[-1.6646, -1.6646],
            [-1.6646, -1.6646]])
    """
    policy = policy_fn_or_list
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, OpOverload):
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. If you are "
                    "passing in an OpOverloadPacket, please pass one of its overloads, such as "
                    "torch.ops.aten.mm.default."
                )
        chosen = tuple(policy_fn_or_list)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE

    elif not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[Any, deque[_Kept | None]] = defaultdict(deque)
    return _FirstRun(policy, kept), _SecondRun(kept, allow_cache_entry_mutation)
