"""The backward pass: gradients flow from the roots to the leaves, through each node once, later ops first.

An op is always created after its inputs, so taking the latest node from a heap guarantees that all gradients of its
outputs have arrived. This needs no dependency counters and no recursion, however long the chain. Two rules are applied
here and in no formula: a gradient is **summed to the shape** of the value it belongs to (undoing broadcasting), and
**cast to its dtype** (undoing promotion).
"""

from __future__ import annotations

import itertools
import operator
import threading
from heapq import heappop, heappush
from sys import getrefcount
from time import perf_counter
from typing import Any

from tensorgrad.autograd import anomaly
from tensorgrad.autograd.anomaly import ANOMALY, report
from tensorgrad.autograd.graph import FREED, Node, shape_for
from tensorgrad.autograd.modes import GRAD
from tensorgrad.dtypes import from_numpy_dtype
from tensorgrad.layouts import contiguous_format, dense_order, inverse, made_in_order, strided
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import DISPATCH, LOCAL
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.storage.wrapper_subclass import NoMemory
from tensorgrad.system import forks
from tensorgrad.system.per_thread import PerThread, Substitute, on_fresh_stack
from tensorgrad.tensor import PLAIN, Tensor, share


class _Runs(PerThread):
    """The innermost backward pass of this thread (a hook or a custom function may start another).

    `current` is (its number, its roots, the nodes that lead to the targets if only certain gradients are computed, the
    callbacks to run at its end, how many passes are nested in this thread, and whether the graph is kept).
    """

    current: tuple = (0, (), None, (), 0, True)

    def __init__(self):  # runs in every thread that accesses this object
        global several_threads
        thread = threading.current_thread()
        if thread is not threading.main_thread() and not isinstance(thread, Substitute):
            several_threads = True


DEEP = 20  # nested passes; beyond this depth the next one runs in a new thread, since the stack is finite
several_threads = False  # has any thread but the main one started a backward pass?
RUNS = _Runs()
_next_run = itertools.count(1).__next__
_accumulating = forks.lock(whole=True)
SEEN_BY_MODES: Any = None  # a context for passes whose ops `TorchDispatchMode`s see (library/dispatch_modes.py)
OBSERVERS: list = []  # functions (node, start, seconds) called after every node in passes started from now on


def run(roots, *, keep_graph: bool, create_graph: bool, targets=None, fills: bool = False):
    """Propagates gradients back from `roots` = [(edge, gradient), ...].

    Without `targets`, gradients accumulate in the leaves' `.grad`. With `targets` (a list of edges) only the nodes
    that lead to them run (and the targets themselves if the pass `fills` their `.grad`), and the list of their
    gradients is returned (None if none arrived).
    """
    around = RUNS.current
    if around[4] == DEEP:
        RUNS.current = (*around[:4], 0, around[5])
        try:
            options: Any = {"keep_graph": keep_graph, "create_graph": create_graph, "targets": targets, "fills": fills}
            return on_fresh_stack(run, roots, **options)
        finally:
            RUNS.current = around
    if DISPATCH and LOCAL.dispatch_modes and not LOCAL.transforms:
        with SEEN_BY_MODES():
            return run(roots, keep_graph=keep_graph, create_graph=create_graph, targets=targets, fills=fills)
    captured = None if targets is None else dict.fromkeys(targets)
    wanted = None if targets is None else _leading_to(targets, roots, fills)
    callbacks: list = []
    current = _next_run(), roots, wanted, callbacks, around[4] + 1, keep_graph
    # Inside a transform, gradients may have tangents, which only ops pass on.
    attached = create_graph or bool(LOCAL.transforms)
    plain = not (attached or targets is not None or ANOMALY.enabled or OBSERVERS)
    # No calls from here to the `try`, nor in `finally`: signal handlers run after calls, and may raise.
    before = GRAD.enabled
    RUNS.current, GRAD.enabled = current, create_graph
    try:
        rest = _run_plain(roots, keep_graph) if plain else [None, *(zip(*roots) if roots else ((), ())), {}, []]
        if rest:
            _run_carefully(rest, keep_graph, attached, captured, wanted)
        found = None if captured is None else [_after_hooks(target, captured[target]) for target in targets]
        for callback in callbacks:  # may append to the list
            callback()
        return found
    finally:
        GRAD.enabled, RUNS.current = before, around


