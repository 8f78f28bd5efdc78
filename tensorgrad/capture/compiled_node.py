"""The node of autograd behind the results of a plan: one for all that the program would have recorded.

To the engine it is an ordinary node, whose op is the region. It holds a `Run`: the arrays that the history says
(capture/history.py). When gradients arrive, a plan of the backward pass runs (capture/backward.py). Whatever a pass may
want besides, it does not try: with `create_graph`, profilers, transforms, anomaly mode, or if saved values were written
to, it makes the nodes that the program would have made, and its edges lead to them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorgrad.autograd import engine
from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.graph import Node, next_sequence_nr
from tensorgrad.autograd.views import edge_of
from tensorgrad.capture.backward import plan_for
from tensorgrad.capture.history import History, slots_in
from tensorgrad.capture.running import RUNNING, modes
from tensorgrad.rows.switches import BESIDE_INFERENCE, GRAD, LOCAL, SLOW
from tensorgrad.tensor import PLAIN, Tensor, share

NONE: frozenset[int] = frozenset()


class Run:
    """What a run of a plan left for its backward pass.

    Attributes:
        history: the nodes that the one node stands for.
        arrays: what they saved, by slot.
        checked: (slot, storage, version) of what the program may write to meanwhile.
        freed: the steps that a pass has used up.
        expanded: do the nodes of the program stand in for the one?
        visited: the places that the pass has come to without a gradient: what is behind them is visited, too.
        once: the edges that the gradients belong to which are passed on now, if these are not all.
    """

    __slots__ = ("arrays", "checked", "expanded", "freed", "history", "once", "visited")

    checked: tuple
    once: tuple | None

    def __init__(self, history: History, arrays: list[Any]) -> None:
        self.history, self.arrays = history, arrays
        self.checked, self.freed, self.visited, self.expanded, self.once = (), NONE, NONE, False, None


def node_of_run(history: History, arrays: list[Any], inputs: tuple) -> Node:
    """The node of a run.

    `arrays` are those of the slots, `inputs` the tensors among the arguments, if gradients lead to them.
    """
    node = object.__new__(Node)
    node.op, node.args, node.saved, node.hooks = OP, (Run(history, arrays),), (), None
    node.outputs = history.outputs
    if inputs:
        ends = [edge_of(t) for t in inputs]
        node.edges = tuple([w.leaf or ends[w.given] for w in history.ways])
    else:
        node.edges = history.ends
    node.sequence_nr = next_sequence_nr()
    return node


def in_graph(array: Any, storage: Any, node: Node, place: int, marker: Any = True) -> Tensor:
    """A result of a run, whose gradient enters the node at this place."""
    made = share(array, storage)
    made._edge, made._requires_grad = (node, place), marker
    return made


def _backward(node: Any, grads: list) -> list:
    """The gradients for the ways out of the region."""
    run: Run = node.args[0]
    visited, run.visited = run.visited, NONE
    if run.expanded:
        return _passed_on(node, grads, visited)
    switched_on = SLOW and (GRAD.inference or BESIDE_INFERENCE)
    if switched_on or GRAD.enabled or LOCAL.transforms or engine.OBSERVERS or ANOMALY.enabled:
        return _expand(node, grads, visited)
    for _, storage, version in run.checked:
        if storage.version != version:
            return _expand(node, grads, visited)
    history = run.history
    if _writes_to_what_it_reads(node.edges, run.checked, grads):
        return _expand(node, grads, visited)
    _, _, wanted, _, _, keep = engine.RUNS.current
    needs = None if wanted is None else tuple([_leads(edge, wanted) for edge in node.edges])
    kind = (tuple([None if g is None else _layout(g) for g in grads]), needs, modes())
    plan = history.backward_plans.get(kind)
    if plan is None or RUNNING.check:
        plan = plan_for(node, kind, grads)
    if plan is None or not run.freed.isdisjoint(plan.saving):  # the latter is an error, once the nodes before have run
        return _expand(node, grads, visited)
    steps, ways = plan.steps, plan.ways
    if visited and needs is None:
        steps = history.reached_from([g is not None or k in visited for k, g in enumerate(grads)])
        ways = history.ways_of(steps)
    if len(steps) == len(history.steps):
        arrays = run.arrays
        if keep:
            arrays = list(arrays)
        else:
            run.arrays, run.freed = [None] * len(arrays), history.saving
        return plan(arrays, grads)
    found = plan(list(run.arrays), grads)
    if not keep:
        run.freed |= steps
        used = {s.number for i in history.saving - run.freed for s in slots_in(history.steps[i].saved)}
        run.arrays = [a if i in used else None for i, a in enumerate(run.arrays)]
    if len(ways) < len(found):
        _now_only(node, ways)
        return [found[i] for i in ways]
    return found


def _writes_to_what_it_reads(edges: tuple, checked: tuple, grads: list) -> bool:
    """Whether a pass adds to a `.grad` that shares memory with a saved value, with a gradient that arrives, or with
    another leaf's: then what it computes, or an error, depends on when it is added."""
    read: dict[int, Any] = {id(storage): None for _, storage, _ in checked}
    read |= {_memory(g): None for g in grads if g is not None}
    for leaf, _ in edges:
        if (
            leaf.__class__ in PLAIN
            and leaf._grad is not None
            and read.setdefault(_memory(leaf._grad), leaf) is not leaf
        ):
            return True
    return False


