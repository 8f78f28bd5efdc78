"""Hooks on tensors, and on groups of tensors."""

from __future__ import annotations

import weakref
from collections import OrderedDict

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import hooks_of, leaf_hooks_of
from tensorgrad.autograd.handles import RemovableHandle
from tensorgrad.autograd.views import edge_of, is_end
from tensorgrad.system import forks
from tensorgrad.tensor import Tensor


def register_hook(self: Tensor, hook) -> RemovableHandle:
    """Registers `hook(grad)`, called when this tensor's gradient is computed; a returned tensor replaces the gradient.

    Returns:
        A handle whose `remove()` removes the hook.

    Raises:
        RuntimeError: If the tensor does not require grad.

    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad.clamp(max=1.0))
    >>> (5 * x).backward(); x.grad
    tensor(1.)
    >>> handle.remove()
    """
    edge = _hooked_edge(self)
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    target, nr = edge
    if isinstance(target, Tensor):
        return RemovableHandle.add(leaf_hooks_of(target).on_grad, hook)
    return RemovableHandle.add(hooks_of(target).on_output.setdefault(nr, OrderedDict()), hook)


def _hooked_edge(tensor: Tensor):
    """The edge to whose hooks those of a tensor belong: a view without a history has its own, as a leaf has."""
    edge = edge_of(tensor)
    return (tensor, 0) if edge is not None and is_end(edge) else edge


def register_post_accumulate_grad_hook(self: Tensor, hook) -> RemovableHandle:
    """Registers `hook(tensor)`, called after a gradient was accumulated into this leaf's `.grad`.

    Raises:
        RuntimeError: If the tensor does not require grad or is not a leaf.

    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda tensor: print(tensor.grad))
    >>> (5 * x).backward()
    tensor(5.)
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return RemovableHandle.add(leaf_hooks_of(self).post_accumulate, hook)


def retain_grad(self: Tensor) -> None:
    """Makes a tensor that is not a leaf keep its gradient in `.grad`, too. No effect on leaves.

    Raises:
        RuntimeError: If the tensor does not require grad.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> y = x * x
    >>> y.retain_grad()
    >>> (2 * y).backward()
    >>> y.grad, x.grad
    (tensor(2.), tensor(12.))
    """
    try:
        edge = edge_of(self)
    except RuntimeError:  # a view that must no longer be asked for its history, and has none
        if self._edge is None:
            return
        raise
    if edge is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if not isinstance(edge[0], Tensor):
        hooks_of(edge[0]).retained[edge[1]] = weakref.ref(self)


def _retains_grad(self: Tensor) -> bool:
    """Whether `retain_grad` was called on this tensor and it is not a leaf.

    >>> y = 2 * torch.ones(1, requires_grad=True)
    >>> y.retain_grad()
    >>> y.retains_grad
    True
    """
    try:
        edge = edge_of(self)
    except RuntimeError:  # a view that must no longer be asked for its history
        edge = self._edge
    if edge is None or isinstance(edge[0], Tensor) or edge[0].hooks is None:
        return False
    reference = edge[0].hooks.retained.get(edge[1])
    return reference is not None and reference() is self


def _backward_hooks(self: Tensor) -> OrderedDict | None:
    """The hooks that `register_hook` added, by number; None if there are none. Libraries read it, and set it to none.

    >>> x = torch.ones(1, requires_grad=True)
    >>> handle = x.register_hook(print)
    >>> len(x._backward_hooks)
    1
    """
    edge = _hooked_edge(self)
    hooks = None if edge is None else edge[0]._hooks if isinstance(edge[0], Tensor) else edge[0].hooks
    if edge is None or hooks is None:
        return None
    return (hooks.on_grad if isinstance(edge[0], Tensor) else hooks.on_output.get(edge[1])) or None


def _set_backward_hooks(self: Tensor, hooks: dict | None) -> None:
    there = _backward_hooks(self)
    given = list((hooks or {}).values())
    if there is not None:
        there.clear()
    for hook in given:
        register_hook(self, hook)


Tensor._backward_hooks = property(_backward_hooks, _set_backward_hooks)  # type: ignore[assignment]
Tensor.register_hook = register_hook  # type: ignore[assignment]
Tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook  # type: ignore[assignment]
Tensor.retain_grad = retain_grad  # type: ignore[assignment]
Tensor.retains_grad = property(_retains_grad)  # type: ignore[assignment]


def register_multi_grad_hook(tensors, fn, *, mode: str = "all"):
    """Registers `fn` to be called once in each backward pass.

    In mode "any" it is called with the first gradient of any of `tensors`; in mode "all" with the list of all their
    gradients once these are computed (None for tensors that the pass does not reach).

    Returns:
        A handle whose `remove()` removes the hook.

    Raises:
        ValueError: For any other mode.

    >>> a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    >>> handle = torch.autograd.graph.register_multi_grad_hook([a, b], print)
    >>> (a * b).backward()
    [tensor(3.), tensor(2.)]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    passes: dict = {}  # backward pass -> [the gradients so far, how many are missing]: passes may nest
    lock = forks.lock()

    def hook_for(i):
        def hook(grad):
            number = engine.RUNS.current[0]
            with lock:
                if number not in passes:
                    edges = [edge_of(tensor) for tensor in tensors]
                    passes[number] = [[None] * len(tensors), sum(engine.expects(e) for e in edges if e is not None)]
                state = passes[number]
                first = all(g is None for g in state[0])
                state[0][i] = grad
                state[1] -= 1
                if not state[1]:
                    del passes[number]
            if mode == "any" and first:
                fn(grad)
            elif mode == "all" and not state[1]:
                fn(state[0])

        return hook

    handles = [tensor.register_hook(hook_for(i)) for i, tensor in enumerate(tensors)]

    class Handle:
        """Removes all hooks of the group."""

        def remove(self) -> None:
            for handle in handles:
                handle.remove()

    return Handle()