def _run_plain(roots, keep_graph: bool) -> list | None:
    """The backward pass of ordinary ops and leaves.

    If it meets anything else, such as a hook or a custom function, it returns where it is, and `_run_carefully` goes on
    from there: the last node that ran, its edges and their gradients as far as these have not been passed on, and then
    `grads` and `ready`.
    """
    grads: dict = {}  # node -> the gradients of its outputs, summed so far
    ready: list = []  # a heap of (-sequence_nr, node)
    node = None
    edges, results = zip(*roots) if roots else ((), ())  # the roots are the edges of a node without an op
    while True:
        pairs = zip(edges, results)  # a node returns one gradient per edge
        for edge, grad in pairs:
            if edge is None:
                continue
            target, nr = edge
            if target.__class__ is Node and grad is not None:
                shape, dtype, _ = target.outputs[nr]
                if grad._array.shape != shape or grad._array.dtype is not dtype:
                    grad = fit(grad, shape, dtype, node, (edges, edge))
                slots = grads.get(target)
                if slots is None:
                    grads[target] = [grad] if len(target.outputs) == 1 else _only(grad, nr, len(target.outputs))
                    heappush(ready, (-target.sequence_nr, target))
                else:
                    slots[nr] = grad if slots[nr] is None else total(slots[nr], grad)
            elif target.__class__ in PLAIN and target._hooks is None and grad is not None:
                if target._requires_grad is not True:
                    continue  # detached or no longer requires grad; or a view created without grad
                array = target._array
                if grad._array.shape != array.shape or grad._array.dtype is not array.dtype:
                    grad = fit(grad, array.shape, array.dtype, node, (edges, edge))
                if target._grad is not None or several_threads:
                    accumulate(target, grad, False)
                else:
                    target._grad = owned(getrefcount(grad) - BY_THE_LOOP, grad, target)
            else:
                return [node, *zip((edge, grad), *pairs), grads, ready]
        if not ready:
            return None
        pairs = grad = slots = edge = results = None  # type: ignore[assignment]
        node = heappop(ready)[1]
        if node.__class__ is not Node or node.hooks is not None:
            heappush(ready, (-node.sequence_nr, node))
            return [node, (), (), grads, ready]
        results = node.op.compiled.backward(node, grads.pop(node))
        edges = node.edges  # which may be others now (capture/compiled_node.py)
        if not keep_graph and node.saved:
            node.saved = FREED


def _run_carefully(rest: list, keep_graph: bool, attached: bool, captured: dict | None, wanted: dict | None) -> None:
    """The same with everything that a pass may have. `rest` is what `_run_plain` returns; see `run` for the others."""
    node, edges, results, grads, ready = rest
    rest.clear()  # a gradient to which something else refers is copied
    checked = ANOMALY.enabled or bool(OBSERVERS) or (wanted is not None and not wanted[TARGETS].isdisjoint(wanted))
    hooked: dict = {}  # leaf with hooks -> its gradient so far: hooks receive the whole sum
    awaited: dict | None = None  # leaf with hooks -> how many gradients are still to arrive
    while True:
        for edge, grad in zip(edges, results):
            if edge is None:
                continue
            target, nr = edge
            if target.__class__ is Node or not isinstance(target, Tensor):
                slots = grads.get(target)
                if slots is None:
                    slots = grads[target] = [None] * len(target.outputs)
                    heappush(ready, (-target.sequence_nr, target))
                if grad is None:  # matters too: hooks are called with it, and custom functions may turn it into zeros
                    checked = True  # from here on, nodes may have received no gradient
                    reached = getattr(getattr(target, "op", None), "reached", None)
                    if reached is not None:  # several nodes in one (capture/compiled_node.py)
                        reached(target, nr)
                else:
                    shape, dtype, _ = target.outputs[nr]
                    if grad._array.shape != shape or grad._array.dtype is not dtype:
                        grad = fit(grad, shape, dtype, node, (edges, edge))
                    slots[nr] = grad if slots[nr] is None else total(slots[nr], grad)
                continue
            if grad is not None and (captured is not None or target._requires_grad is True):
                shape, dtype = shape_for(target, node), target._array.dtype
                if grad._array.shape != shape or grad._array.dtype is not dtype:
                    grad = fit(grad, shape, dtype, node, (edges, edge))
            if captured is not None:
                if grad is not None and edge in captured:
                    captured[edge] = grad if captured[edge] is None else total(captured[edge], grad)
            elif target._requires_grad is not True:
                pass
            elif target._hooks is not None:
                awaited = awaited or _ahead(edges[_index_of(edges, edge) :], ready)
                _arrived(target, grad, awaited, hooked, attached)
            elif grad is None:
                pass
            elif attached or target._grad is not None or several_threads:
                accumulate(target, grad, attached)
            else:
                target._grad = owned(getrefcount(grad) - BY_THE_LOOP, grad, target)
        grad = slots = edge = edges = results = None
        while results is None:
            if not ready:
                return
            node = heappop(ready)[1]
            received = grads.pop(node)
            if checked or node.hooks is not None or node.__class__ is not Node:
                results = _run_node(node, received, keep_graph, captured, wanted)
            elif wanted is None or wanted[node]:  # else the gradients of its inputs are not needed
                results = node.apply(received)
                if not keep_graph and node.saved:
                    node.saved = FREED
            received = None
        edges = node.edges
        if awaited is not None and node.passed_on_fewer:
            awaited = _counted_again(edges, ready, hooked, attached)


