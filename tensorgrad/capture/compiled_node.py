"""The node of autograd behind the results of a plan: one for all that the program would have recorded.

It keeps the arrays that its history says (capture/history.py). When gradients arrive, it has a plan of its own run
(capture/backward.py). Whatever a pass may want besides, it does not try: with `create_graph`, profilers, transforms,
anomaly mode, or if saved values were written to, it makes the nodes that the program would have made, and its edges
lead to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorgrad.autograd import engine
from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.autograd.graph import Node, next_sequence_nr
from tensorgrad.autograd.views import edge_of
from tensorgrad.capture.backward import plan_for
from tensorgrad.capture.history import History, slots_in
from tensorgrad.rows.switches import GRAD, LOCAL, SLOW
from tensorgrad.tensor import PLAIN, Tensor, share

NAME = "CompiledFunctionBackward"


class CompiledNode(Node):
    """What computed the results of a region: its gradient is that of all nodes of the program, in one.

    Attributes:
        history: the nodes that it stands for.
        arrays: what they saved, by slot.
        checked: (slot, storage, version) of what the program may write to meanwhile.
        freed: the steps that a pass has used up; `ran` those of the last one.
        expanded: do the nodes of the program stand in for this one?
    """

    __slots__ = ("_once", "_ways", "arrays", "checked", "expanded", "freed", "history", "passed_on_fewer", "ran")

    history: History
    arrays: list[Any]
    checked: tuple
    freed: frozenset[int]
    ran: frozenset[int]
    _once: tuple | None
    _ways: tuple

    @property
    def edges(self) -> tuple:
        """Where gradients go: the ways out of the region, or the nodes that stand in for this one."""
        once, self._once = self._once, None
        return self._ways if once is None else once

    @edges.setter
    def edges(self, edges: tuple) -> None:
        self._ways, self._once = edges, None

    def name(self) -> str:
        return NAME

    def apply(self, grads: list) -> Any:
        """Returns the gradients for the ways out of the region."""
        if self.expanded:
            return self._onwards(grads)
        if (
            SLOW or GRAD.enabled or LOCAL.transforms or engine.OBSERVERS or ANOMALY.enabled
            or any([storage.version != version for _, storage, version in self.checked])
        ):  # fmt: skip
            return self._expand(grads)
        wanted, keep = engine.RUNS.current[2], engine.RUNS.current[5]
        needs = None if wanted is None else tuple([_leads(edge, wanted) for edge in self._ways])
        arrived = tuple([None if g is None else _layout(g) for g in grads])
        plan = plan_for(self, (arrived, needs), grads)
        if plan is None:
            return self._expand(grads)
        if not self.freed.isdisjoint(plan.saving):
            return self._expand(grads)  # an error, once the nodes before have run
        self.ran, self.passed_on_fewer = plan.steps, len(plan.ways) < len(self._ways)
        if len(plan.steps) == len(self.history.steps):
            arrays = self.arrays
            if keep:
                arrays = list(arrays)
            else:
                self.arrays = [None] * len(arrays)
            return plan(arrays, grads)
        found = plan(list(self.arrays), grads)
        if self.passed_on_fewer:
            self._once = tuple([self._ways[i] for i in plan.ways])
            return [found[i] for i in plan.ways]
        return found

    def release(self) -> None:
        """Releases what the steps that ran have saved."""
        if self.expanded:
            return  # the nodes do, each
        self.freed, self.ran = self.freed | self.ran, frozenset()
        left = self.history.saving - self.freed
        used = {s.number for i in left for s in slots_in(self.history.steps[i].saved)}
        self.arrays = [a if i in used else None for i, a in enumerate(self.arrays)]

    # --- the nodes of the program ---

    def _expand(self, grads: list) -> list:
        """Makes the nodes of the program. From now on, gradients go on to these."""
        history = self.history
        storages = {slot: (storage, version) for slot, storage, version in self.checked}
        made = history.nodes(self.arrays, storages, self.freed, self._ways, self.sequence_nr)
        wanted = engine.RUNS.current[2]
        if wanted is not None:  # the pass looked ahead when they were not there
            for node in reversed(made):
                wanted[node] = any(_leads(edge, wanted) for edge in node.edges if edge is not None)
        self.expanded, self.arrays, self.checked = True, [], ()
        self.edges = tuple([(made[i], nr) for i, nr in history.positions])
        return self._onwards(grads)

    def _onwards(self, grads: list) -> list:
        """Passes gradients on to the nodes that stand in for this one."""
        given = [k for k, g in enumerate(grads) if g is not None]
        self.passed_on_fewer = len(given) < len(grads)
        if self.passed_on_fewer:
            self._once = tuple([self._ways[k] for k in given])
        return [grads[k] for k in given]


def node_of_run(history: History, arrays: list[Any], inputs: tuple) -> CompiledNode:
    """The node of a run of a plan: `arrays` are those of the slots, `inputs` the tensors among the arguments."""
    node = object.__new__(CompiledNode)
    node.history, node.arrays, node.outputs = history, arrays, history.outputs
    node.op, node.args, node.saved, node.hooks = history.shown, (), (), None
    node.expanded, node.freed, node.ran, node.checked = False, frozenset(), frozenset(), ()
    ends = {k: edge_of(t) for k, t in enumerate(inputs) if t._requires_grad} if inputs else {}
    node.edges = tuple([(w.leaf, 0) if w.leaf is not None else ends[w.given] for w in history.ways])
    node.sequence_nr = next_sequence_nr()
    return node


def in_graph(array: Any, storage: Any, node: CompiledNode, place: int, marker: Any = True) -> Tensor:
    """A result of a run, whose gradient enters the node at this place."""
    made = share(array, storage)
    made._edge, made._requires_grad = (node, place), marker
    return made


def _leads(edge: Any, wanted: dict) -> bool:
    return edge[0] in wanted[engine.TARGETS] or wanted.get(edge[0], False)


def _layout(grad: Tensor) -> Any:
    """What a plan depends on, of a gradient that arrives: its shape and dtype are those of the result."""
    array = grad._array
    return array.strides if array.__class__ is np.ndarray and grad.__class__ in PLAIN else grad.__class__
