"""Plans of backward passes: what the nodes of a region's history do, as launches on the arrays that were kept.

Such a plan computes what would arrive at each edge that leaves the region, one by one, so that leaves add up the same
values in the same order. It is made in the first pass that needs it, for the gradients that arrived and those that are
wanted: what the nodes do is recorded, and compared with what the plan does.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensorgrad.autograd import engine
from tensorgrad.autograd.graph import Node
from tensorgrad.capture.chains import FULL, Chains
from tensorgrad.capture.history import Refused, Way
from tensorgrad.capture.launches import Launches
from tensorgrad.capture.lifetimes import dropped
from tensorgrad.capture.links import bounds
from tensorgrad.capture.recorder import Recorder
from tensorgrad.capture.running import RUNNING, PlanError
from tensorgrad.dispatch.codegen import function_of
from tensorgrad.kernels.compiled.runtime.launch import address
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, share

LIMIT = 16  # plans of a history; for passes of more kinds, the nodes run


def plan_for(node: Any, kind: tuple, grads: list) -> Any:
    """The plan for a pass of this kind: (the layouts of gradients, which ways are wanted, modes).

    Returns None if there is none, and the nodes are to run.
    """
    plans = node.args[0].history.backward_plans
    if kind in plans:
        found = plans[kind]
        if found is not None and node.args[0].freed.isdisjoint(found.saving):
            found.check(node, grads)
        return found
    if (
        len(plans) >= LIMIT
        or any(isinstance(layout, type) for layout in kind[0])
        or node.args[0].freed
        or RUNNING.recording
    ):
        return None
    made: Any = None
    RUNNING.recording = True
    try:
        made = BackwardPlan(node, kind[1], grads)
        made.check(node, grads)
        made.try_chains(node, grads)
    except Exception:
        made = None  # whatever stands in its way: the nodes do it
    finally:
        RUNNING.recording = False
    plans[kind] = made
    return made


class BackwardPlan:
    """Runs the steps of a history on arrays.

    Attributes:
        steps: the numbers of the steps that it runs; `saving` those of them that have saved values.
        ways: the numbers of the ways out that these lead to.
        launches: what it calls.
        chains: the parts of them that machine code runs as one list; None if there are none.
        one_by_one: why they are not run as chains, if they could be.
        source: the text of the function.
        graph: what was recorded.
    """

    one_by_one = ""

    def __init__(self, node: Any, needs: tuple | None, grads: list) -> None:
        """Records what the steps do with gradients like these. Raises: what stands against that."""
        history = node.args[0].history
        steps = history.reached_from([g is not None for g in grads])
        if needs is not None:
            steps &= history.leading_to(needs)
        self.steps = frozenset(steps)
        self.saving = self.steps & history.saving
        self.needs = needs
        self.ways = history.ways_of(steps)
        recorder = Recorder("note")
        arrays = apart([*node.args[0].arrays, *[None if g is None else g._array for g in grads]])
        kept, grads = ([None if a is None else share(a, None) for a in some]
                       for some in (arrays[: -len(grads)], arrays[-len(grads) :]))  # fmt: skip
        given = [(k, g) for k, g in enumerate(grads) if g is not None]
        with recorder:
            for i, tensor in enumerate(kept):
                if tensor is not None:
                    recorder.placeholder(f"saved{i}", tensor)
            for k, g in given:
                recorder.placeholder(f"grad{k}", g)
            arrived = arrivals(node, self.steps, grads, needs, [None if t is None else t._array for t in kept])
            recorder.check_versions()
            numbers = [i for i, g in enumerate(arrived) if g is not None]
            recorder.graph.output(tuple([recorder.returned(arrived[i]) for i in numbers]))
            recorder.finish()
        if recorder.effects and any(e.kind != "write" for e in recorder.effects):
            raise Refused("its backward pass does more than compute")
        recorder.graph.eliminate_dead_code()
        self.graph = recorder.graph
        self.launches = Launches(SimpleNamespace(graph=recorder.graph, attributes=recorder.attributes))  # type: ignore[arg-type]
        if any(tensor._array is array for tensor, array in self.launches.arrays):
            raise Refused("its backward pass uses a tensor that was not saved")
        found: Any = recorder.graph.output_node().args[0]
        ends = dict(zip(numbers, found, strict=True))
        self._names = {**self.launches.values, "share": share, "copied": _copied, "storage_of": _storage_of}
        self._ends(ends, {i: arrived[i]._array for i in numbers}, kept, given, len(arrived))
        self._use([launch.text for launch in self.launches.launches], self._names)
        self.chains: Chains | None = None

    def _ends(self, ends: dict[int, Any], arrays: dict[int, Any], kept: list, given: list, ways: int) -> None:
        """Finds the lines that take the arrays, and those that make tensors of what arrives at each way."""
        launches = self.launches
        slots = [i for i, tensor in enumerate(kept) if tensor is not None]
        if len(slots) == len(kept) > 0:
            self._head = [f"{', '.join(f'v_in{n}' for n in slots)}, = saved", "saved.clear()"]
        else:
            self._head = [f"v_in{n} = saved[{i}]" for n, i in enumerate(slots)] + ["saved.clear()"]
        self._head += [f"v_in{n} = grads[{k}]._array" for n, (k, _) in enumerate(given, len(slots))]
        placeholders = {f"v_in{n}": f"grads[{k}]" for n, (k, _) in enumerate(given, len(slots))}
        saved = [t._array for t in kept if t is not None]
        made: dict[str, str] = {}  # text of an array -> the name of the tensor
        after: dict[str, str] = {}  # text of an array -> the line that makes a tensor of it, once it is there
        last: list[str] = []  # such lines for arrays that share memory
        shared: dict[int, str] = {}  # the first of those that share memory -> the name of their storage
        results: list[str] = ["None"] * ways
        for i, end in ends.items():
            text = launches.of[end]
            if text not in made:
                made[text] = f"r{i}"
                aliases = [j for j, other in arrays.items() if other is not arrays[i] and
                           np.may_share_memory(other, arrays[i]) and launches.of[ends[j]] != text]  # fmt: skip
                of_grads = [k for k, g in given if np.may_share_memory(g._array, arrays[i])]
                if text in placeholders:
                    last.append(f"r{i} = {placeholders[text]}")
                elif any(np.may_share_memory(other, arrays[i]) for other in saved) or not _computed(text):
                    last.append(f"r{i} = share(copied({text}), None)")
                elif of_grads:
                    last.append(f"r{i} = share({text}, grads[{of_grads[0]}]._storage)")
                elif aliases:
                    first = min(i, *aliases)
                    if first not in shared:
                        shared[first] = f"s{first}"
                        last.append(f"s{first} = storage_of({text})")
                    last.append(f"r{i} = share({text}, {shared[first]})")
                else:
                    after[text] = f"r{i} = share({text}, None)"
            results[i] = made[text]
        self._after, self._last, self._return = after, last, f"return [{', '.join(results)}]"

    def _use(self, body: list[str], names: dict[str, Any]) -> None:
        """Makes the function that runs these lines: (arrays of the slots, gradients) -> what arrives at each way."""
        body = dropped([*_with_tensors(body, self._after), *self._last], "", _ANY)
        lines = ["def backward(saved, grads):", *self._head, *body, self._return]
        self.source = "\n    ".join(lines) + "\n"
        self._run = function_of(self.source, names, {"__name__": "tensorgrad.plan"}, "backward")

    # --- chains ---

    def try_chains(self, node: Any, grads: list) -> None:
        """Finds out which of the launches can be chains (see capture/chains.py), and uses them if they give the same.

        They have to in memory full of nan, and where none fits, so that their ops are called one by one.
        """
        arrays = apart([*node.args[0].arrays, *[None if g is None else g._array for g in grads]])
        given = {f"v_in{n}": a for n, a in enumerate([a for a in arrays if a is not None])}
        names: dict[str, Any] = {**self._names, **given, "__name__": "tensorgrad.plan"}
        try:
            chains = Chains(self._names, {name: v for name, v in names.items() if name[0] in "ak" or name in given})
            for launch in self.launches.launches:
                chains.run(launch, names)
            if not chains.found():
                return
            body = chains.text("\n".join([*self._after.values(), *self._last, self._return]))
            for more in (FULL, {"replay": lambda *given: False}, {}):
                self._use(body, chains.names | more)
                self.check(node, grads)
            self.chains = chains
        except Exception as error:
            self.one_by_one = f"{type(error).__name__}: {error}"
            self._use([launch.text for launch in self.launches.launches], self._names)

    def __call__(self, arrays: list, grads: list) -> list:
        """Returns what arrives at each way; empties the list of arrays."""
        return self._run(arrays, grads)

    def check(self, node: Any, grads: list) -> None:
        """Compares the plan with what the nodes of the program do. Raises: PlanError if they differ."""
        expected = arrivals(node, self.steps, grads, self.needs, node.args[0].arrays)
        found = self(list(node.args[0].arrays), grads)
        for way, (a, b) in enumerate(zip(expected, found, strict=True)):
            if (a is None) is not (b is None) or (a is not None and _bits(a) != _bits(b)):
                raise PlanError(f"torch.compile: the gradient {way} of a compiled function is not that of its program")


def _with_tensors(body: list[str], after: dict[str, str]) -> list[str]:
    """The lines, each followed by those that make tensors of what it assigns: so other arrays are dropped."""
    lines: list[str] = []
    for line in body:
        lines.append(line)
        left, equals, _ = line.partition(" = ")
        assigned = _ANY.findall(left) if equals else ()
        lines += [made for text, made in after.items() if text.partition("[")[0] in assigned]
    return lines


_ANY = re.compile(r"\bv(?:_in)?\d+\b")


def _computed(text: str) -> bool:
    """Whether an array is computed in each run: not a constant."""
    return text.startswith("v") and not text.startswith("v_in")


def _copied(array: Any) -> Any:
    return np.array(array, order="K")


def _storage_of(array: Any) -> Any:
    return STORAGES[array.__class__].of(array)


def _bits(tensor: Tensor) -> Any:
    array = tensor._array
    return array.shape, array.strides, array.dtype, np.ascontiguousarray(array).tobytes()


def apart(arrays: list) -> list:
    """The arrays, with copies (in the same layout) of those that share memory with one before: in the next run they
    may not, and what is recorded has to tell one from the other."""
    found: list[Any] = []
    for array in arrays:
        if array.__class__ is np.ndarray and any(
            other.__class__ is np.ndarray and np.may_share_memory(array, other) for other in found
        ):
            low, high = bounds(array)
            memory = np.empty(high - low, np.uint8)
            array, before = np.ndarray(array.shape, array.dtype, memory, address(array) - low, array.strides), array
            array[...] = before
        found.append(array)
    return found


def arrivals(node: Any, steps: frozenset[int], grads: list, needs: tuple | None, kept: list) -> list:
    """Runs the nodes of the program, which saved the arrays `kept`, as the engine does.

    Returns what arrives at each way out, None for nothing.
    """
    history = node.args[0].history
    storages = {slot: (storage, version) for slot, storage, version in node.args[0].checked}
    nodes = history.nodes(kept, storages, node.args[0].freed, node.edges, node.sequence_nr)
    found: list[Any] = [None] * len(history.ways)
    slots: dict[int, list] = {}

    def add(place: Any, grad: Tensor, of: Any, among: Any) -> None:
        i, nr = place
        if i in steps:
            outputs = history.steps[i].outputs
            shape, dtype, _ = outputs[nr]
            grad = engine.fit(grad, shape, dtype, of, among)
            received = slots.setdefault(i, [None] * len(outputs))
            received[nr] = grad if received[nr] is None else engine.total(received[nr], grad)

    for place, grad in zip(history.positions, grads, strict=True):
        if grad is not None:
            add(place, grad, None, None)
    for i, step in enumerate(history.steps):
        received = slots.pop(i, None)
        if received is None:
            continue
        edges = nodes[i].edges
        for edge, real, grad in zip(step.edges, edges, nodes[i].apply(received), strict=False):
            if edge is None or grad is None:
                continue
            if edge.__class__ is not Way:
                add(edge, grad, nodes[i], (edges, real))
            elif needs is None or needs[edge.number]:
                target, nr = real
                shape, dtype = target.outputs[nr][:2] if isinstance(target, Node) else _form(target)
                found[edge.number] = engine.fit(grad, shape, dtype, nodes[i], (edges, real))
    return found


def _form(leaf: Tensor) -> tuple:
    return leaf._array.shape, leaf._array.dtype