LOOPS = _run_plain.__code__, _run_carefully.__code__  # in whose frames `node` is the one that runs


def _only(grad, nr: int, count: int) -> list:
    """The gradients of a node's outputs, of which one has arrived."""
    slots: list = [None] * count
    slots[nr] = grad
    return slots


def _index_of(edges, edge) -> int:
    """The index of an edge, by identity. (Comparing edges would compare tensors element by element.)"""
    return next(i for i, e in enumerate(edges) if e is edge)


def _run_node(node, grads: list, keep_graph: bool, captured: Any, wanted: dict | None):
    """Runs one node with its hooks and checks; returns None if the gradients of its inputs are not needed."""
    if wanted is not None and node in wanted[TARGETS]:
        if node.hooks is not None:
            _before_tensors(node.hooks, grads)
        captured.update(((node, nr), grad) for nr, grad in enumerate(grads) if (node, nr) in captured)
        if not wanted[node]:
            return None
    elif wanted is not None and not wanted[node]:
        return None
    elif node.hooks is not None:
        _before_tensors(node.hooks, grads)
    if node.hooks is not None:
        _before(node.hooks, grads)
    start = perf_counter()
    try:
        some = grads[0] is not None or node.runs_always or any(grad is not None for grad in grads)
        results = node.apply(grads) if some else (None,) * len(node.edges)
        if ANOMALY.enabled and ANOMALY.check_nan:
            anomaly.check(node, results)
    except Exception:
        if ANOMALY.enabled:
            report(node)
        raise
    for observe in OBSERVERS:
        observe(node, start, perf_counter() - start)
    if node.hooks is not None:
        results = _after(node, results, grads)
    if not keep_graph:
        node.release()
    return results


def reachable(targets) -> set:
    """`targets` and all nodes and leaves that they depend on."""
    seen: set = set()
    stack = list(targets)
    while stack:
        target = stack.pop()
        if target not in seen:
            seen.add(target)
            if not isinstance(target, Tensor):
                for edge in target.edges:
                    if edge is not None:
                        stack.append(edge[0])
    return seen


def _ahead(edges, ready: list) -> dict:
    """For each leaf with hooks, how many edges lead to it from `edges` and from the nodes that have not run yet."""
    counts: dict = {}
    seen = {node for _, node in ready}
    stack = [edges, *(node.edges for node in seen)]
    while stack:
        for edge in stack.pop():
            if edge is None:
                continue
            target = edge[0]
            if target.__class__ is not Node and isinstance(target, Tensor):
                if target._hooks is not None:
                    counts[target] = counts.get(target, 0) + 1
            elif target not in seen:
                seen.add(target)
                stack.append(target.edges)
    return counts


def _counted_again(edges, ready: list, hooked: dict, attached: bool) -> dict:
    """What `_ahead` says now that a node has passed on fewer gradients than it has edges.

    Leaves with hooks for which no more will arrive are done.
    """
    awaited = _ahead(edges, ready)
    for leaf in [leaf for leaf in hooked if not awaited.get(leaf)]:
        keep_gradient(leaf, _after_hooks((leaf, 0), hooked.pop(leaf)), attached)
    return awaited