def _memory(tensor: Tensor) -> int:
    return id(tensor if tensor._memory is None else tensor._memory)


def _reached(node: Any, place: int) -> None:
    """Called when a pass comes to a result without a gradient for it."""
    node.args[0].visited |= {place}
    if not isinstance(node, Partly):
        node.__class__ = Partly


def _expand(node: Any, grads: list, visited: frozenset[int]) -> list:
    """Makes the nodes of the program. From now on, gradients go on to these."""
    run: Run = node.args[0]
    history = run.history
    storages = {slot: (storage, version) for slot, storage, version in run.checked}
    made = history.nodes(run.arrays, storages, run.freed, node.edges, node.sequence_nr)
    wanted = engine.RUNS.current[2]
    if wanted is not None:  # the pass looked ahead when they were not there
        for each in reversed(made):
            wanted[each] = any(_leads(edge, wanted) for edge in each.edges if edge is not None)
    run.expanded, run.arrays, run.checked = True, [], ()
    node.edges = tuple([(made[i], nr) for i, nr in history.positions])
    return _passed_on(node, grads, visited)


def _passed_on(node: Any, grads: list, visited: frozenset[int]) -> list:
    """Passes gradients on to the nodes that stand in for this one."""
    given = [k for k, g in enumerate(grads) if g is not None or k in visited]
    if len(given) < len(grads):
        _now_only(node, given)
    return [grads[k] for k in given]


def _now_only(node: Any, ways: list[int]) -> None:
    """Says that gradients are passed on now for some of the edges: others are not reached, and nothing runs there."""
    edges = node.edges
    if not isinstance(node, Partly):
        node.__class__ = Partly
    node.args[0].once = tuple([edges[k] for k in ways])


class Partly(Node):
    """The node, in a pass that may reach some of its edges only: the engine takes the edges when it has run."""

    __slots__ = ()

    runs_always = True  # also if it is visited without any gradient
    passed_on_fewer = True  # so leaves that wait for more are looked at again

    @property
    def edges(self) -> tuple:
        """The edges; once after a pass through some of them, these."""
        run: Run = self.args[0]
        once, run.once = run.once, None
        return _EDGES.__get__(self) if once is None else once

    @edges.setter
    def edges(self, edges: tuple) -> None:
        _EDGES.__set__(self, edges)


_EDGES: Any = Node.__dict__["edges"]
Partly.__name__ = Partly.__qualname__ = "CompiledFunctionBackward"


class _Op:
    """What stands in the place of a row in the nodes of regions: it has no kernel, and no rule of any transform."""

    def __init__(self) -> None:
        self.name, self.kind, self.backward_name = "compiled", "region", "CompiledFunctionBackward"
        self.outputs = self.params = self.wrt = self.kept = self.cache = ()
        self.saved: dict[str, Any] = {}
        self.formulas: dict[str, Any] = {}
        self.differentiable_outputs = 1
        self.batch = self.batch_backward = self.backward_kernel = self.on_arrays = None
        self.reached = _reached
        self.compiled = SimpleNamespace(backward=_backward, on_tensors=_backward)


OP = _Op()


def _leads(edge: Any, wanted: dict) -> bool:
    return edge[0] in wanted[engine.TARGETS] or wanted.get(edge[0], False)


def _layout(grad: Tensor) -> Any:
    """What a plan depends on, of a gradient that arrives: its shape and dtype are those of the result."""
    array = grad._array
    return array.strides if array.__class__ is np.ndarray and grad.__class__ in PLAIN else grad.__class__
