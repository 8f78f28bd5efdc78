"""The history of a region's results: the graph of autograd behind them, in a form that fits each run of a plan.

Eagerly, each op leaves a node, which holds what it saved. Here a node is a `Step`: it says which of the arrays that a
plan keeps (`slots`) the node would have saved. So a plan makes none of these nodes: its results have one for all of
them (capture/compiled_node.py), from which the others can be made whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any

import numpy as np

from tensorgrad.autograd.graph import FREED, Node
from tensorgrad.autograd.saved_tensors import Packed
from tensorgrad.autograd.views import edge_of
from tensorgrad.capture.masks import real_storage, unwrapped
from tensorgrad.capture.traced import TracedArray, TracedStorage
from tensorgrad.storage.stubs import STORAGES, Storage
from tensorgrad.tensor import VIEW, Tensor, share


class Refused(Exception):
    """A region cannot become a plan: it runs eagerly. The message says why.

    `limited`: that is a limit of plans so far, and not due to anything that the program does beside computing.
    """

    def __init__(self, reason: str, limited: bool = False) -> None:
        super().__init__(reason)
        self.limited = limited


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that a node saves: an array that the plan keeps, as a tensor's or (`bare`) as it is."""

    number: int
    bare: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A node. Of its edges, those to another step are (its number, which output), those that leave are `Way`s."""

    op: Any
    args: tuple
    outputs: tuple
    saved: tuple
    edges: tuple


@dataclass(frozen=True, slots=True)
class Way:
    """An edge that leaves the region, by its number: to a `leaf`, or to where the input number `given` is from."""

    number: int
    leaf: tuple[Tensor, int] | None
    given: int


class History:
    """The graph of autograd behind the results of a region.

    Attributes:
        steps: its nodes, in the order in which a backward pass runs them.
        ways: the edges that leave it, in the order in which gradients arrive there.
        positions: where gradients enter: (the number of a step, which of its outputs).
        ends: the ways, as edges; None for those to inputs.
        slots: the nodes of the recorded graph whose arrays a plan keeps.
        memory: for each slot, the tensor from outside or the result (a node of the recorded graph) whose memory it
            lies in, which the program may write to; None if it cannot.
        outputs: the shape, dtype and class of the array at each position.
        saving: the numbers of the steps that have saved values.
        alive: the nodes themselves, until the plan has been compared.
    """

    def __init__(self, recorder: Any, results: Iterable[Tensor], inputs: list[Tensor], edges: list[Any]) -> None:
        """`results` are tensors with a history, and `edges` those of the inputs before the call. Raises: Refused."""
        self._recorder, self._given = recorder, {_key(e): k for k, e in enumerate(edges) if e is not None}
        if [e and _key(e) for e in edges] != [(e := edge_of(t)) and _key(e) for t in inputs]:
            raise Refused("it writes to an argument that requires grad")
        roots: dict[tuple, Any] = {}
        self._places: dict[int, int] = {}
        for tensor in results:
            edge: Any = edge_of(tensor)
            if edge is None or isinstance(edge[0], Tensor) or _key(edge) in self._given:
                raise Refused("it returns a new leaf that requires grad, or an argument by another name")
            self._places[id(tensor)] = list(roots).index(_key(edge)) if _key(edge) in roots else len(roots)
            roots[_key(edge)] = edge
        self.alive = self._reached(edge[0] for edge in roots.values())
        numbers = {id(node): i for i, node in enumerate(self.alive)}
        self.positions = [(numbers[id(node)], nr) for node, nr in roots.values()]
        self.outputs = tuple(_plain(node.outputs)[nr] for node, nr in roots.values())
        self.slots: list[Any] = []
        self._storages: list[Any] = []
        self.ways: list[Way] = []
        self.steps = [self._step(node, numbers) for node in self.alive]
        self.ends = tuple([w.leaf for w in self.ways])
        self.saving = frozenset(i for i, step in enumerate(self.steps) if step.saved)
        self.memory: list[Any] = [None] * len(self.slots)
        self.backward_plans: dict[Any, Any] = {}
        del self._recorder, self._given

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the results."""
        return id(tensor) in self._places

    def place(self, tensor: Tensor) -> int:
        """Where the gradient of a result enters."""
        return self._places[id(tensor)]

    def _reached(self, roots: Iterable[Any]) -> list[Node]:
        """The nodes of the region, the latest first."""
        found: dict[int, Node] = {}
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if id(node) in found:
                continue
            cls = node.__class__
            if cls.apply is not Node.apply or cls.release is not Node.release or not hasattr(node.op, "compiled"):
                raise Refused(f"the backward pass of its result runs {node.name()}, which is not part of plans", True)
            if node.hooks is not None:
                raise Refused("a tensor that it makes has a hook")
            if node.saved is FREED:
                raise Refused("a part of its result's graph was used up by a backward pass within it")
            found[id(node)] = node
            waiting += [e[0] for e in node.edges if e is not None and not self._leaves(e)]
        return sorted(found.values(), key=attrgetter("sequence_nr"), reverse=True)

    def _leaves(self, edge: Any) -> bool:
        return isinstance(edge[0], Tensor) or _key(edge) in self._given

    def _step(self, node: Node, numbers: dict[int, int]) -> Step:
        edges = [None if e is None else self._edge(e, numbers) for e in node.edges]
        caches = set(getattr(node.op, "cache", ()))
        saved = [self._saved(s, name in caches) for name, s in zip(node.op.saved, node.saved, strict=True)]
        return Step(node.op, tuple(node.args), _plain(node.outputs), tuple(saved), tuple(edges))

    def _edge(self, edge: Any, numbers: dict[int, int]) -> Any:
        if not self._leaves(edge):
            return numbers[id(edge[0])], edge[1]
        given = self._given.get(_key(edge), -1)
        leaf = edge if given < 0 else None
        if leaf is not None and (leaf[0]._array.__class__ is TracedArray or leaf[0]._requires_grad is VIEW):
            raise Refused("the history of its result ends in a tensor that it made")
        self.ways.append(Way(len(self.ways), leaf, given))
        return self.ways[-1]

    def _saved(self, value: Any, cached: bool) -> Any:
        if value.__class__ is list:
            return [self._saved(v, cached) for v in value]
        if isinstance(value, Packed):
            raise Refused("hooks on saved tensors have packed what its result saved")
        if value.__class__ is tuple:
            array, storage, version = value
            if storage.version != version:
                raise Refused("what it saved for the backward pass is written to afterwards")
            storage = storage.real if storage.__class__ is TracedStorage else storage
            return self._slot(self._recorder.node_of(share(array, value[1])), False, storage)
        known = self._recorder._find(value)
        if known is not None:
            return self._slot(known, True, None)
        if value is not None and (cached or not isinstance(value, int | float | bool | complex | str)):
            raise Refused(f"what an op saved, a {type(value).__name__}, is not part of plans", True)
        return value

    def _slot(self, node: Any, bare: bool, storage: Any) -> Slot:
        for number, (known, memory) in enumerate(zip(self.slots, self._storages, strict=True)):
            if known is node and memory is storage:
                return Slot(number, bare)
        self.slots.append(node)
        self._storages.append(storage)
        return Slot(len(self.slots) - 1, bare)

    def settle(self, slots: list[Any], owners: Iterable[tuple[Any, Tensor]]) -> None:
        """Takes the nodes of the slots in the finished graph, and finds out whose memory they lie in."""
        known = {id(real_storage(tensor)): owner for owner, tensor in owners}
        self.slots = slots
        self.memory = [None if s is None else known.get(id(s)) for s in self._storages]
        self._storages = [None] * len(slots)

    def leaves(self) -> list[Tensor]:
        """The leaves from outside that gradients arrive at."""
        return [w.leaf[0] for w in self.ways if w.leaf is not None]

    def same_as(self, other: History | None, canonical: Any) -> bool:
        """Whether another one is equal; `canonical` makes of arguments what can be compared."""
        return other is not None and self._all(canonical) == other._all(canonical)

    def _all(self, canonical: Any) -> Any:
        steps = [
            (s.op.name, canonical(s.args), repr(s.outputs), canonical(s.saved), [
                (e.number, e.leaf and id(e.leaf[0]), e.given) if isinstance(e, Way) else e for e in s.edges
            ])
            for s in self.steps
        ]  # fmt: skip
        return steps, self.positions, len(self.slots)

    def kept(self) -> list[Any]:
        """The arrays that the nodes saved, by slot, while these are alive."""
        arrays: list[Any] = [None] * len(self.slots)

        def take(wanted: Any, value: Any) -> None:
            if wanted.__class__ is list:
                for w, v in zip(wanted, value, strict=True):
                    take(w, v)
            elif wanted.__class__ is Slot:
                arrays[wanted.number] = unwrapped(value if wanted.bare else value[0])

        for step, node in zip(self.steps, self.alive, strict=True):
            take(list(step.saved), list(node.saved))
        return arrays

    # --- the nodes of a run ---

    def nodes(
        self, arrays: list[Any], storages: dict[int, tuple[Storage, Any]], freed: frozenset[int], edges: tuple,
        last: Any,
    ) -> list[Node]:  # fmt: skip
        """Makes the nodes that the program would have made in a run that kept these arrays.

        Args:
            arrays: of each slot.
            storages: the memory, and the version that it had, of slots that the program may write to.
            freed: the steps whose nodes have been used already.
            edges: the ways out.
            last: all sequence numbers are below this one, and above the one before.
        """

        def filled(value: Any) -> Any:
            if value.__class__ is Slot:
                array = arrays[value.number]
                if value.bare:
                    return array
                memory = storages.get(value.number)
                return (array, *memory) if memory is not None else (array, STORAGES[array.__class__].of(array), 0)
            return [filled(v) for v in value] if value.__class__ is list else value

        made: list[Any] = [object.__new__(Node) for _ in self.steps]
        for i, (step, node) in enumerate(zip(self.steps, made, strict=True)):
            node.op, node.args, node.outputs, node.hooks = step.op, step.args, step.outputs, None
            node.saved = FREED if i in freed else tuple([filled(s) for s in step.saved])
            node.sequence_nr = last - Fraction(i + 1, len(made) + 1)
            node.edges = tuple([
                None if e is None else edges[e.number] if e.__class__ is Way else (made[e[0]], e[1]) for e in step.edges
            ])  # fmt: skip
        return made

    def reached_from(self, given: Iterable[bool]) -> set[int]:
        """The steps that gradients reach which enter at these positions."""
        found = {self.positions[k][0] for k, enters in enumerate(given) if enters}
        for i, step in enumerate(self.steps):
            if i in found:
                found.update([e[0] for e in step.edges if e is not None and e.__class__ is not Way])
        return found

    def ways_of(self, steps: Iterable[int]) -> list[int]:
        """The numbers of the ways out of these steps."""
        return [e.number for i in sorted(steps) for e in self.steps[i].edges if e.__class__ is Way]

    def leading_to(self, wanted: Iterable[bool]) -> set[int]:
        """The steps that lead to these ways."""
        ways = [k for k, wants in enumerate(wanted) if wants]
        found: set[int] = set()
        for i in range(len(self.steps) - 1, -1, -1):
            for e in self.steps[i].edges:
                if e is not None and (e.number in ways if e.__class__ is Way else e[0] in found):
                    found.add(i)
        return found


def slots_in(saved: Any) -> list[Slot]:
    """The slots among saved values."""
    found: list[Slot] = []
    for value in saved:
        if value.__class__ is Slot:
            found.append(value)
        elif value.__class__ is list:
            found += slots_in(value)
    return found


def _key(edge: Any) -> tuple[int, int]:
    return id(edge[0]), edge[1]


def _plain(outputs: tuple) -> tuple:
    """The outputs of a node, which may be those of traced arrays, as those of arrays."""
    return tuple([(shape, dtype, _real_class(cls)) for shape, dtype, cls in outputs])


def _real_class(cls: type) -> type:
    return np.ndarray if cls is TracedArray else cls


def used_up(node: Any) -> bool:
    """Whether another backward pass from a node is an error, whichever way it goes: nothing saved is left."""
    seen, waiting, freed_some = {id(node)}, [node], False
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Node):
            continue
        if node.hooks is not None:
            return False
        if node.saved is FREED:
            freed_some = True
        elif node.saved:
            return False
        for edge in node.edges:
            if edge is not None and id(edge[0]) not in seen:
                seen.add(id(edge[0]))
                waiting.append(edge[0])
    return freed_some