def expects(edge) -> bool:
    """Whether the current backward pass of this thread passes through `edge`."""
    _, roots, wanted, *_ = RUNS.current
    if wanted is not None:
        return edge[0] in wanted[TARGETS] or wanted.get(edge[0], False)
    return edge[0] in reachable(root[0] for root, _ in roots)


# Keys in the table of nodes that lead to the targets: the targets themselves, and whether their `.grad` is filled.
TARGETS, FILLS = "targets", "fills"
_SEQUENCE = operator.attrgetter("sequence_nr")


def _leading_to(targets, roots, fills: bool) -> dict:
    """For each reachable node, whether it leads to a target, or is one whose `.grad` is to be filled."""
    ahead = reachable(root[0] for root, _ in roots)
    goals = {edge[0] for edge in targets} & ahead
    seen = [n for n in ahead if not isinstance(n, Tensor)]
    wanted: dict = {TARGETS: goals, FILLS: fills}
    seen.sort(key=_SEQUENCE)  # inputs come before the ops that use them
    for node in seen:
        leads = fills and node in goals
        for edge in node.edges:
            if edge is not None and (edge[0] in goals or wanted.get(edge[0], False)):
                leads = True
                break
        wanted[node] = leads
    return wanted


def fit(grad: Tensor, shape: tuple, dtype, node=None, among: tuple | None = None) -> Tensor:
    """Sums `grad` to `shape` (reversing broadcasting) and casts it to `dtype` (taking the real part if that is real).

    For errors: the node that returned `grad`, and (its edges, the one that `grad` belongs to).

    Raises: RuntimeError if `shape` does not broadcast to the gradient's shape.
    """
    have = grad._array.shape
    if have != shape:
        extra = len(have) - len(shape)
        if extra < 0 or any(n not in (1, m) for n, m in zip(shape, have[extra:], strict=True)):
            nr = _index_of(*among) if among else 0
            raise RuntimeError(
                f"Function {node.name() if node else 'backward'} returned an invalid gradient at index {nr} - got "
                f"{list(have)} but expected shape compatible with {list(shape)}"
            )
        dims = [*range(extra)] + [extra + i for i, n in enumerate(shape) if n == 1 and have[extra + i] != 1]
        if dims:
            grad = grad.sum(dims, True)
        if extra:
            grad = grad.reshape(shape) if STORAGES[grad._array.__class__].layout is strided else _squeezed(grad, extra)
    if grad._array.dtype != dtype:
        if grad._array.dtype.kind == "c" and dtype.kind != "c":
            grad = grad.real
        wanted = from_numpy_dtype(dtype)
        grad = OPS["to_copy"].compiled.call(grad, wanted) if grad.__class__ in PLAIN else grad.to(wanted)
    return grad


def _squeezed(grad: Tensor, extra: int) -> Tensor:
    """A sparse gradient without its first `extra` dimensions, which have size 1; a dense one if nothing is left."""
    return grad.sum() if extra == grad._array.ndim else grad.sum([*range(extra)])


def _before_tensors(hooks, grads: list) -> None:
    """Runs the tensor hooks and `retain_grad` of a node's outputs; modifies `grads`."""
    for nr, on_output in hooks.on_output.items():
        grads[nr] = call_tensor_hooks(on_output, grads[nr])
    for nr, reference in hooks.retained.items():
        tensor = reference()
        if tensor is not None and grads[nr] is not None:
            kept = grads[nr].clone()
            tensor._grad = kept if tensor._grad is None else total(tensor._grad, kept)


def _before(hooks, grads: list) -> None:
    """Runs a node's pre-hooks; modifies `grads`."""
    for hook in list(hooks.before.values()):
        replaced = hook(tuple(grads))
        if replaced is not None:
            replaced = replaced if isinstance(replaced, tuple | list) else [replaced]
            _check_count(hook, replaced, grads)
            for new, old in zip(replaced, grads, strict=True):
                _check_type(hook, new, old)
            grads[:] = replaced


def _check_type(hook, new: Tensor | None, old: Tensor | None) -> None:
    """Raises: RuntimeError if a hook returned a gradient of another dtype."""
    if new is not None and old is not None and new._array.dtype != old._array.dtype:
        raise RuntimeError(
            f"hook '{getattr(hook, '__name__', hook)}' has changed the type of value (was {old.type()} got "
            f"{new.type()})"
        )


