"""The backward pass: gradients flow from the roots to the leaves, each node once, later ops first.

The engine is a loop over a heap, so a chain of 100,000 ops needs no recursion. A node runs when all gradients of its
outputs have arrived and been summed. Two rules live here and in no formula: a gradient is **summed to the shape**
of the value it belongs to (undoing broadcasting), and **cast to its dtype** (undoing promotion).
"""

from __future__ import annotations

import itertools
import sys
import threading
from heapq import heappop, heappush

from tensorgrad.autograd import anomaly
from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.tensor import Tensor, share


class _Runs(threading.local):
    """Which backward pass this thread is in."""

    number = 0


RUNS = _Runs()
_next_run = itertools.count(1).__next__


def run(roots, *, keep_graph: bool, create_graph: bool, targets=None):
    """Sends gradients back from `roots` = [(edge, gradient), ...].

    Without `targets`, gradients accumulate in the leaves' `.grad`. With `targets` (a list of edges) only the nodes on
    the way to them run, and the list of their gradients is returned (None where none arrived).
    """
    RUNS.number = _next_run()
    states = _survey(roots)
    wanted = None if targets is None else _leading_to(targets, states)
    captured = None if targets is None else dict.fromkeys(targets)
    checked = ANOMALY.enabled
    ready: list = []  # a heap of (-sequence_nr, node) of the nodes whose gradients are complete
    before, GRAD.enabled = GRAD.enabled, create_graph
    try:
        for (target, nr), grad in roots:
            state = states[target]
            state[nr] = grad if state[nr] is None else state[nr] + grad
        grad = state = None
        for target in {edge[0]: None for edge, _ in roots}:
            if not states[target][-1]:
                if isinstance(target, Tensor):
                    _finish_leaf(target, states.pop(target), captured, create_graph)
                else:
                    heappush(ready, (-target.sequence_nr, target))
        while ready:
            node = heappop(ready)[1]
            grads = states.pop(node)
            if targets is None and node.__class__ is Node and node.hooks is None and not checked and grads[0] is not None:
                results = node.op.backward(node, grads)
                if not keep_graph and node.saved:
                    node.saved = FREED
            else:
                if node.hooks is not None:
                    _before(node, grads)
                if targets is not None:
                    _capture(node, grads, captured)
                    if not wanted[node]:
                        continue
                results = _results(node, grads, keep_graph)
            grads = None
            i = -1
            for edge in node.edges:
                i += 1
                if edge is None:
                    continue
                target, nr = edge
                state = states[target]
                grad = results[i]
                if grad is not None:
                    results[i] = None  # so that the receiver's list alone holds the gradient
                    array = grad._array
                    shape, dtype, _ = state[-2][nr]
                    if array.shape != shape or array.dtype is not dtype:
                        grad = fit(grad, shape, dtype, node, i)
                    present = state[nr]
                    if present is None:
                        state[nr] = grad
                    else:
                        state[nr] = present + grad
                        present = None
                    grad = array = None
                waiting = state[-1] = state[-1] - 1
                if not waiting:
                    if target.__class__ is Node or not isinstance(target, Tensor):
                        heappush(ready, (-target.sequence_nr, target))
                    else:
                        _finish_leaf(target, states.pop(target), captured, create_graph)
            results = state = None
    finally:
        GRAD.enabled = before
    return None if targets is None else [captured[t] for t in targets]


def _results(node, grads: list, keep_graph: bool):
    """Runs one node: the gradients of its inputs, None for all if none of its outputs has a gradient."""
    if all(g is None for g in grads[:-2]):
        return [None] * len(node.edges)
    results = list(node.apply(grads))
    if node.hooks is not None:
        results = list(_after(node, results, grads))
    if ANOMALY.enabled and ANOMALY.check_nan:
        anomaly.check(node, results)
    if not keep_graph:
        node.release()
    return results


def _survey(roots) -> dict:
    """Everything that can be reached: node or leaf -> its state, the list

    [gradients of its outputs..., what the outputs look like (as in `Node.outputs`), how many it still waits for].
    """
    states: dict = {}
    stack = []
    for (target, _), _ in roots:
        if target not in states:
            states[target] = _empty_state(target)
            if not isinstance(target, Tensor):
                stack.append(target)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None:
                target = edge[0]
                if target in states:
                    states[target][-1] += 1
                elif target.__class__ is Node:
                    outputs = target.outputs
                    states[target] = [None, outputs, 1] if len(outputs) == 1 else [*[None] * len(outputs), outputs, 1]
                    stack.append(target)
                else:
                    state = states[target] = _empty_state(target)
                    state[-1] = 1
                    if not isinstance(target, Tensor):
                        stack.append(target)
    return states


def _empty_state(target) -> list:
    if isinstance(target, Tensor):
        array = target._array
        return [None, ((array.shape, array.dtype, None),), 0]
    return [*[None] * len(target.outputs), target.outputs, 0]


def _leading_to(targets, states) -> dict:
    """For each node, whether a target lies below it."""
    goals = {edge[0] for edge in targets}
    wanted: dict = {}
    nodes = [n for n in states if not isinstance(n, Tensor)]
    for node in sorted(nodes, key=lambda n: n.sequence_nr):  # what an op was computed from comes before it
        wanted[node] = any(e is not None and (e[0] in goals or wanted.get(e[0], False)) for e in node.edges)
    return wanted


