"""What programs can query about the current backward pass of this thread, and schedule for its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappop, heappush

from tensorgrad.autograd import engine
from tensorgrad.autograd.grad_mode import is_multithreading_enabled
from tensorgrad.autograd.graph import AccumulateGrad, Node, as_node, shown
from tensorgrad.tensor import Tensor


def current_id() -> int:
    """Returns the number of the innermost backward pass; -1 outside."""
    return engine.RUNS.current[0] or -1


def current_node() -> Node | None:
    """Returns the node that the innermost backward pass is running; None outside.

    It is read from the stack frame of the engine's loop, so the engine need not keep track of it.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code not in engine.LOOPS:
        frame = frame.f_back  # type: ignore[assignment]
    node = None if frame is None else frame.f_locals["node"]
    return node if node is None else shown(node)


def queue_callback(callback: Callable) -> None:
    """Schedules `callback()` for the end of the innermost backward pass. Raises: RuntimeError outside a pass."""
    if not engine.RUNS.current[0]:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    engine.RUNS.current[3].append(callback)


def is_checkpoint_valid() -> bool:
    """Returns whether the current backward pass, if any, computes all gradients, as reentrant checkpoints require."""
    return engine.RUNS.current[2] is None


def will_execute(node) -> bool:
    """Returns whether the innermost backward pass runs `node`.

    Raises: RuntimeError outside a pass, if `node` is not a node, and for a leaf's node under `autograd.grad`.
    """
    if not isinstance(node, Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    number, roots, wanted, *_ = engine.RUNS.current
    if not number:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    target = node.variable if isinstance(node, AccumulateGrad) else node
    if wanted is None:
        return target in engine.reachable(edge[0] for edge, _ in roots)
    if isinstance(target, Tensor):
        if not wanted[engine.FILLS]:
            raise RuntimeError(
                "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). "
                "This is currently not supported."
            )
        return target in wanted[engine.TARGETS]
    return wanted.get(target, False) or target in wanted[engine.TARGETS]


def execution_order() -> list[Node]:
    """Returns the nodes of the innermost backward pass in execution order.

    Raises: RuntimeError outside a pass, and unless multithreading is disabled, as in PyTorch.
    """
    number, roots, wanted, *_ = engine.RUNS.current
    if not number:
        raise RuntimeError("_current_graph_task_execution_order should only be called during the backward pass")
    if is_multithreading_enabled():
        raise RuntimeError(
            "get_current_graph_task_execution_order expects the current backward to be executed with multithreading "
            "disabled, e.g. by running:\n\n>>> with torch.autograd.set_multithreading_enabled(False):\n"
            "...     torch.autograd.grad(...)\n"
        )
    edges = [edge for edge, _ in roots]
    behind = [n for n in engine.reachable(edge[0] for edge in edges) if not isinstance(n, Tensor)]
    coming: dict = {}  # leaf -> how many edges still lead to it
    for edge in (*edges, *(e for n in behind for e in n.edges)):
        if edge is not None and isinstance(edge[0], Tensor):
            coming[edge[0]] = coming.get(edge[0], 0) + 1
    order: list = []
    ready: list = []
    met: set = set()
    while True:
        for edge in edges:
            target = None if edge is None else edge[0]
            if isinstance(target, Tensor):
                coming[target] -= 1
                if not coming[target] and (wanted is None or target in wanted[engine.TARGETS]):
                    order.append(as_node(target))
            elif target is not None and target not in met:
                met.add(target)
                heappush(ready, (-target.sequence_nr, target))
        if not ready:
            return order
        node = heappop(ready)[1]
        edges = node.edges
        if wanted is None or wanted[node] or node in wanted[engine.TARGETS]:
            order.append(shown(node))