def _check_count(hook, values, expected) -> None:
    """Raises: RuntimeError if a node's hook returned the wrong number of gradients."""
    if len(values) != len(expected):
        raise RuntimeError(
            f"hook '{getattr(hook, '__name__', hook)}' has returned an incorrect number of values (got {len(values)}, "
            f"but expected {len(expected)})"
        )


def _after(node, results: Any, grads: list) -> list:
    given = tuple(results)
    for hook in list(node.hooks.after.values()):
        replaced = hook(given, tuple(grads))
        if replaced is not None:
            replaced = replaced if isinstance(replaced, tuple | list) else (replaced,)
            _check_count(hook, replaced, given)
            for new, old in zip(replaced, given, strict=True):
                _check_type(hook, new, old)
            given = tuple(replaced)
    return list(given)


def call_tensor_hooks(hooks: dict, grad: Any) -> Any:
    """Runs hooks on a gradient, each on the result of the previous one; `grad` is None if only other outputs have one.

    Raises: RuntimeError or TypeError if a hook returns something that cannot replace the gradient.
    """
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is not None:
            if not isinstance(replaced, Tensor):
                raise TypeError(f"expected Variable, but hook returned '{type(replaced).__name__}'")
            if grad is None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
            if replaced._array.shape != grad._array.shape:
                raise RuntimeError(
                    f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value: expected "
                    f"{list(grad._array.shape)}, got {list(replaced._array.shape)}"
                )
            _check_type(hook, replaced, grad)
            grad = replaced
    return grad


def _after_hooks(edge, grad):
    """The result of `autograd.grad` for a leaf: its gradient after the leaf's hooks."""
    target = edge[0]
    if grad is None or not isinstance(target, Tensor) or target._hooks is None:
        return grad
    return call_tensor_hooks(target._hooks.on_grad, grad)


def accumulate(leaf: Tensor, grad: Tensor, attached: bool) -> None:
    """Adds to a `.grad`, one thread at a time: in place, unless the sum is `attached` (has a graph or a tangent)."""
    if several_threads:
        with _accumulating:
            _add(leaf, grad, attached)
    else:
        _add(leaf, grad, attached)


def _add(leaf: Tensor, grad: Tensor, attached: bool) -> None:
    array = grad._array
    present = leaf._grad
    if present is None:  # another thread may be about to write the first one
        leaf._grad = detachable(grad, leaf) if attached else owned(getrefcount(grad), grad, leaf)
    elif array.__class__ is NoMemory:
        leaf._grad = total(present, grad)
    elif attached or present._array.dtype is not array.dtype or present._array.shape != array.shape:
        added = total(present, grad)
        if not attached and added._array.shape != present._array.shape:  # the leaf got another form since
            raise RuntimeError(
                f"output with shape {list(present._array.shape)} doesn't match the broadcast shape "
                f"{list(added._array.shape)}: the gradient of a tensor whose shape was changed by `.data` or `set_`"
            )
        leaf._grad = added if leaf._array.flags.c_contiguous else detachable(added, leaf)
    elif present._array.__class__ is not array.__class__:  # one of them is sparse
        added = total(present, grad)
        if added._array.__class__ is present._array.__class__:
            present.copy_(added)
        else:
            leaf._grad = added
    else:
        storage = present._storage
        storage.bump()
        storage.add_to(present._array, array)