def fit(grad: Tensor, shape: tuple, dtype, node=None, nr: int = 0) -> Tensor:
    """`grad` summed to `shape` (the reverse of broadcasting) and cast to `dtype` (the real part, if that is real).

    Raises: RuntimeError if `shape` does not broadcast to the gradient's shape.
    """
    have = grad._array.shape
    if have != shape:
        extra = len(have) - len(shape)
        if extra < 0 or any(n not in (1, m) for n, m in zip(shape, have[extra:], strict=True)):
            raise RuntimeError(
                f"Function {node.name() if node else 'backward'} returned an invalid gradient at index {nr} - got "
                f"{list(have)} but expected shape compatible with {list(shape)}"
            )
        dims = [*range(extra)] + [extra + i for i, n in enumerate(shape) if n == 1 and have[extra + i] != 1]
        if dims:
            grad = grad.sum(dims, True)
        if extra:
            grad = grad.reshape(shape)
    if grad._array.dtype != dtype:
        if grad._array.dtype.kind == "c" and dtype.kind != "c":
            grad = grad.real
        grad = grad.to(from_numpy_dtype(dtype))
    return grad


def _before(node, grads: list) -> None:
    """Tensor hooks and `retain_grad` of the node's outputs, then the node's own pre-hooks; changes `grads`."""
    hooks = node.hooks
    for nr, on_output in hooks.on_output.items():
        if grads[nr] is not None:
            grads[nr] = call_tensor_hooks(on_output, grads[nr])
    for nr, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            kept = grads[nr] if GRAD.enabled else grads[nr].clone()
            tensor._grad = kept if tensor._grad is None else tensor._grad + kept
    for hook in list(hooks.before.values()):
        replaced = hook(tuple(grads[:-2]))
        if replaced is not None:
            grads[:-2] = replaced if isinstance(replaced, tuple | list) else [replaced]


def _after(node, results: list, grads: list):
    given = tuple(results)
    for hook in list(node.hooks.after.values()):
        replaced = hook(given, tuple(grads[:-2]))
        if replaced is not None:
            given = replaced if isinstance(replaced, tuple) else (replaced,)
    return given


def call_tensor_hooks(hooks: dict, grad: Tensor) -> Tensor:
    """Runs hooks on a gradient, each seeing what the one before returned.

    Raises: RuntimeError if a hook returns something that cannot stand for the gradient.
    """
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is not None:
            if not isinstance(replaced, Tensor):
                raise TypeError(f"expected Variable, but hook returned '{type(replaced).__name__}'")
            if replaced._array.shape != grad._array.shape:
                raise RuntimeError(
                    f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value: expected "
                    f"{list(grad._array.shape)}, got {list(replaced._array.shape)}"
                )
            grad = replaced
    return grad


def _capture(node, grads, captured) -> None:
    for nr, grad in enumerate(grads[:-2]):
        if (node, nr) in captured:
            captured[node, nr] = grad


def _finish_leaf(leaf: Tensor, grads: list, captured, create_graph: bool) -> None:
    """A leaf's gradient is complete: run its hooks, then keep it.

    It comes in a list to be taken out of, so that no caller's variable holds it too: a gradient that nobody else can
    see is kept as it is, any other is copied.
    """
    grad = grads[0]
    grads[0] = None
    if grad is None:
        return
    hooks = leaf._hooks
    if hooks is not None and hooks.on_grad:
        grad = call_tensor_hooks(hooks.on_grad, grad)
    if captured is not None:
        if (leaf, 0) in captured:
            captured[leaf, 0] = grad
        return
    if not leaf._requires_grad:
        return
    present = leaf._grad
    if present is None:
        if create_graph:
            leaf._grad = grad
        elif sys.getrefcount(grad) <= ALONE and sys.getrefcount(grad._storage) <= ALONE_IN_SLOT and _dense(grad._array):
            grad._edge, grad._requires_grad, grad._view = None, False, None
            leaf._grad = grad
        else:
            storage = grad._storage.__class__
            copied = storage.copy(grad._array)
            leaf._grad = share(copied, storage.of(copied))
    elif create_graph:
        leaf._grad = present + grad
    elif present._array.dtype is grad._array.dtype and present._array.shape == grad._array.shape:
        present._storage.add_to(present._array, grad._array)
        present._storage.bump()
    else:
        leaf._grad = present + grad
    if hooks is not None:
        for hook in list(hooks.after.values()):
            hook((None,), (grad,))
        for hook in list(hooks.post_accumulate.values()):
            hook(leaf)


def _dense(array) -> bool:
    return array.flags.c_contiguous


class _Slot:
    __slots__ = ("value",)


def _count_alone(box: list) -> int:
    value = box.pop()
    return sys.getrefcount(value)


def _count_in_slot() -> int:
    holder = _Slot()
    holder.value = object()
    return sys.getrefcount(holder.value)


# What `getrefcount` says of an object that only one local variable (one slot) refers to: it differs between Pythons.
ALONE, ALONE_IN_SLOT = _count_alone([object()]), _count_in_slot()