def total(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two gradients, of which either may be sparse: sparse if both are."""
    if a._array.__class__ is not b._array.__class__ and STORAGES[b._array.__class__].layout is strided:
        return b + a  # only a sparse tensor can be added to a dense one, not the other way around
    return a + b


def owned(references: int, grad: Tensor, leaf: Tensor) -> Tensor:
    """A gradient that is not shared: the given one if only the engine refers to it, else a copy.

    `references` is the tensor's reference count; that of its storage reveals views and saved values that share it. A
    copy has the leaf's memory order, or is row-major if the leaf has gaps, since users call `.grad.view(...)`.
    """
    array, like, order = grad._array, leaf._array, None
    if (
        references <= ALONE
        and grad._memory is None
        and array.strides == like.strides
        and getattr(array, "base", array) is None
    ):  # the usual case: new memory, which is dense
        grad._edge, grad._requires_grad, grad._view = None, False, None
        return grad
    alone = references <= ALONE and (grad._memory is None or getrefcount(grad._memory) <= ALONE_IN_SLOT)
    fits = array.flags.c_contiguous
    ordered = like.shape == array.shape and not like.flags.c_contiguous and like.ndim > 1
    if ordered and STORAGES[array.__class__].layout is strided:
        order = dense_order(like)
        fits = fits if order is None else array.strides == like.strides
    if alone and fits:
        grad._edge, grad._requires_grad, grad._view = None, False, None
        return grad
    if array.__class__ is NoMemory:
        return grad.detach()
    storage = grad._storage.__class__
    if order is None and (array.ndim < 2 or array.flags.c_contiguous):
        copied = storage.copy(array)
    else:
        copied = made_in_order(
            lambda shape: storage.empty(shape, array.dtype, grad.device), array.shape, order or range(array.ndim)
        )
        storage.write(copied, array)
    return share(copied, storage.of(copied))


def detachable(grad: Tensor, leaf: Tensor) -> Tensor:
    """A copy, in the memory order of `owned`, of a gradient with a graph: two leaves may have received the same one."""
    ordered = leaf._array.shape == grad._array.shape and not leaf._array.flags.c_contiguous
    order = dense_order(leaf._array) if ordered else None
    if order is None or STORAGES[grad._array.__class__].layout is not strided:
        return grad.clone(memory_format=contiguous_format)
    return grad.permute(order).clone(memory_format=contiguous_format).permute(inverse(order))


def _arrived(leaf: Tensor, grad: Tensor | None, awaited: dict, hooked: dict, attached: bool) -> None:
    """Adds a gradient (None if there is none) for a leaf with hooks, which are called once all have arrived."""
    awaited[leaf] = awaited.get(leaf, 0) - 1
    so_far, in_run = hooked.get(leaf), id(grad)
    hooked[leaf] = so_far if grad is None else grad if so_far is None else total(so_far, grad)
    so_far = grad = None
    if not awaited[leaf]:
        on_grad = leaf._hooks.on_grad
        keep_gradient(
            leaf, call_tensor_hooks(on_grad, hooked.pop(leaf)) if on_grad else hooked.pop(leaf), attached, in_run
        )


def keep_gradient(leaf: Tensor, grad: Tensor | None, attached: bool, in_run: int = 0) -> None:
    """Accumulates a leaf's gradient, if there is one, and runs its hooks.

    `in_run` is the `id` of the tensor to which the loop refers meanwhile, too.
    """
    hooks = leaf._hooks
    if hooks is None:
        return None if grad is None else accumulate(leaf, grad, attached)
    if hooks.before:
        for hook in list(hooks.before.values()):
            replaced = hook((grad,))
            if replaced is not None:
                grad = replaced[0] if isinstance(replaced, tuple | list) else replaced
    if grad is None:
        pass
    elif leaf._grad is None and not several_threads:
        if attached:
            leaf._grad = detachable(grad, leaf)
        else:
            leaf._grad = owned(getrefcount(grad) - (BY_RUN if id(grad) == in_run else 0), grad, leaf)
        grad = leaf._grad  # hooks receive the tensor that was stored
    else:
        accumulate(leaf, grad, attached)
    for hook in list(hooks.post_accumulate.values()):
        returned = hook(leaf)
        if returned is not None and returned is not leaf:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    if hooks.after:
        for hook in list(hooks.after.values()):
            hook((), (grad,))


class _Slot:
    __slots__ = ("value",)

    value: object


def _count_alone() -> int:
    value = object()
    return getrefcount(value)


def _count_in_loop() -> int:
    results = [object()]
    for _, value in zip((None,), results):
        return getrefcount(value)
    return 0


def _count_in_slot() -> int:
    holder = _Slot()
    holder.value = object()
    return getrefcount(holder.value)


def _count_in_run() -> int:
    results = [object()]
    for _, value in zip((None,), results):
        return _count_if_arrived(value, {})
    return 0


def _count_if_arrived(value: object, hooked: dict) -> int:
    hooked[0] = value
    value = None
    return _count_kept(hooked.pop(0))


def _count_kept(value: object) -> int:
    return getrefcount(value)


# The `getrefcount` of an object referenced by a single local variable (or slot), which differs between Python versions.
ALONE, ALONE_IN_SLOT = _count_alone(), _count_in_slot()
BY_THE_LOOP = _count_in_loop() - ALONE  # additional references held by a loop over a node's results
BY_RUN = _count_in_run() - ALONE  # the same, seen from `keep_gradient`
