"""A plan: what stands for a region's function once two calls of it have done the same.

Its launches (capture/launches.py) are written out as one Python function without tensors, dispatch or autograd: kernels
are called on arrays, in the order of the program, so the bits are those of the program. Arrays are dropped after their
last use. At its ends it meets the world of tensors: it takes the arrays of its arguments, and makes tensors of results
and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorgrad.autograd.graph import FREED, Node, next_sequence_nr
from tensorgrad.capture import epilogues
from tensorgrad.capture.apart import Apart
from tensorgrad.capture.chains import FULL, Chains
from tensorgrad.capture.compiled_node import in_graph, node_of_run
from tensorgrad.capture.history import Refused, used_up
from tensorgrad.capture.launches import Launches
from tensorgrad.capture.lifetimes import dropped
from tensorgrad.capture.recomputed import recomputed
from tensorgrad.capture.trace import Trace, reads
from tensorgrad.capture.values import mapped
from tensorgrad.dispatch.codegen import function_of
from tensorgrad.fx import GraphModule
from tensorgrad.rows.switches import GRAD
from tensorgrad.storage.stubs import STORAGES, Storage
from tensorgrad.tensor import VIEW, Tensor, share

_PLAIN = (int, float, bool, complex, str, type(None))


class Plan:
    """Runs what was traced, given the tensors among the arguments.

    Attributes:
        run: the function: input tensors -> result.
        launches: what it calls (see `Launches`).
        source: the text of `run`.
        graph: what was traced.
        written: (tensor from outside, how often its memory is written).
        inputs_written: the same of inputs, by number.
        history: the graph of autograd behind its results, if a backward pass may follow.
        apart: whether arguments share no memory with what it knows; None if it writes to nothing from outside.
        one_by_one: why its launches are not run as chains, if they could be.
    """

    apart: Apart | None = None
    one_by_one = ""

    def __init__(self, trace: Trace, written: list[tuple[Tensor, int]]) -> None:
        """`written` says how much the versions of memory from outside grew.

        Raises: Refused.
        """
        found = reads(trace)
        if found:
            raise Refused(f"it {found[0]}")
        for tensor in trace.inputs:
            if tensor._array.__class__ is not np.ndarray:
                raise Refused(f"an argument is on the device {tensor.device}; plans run on the CPU so far", True)
        self.graph, self._attributes = trace.graph, trace.attributes
        self.history = trace.history
        self.launches = Launches(trace)
        self.written = [(t, n) for t, n in written if all(t is not i for i in trace.inputs)]
        self.inputs_written = [(k, n) for t, n in written for k, i in enumerate(trace.inputs) if i is t]
        self._results = _Results(trace, self.launches)
        self._head, self._tail = self._ends()
        tail = "\n".join(self._tail)
        self.launches.launches = epilogues.joined(self.launches, tail)
        self.launches.launches = recomputed(self.launches, tail)
        self._names = {**self.launches.values, **self._results.values, "GRAD": GRAD}
        self._use(self._each(), self._names)
        self._chains: Chains | None = None

    def _ends(self) -> tuple[list[str], list[str]]:
        """The lines before and after the launches."""
        launches = self.launches
        head = [f"v_in{i} = t_in{i}._array" for i in range(len(launches.inputs))]
        for n, (tensor, _) in enumerate(self.written):
            launches.values[f"w{n}"] = tensor
        written = [(f"w{n}", by) for n, (_, by) in enumerate(self.written)]
        written += [(f"t_in{k}", by) for k, by in self.inputs_written]
        for n, (name, _) in enumerate(written):
            head += [f"m{n} = {name}._memory", f"if m{n} is None: m{n} = {name}._storage", f"version{n} = m{n}.version"]
        tail = [f"m{n}.version = version{n} + {by}" for n, (_, by) in enumerate(written)]
        return head, tail + self._results.lines

    def _use(self, body: list[str], names: dict[str, Any], pure: bool = False) -> None:
        """Makes the function that runs these lines; `pure`: none of them computes on tensors."""
        lines = dropped(body, self._results.uses)
        if not pure:
            lines = ["before, GRAD.enabled = GRAD.enabled, False", "try:", *(f"    {line}" for line in lines)]
            lines += ["finally:", "    GRAD.enabled = before"]
        lines = [*self._head, *lines, *self._tail]
        inputs = ", ".join(f"t_in{i}" for i in range(len(self.launches.inputs)))
        self.source = "\n".join([f"def plan({inputs}):", *(f"    {line}" for line in lines), ""])
        self.run = function_of(self.source, names, {"__name__": "tensorgrad.plan"}, "plan")

    def _each(self) -> list[str]:
        return [launch.text for launch in self.launches.launches] or ["pass"]

    # --- chains ---

    def listened(self, *inputs: Tensor) -> Any:
        """Runs the plan, and finds out which of its launches can be chains (see capture/chains.py)."""
        names: dict[str, Any] = {**self._names, "__name__": "tensorgrad.plan"}
        names |= {f"t_in{i}": tensor for i, tensor in enumerate(inputs)}
        exec("\n".join(self._head), names)
        outside = {name: v for name, v in names.items() if name[0] in "ak" or name.startswith("v_in")}
        chains = Chains(self._names, outside)
        before, GRAD.enabled = GRAD.enabled, False
        try:
            for launch in self.launches.launches:
                chains.run(launch, names)
        finally:
            GRAD.enabled = before
        *tail, result = self._tail
        exec("\n".join([*tail, result.replace("return ", "result_of_plan = ", 1)]), names)
        self._chains = chains if chains.found() else None
        if self._chains is not None:
            self._body = chains.text("\n".join(self._tail))
        return names["result_of_plan"]

    def with_chains(self) -> Iterator[Callable]:
        """Yields the functions whose results and effects have to be those of the program for chains to be used.

        The memory that they make is full of nan. In the second no chain fits, so that its ops are called one by one.
        """
        if self._chains is not None:
            for more in ({}, {"replay": lambda *given: False}):
                self._use(self._body, self._chains.names | FULL | more, self._chains.pure)
                yield self.run
            self._use(self._body, self._chains.names, self._chains.pure)

    def without_chains(self, why: str) -> None:
        """Goes back to the launches one by one."""
        self._chains, self.one_by_one = None, why
        self._use(self._each(), self._names)

    def graph_module(self) -> GraphModule:
        """The graph that it was made of, as a module that can be called."""
        used = {str(n.target) for n in self.graph.nodes if n.op == "get_attr"}
        lifted = {name: value for name, value in self._attributes.items() if name in used}
        return GraphModule(lifted, self.graph, "Recorded")

    def use(self, backend: Any, trace: Trace) -> None:
        """Has a backend's function compute what the launches would."""
        compiled = backend(self.graph_module(), list(trace.inputs))
        places = {id(t): i for i, t in reversed(list(enumerate(trace.returned)))}
        template = mapped(trace.result, lambda t: t)

        def run(*inputs: Tensor) -> Any:
            results = compiled(*inputs)
            return mapped(template, lambda t: results[places[id(t)]])

        self.run = run

    def explain(self) -> str:
        """The launches in words, one a line, and what is written."""
        chains = {} if self._chains is None else self._chains.numbers
        lines = [f"{len(self.launches.launches)} launches:", *self.launches.shown(chains)]
        lines += [f"    one by one: as chains, {self.one_by_one}"] if self.one_by_one else []
        lines += [f"    writes to a tensor of shape {list(t.shape)}" for t, _ in self.written]
        if self.history is not None:
            lines.append(f"keeps {len(self.history.slots)} arrays for the backward pass")
            for plan in filter(None, self.history.backward_plans.values()):
                chains = {} if plan.chains is None else plan.chains.numbers
                lines += [f"a backward pass of {len(plan.launches.launches)} launches:", *plan.launches.shown(chains)]
                lines += [f"    one by one: as chains, {plan.one_by_one}"] if plan.one_by_one else []
        return "\n".join(lines)


class _Results:
    """The lines that make the tensors of a result, and the result."""

    def __init__(self, trace: Trace, launches: Launches) -> None:
        self.trace, self.launches = trace, launches
        self.lines: list[str] = []
        self.values: dict[str, Any] = {
            "share": share, "freed": freed, "storage_of": storage_of, "in_graph": in_graph,
            "node_of_run": node_of_run, "HISTORY": trace.history, "VIEW": VIEW,
        }  # fmt: skip
        self._storages: dict[Any, str] = {}
        self._bases: dict[int, str] = {}
        self._alive: list[Tensor] = []
        self._owned: list[tuple[Any, Any]] = []  # the node of the memory, and an array in it
        self._owners = [node if base is None else base for node, base in zip(trace.outputs, trace.bases, strict=True)]
        names: dict[int, str] = {}
        if trace.history is not None:
            kept = "".join(f"{launches.of[slot]}, " for slot in trace.history.slots)
            needed = None in trace.history.ends  # are there gradients for them?
            given = "".join(f"t_in{i}, " for i in range(len(trace.inputs)) if needed)
            self.lines.append(f"node = node_of_run(HISTORY, [{kept}], ({given}))")
        for number, tensor in enumerate(trace.returned):
            if id(tensor) not in names:
                names[id(tensor)] = self._tensor(number, tensor)
        self._check_memory()
        self._keep_versions()
        self._owned, self._alive = [], []  # of the call that was recorded: its results are the program's alone
        self.lines.append(f"return {self._made(trace.result, names)}")
        self.uses = "\n".join(self.lines)

    def _tensor(self, number: int, tensor: Tensor) -> str:
        """Adds the lines for one tensor; returns its name."""
        for k, given in enumerate(self.trace.inputs):
            if tensor is given:
                return f"t_in{k}"
        for value in self.trace.lifted():
            if tensor is value:
                return self.launches.constant(tensor, "t")
        if tensor.__class__ is not Tensor:
            raise Refused(f"it returns a {type(tensor).__name__}")
        node, base, name = self.trace.outputs[number], self.trace.bases[number], f"r{number}"
        array, memory = self.launches.of[node], tensor._memory
        owner = node if base is None else base
        self._owned.append((owner, tensor._array))
        if tensor.requires_grad and self._is_freed(tensor):
            if base is not None:
                raise Refused("it returns a view that requires grad")
            self._freed(number, tensor)
            self.lines.append(f"{name} = freed({array}, op{number}, {tensor._edge[1]}, outputs{number})")  # type: ignore[index]
            return name
        storage = self._storage(owner, number, memory)
        if tensor.requires_grad:
            self._with_history(number, tensor, base, storage)
        else:
            self.lines.append(f"{name} = share({array}, {storage})")
        return name

    def _storage(self, owner: Any, number: int, memory: Any) -> str:
        """The name of the storage of a result's memory; "None" for one that is made when it is first asked for."""
        alone = self.trace.bases[number] is None and self._owners.count(owner) == 1
        if alone and self.trace.history is None and (memory is None or memory.version == 0):
            self._storages[owner] = "None"
        if owner not in self._storages:
            self._storages[owner] = f"s{number}"
            self.lines.append(f"s{number} = storage_of({self.launches.of[owner]})")
            if memory is not None and memory.version != 0:
                self.lines.append(f"s{number}.version = {memory.version}")
        return self._storages[owner]

    def _is_freed(self, tensor: Tensor) -> bool:
        return self.trace.history is None or not self.trace.history.knows(tensor)

    def _with_history(self, number: int, tensor: Tensor, base: Any, storage: str) -> None:
        """Adds the lines for a tensor whose gradient a backward pass outside may compute."""
        history: Any = self.trace.history
        name, marker = f"r{number}", "VIEW" if tensor._requires_grad is VIEW else "True"
        array = self.launches.of[self.trace.outputs[number]]
        self.lines.append(f"{name} = in_graph({array}, {storage}, node, {history.place(tensor)}, {marker})")
        if base is None:
            return
        whole, steps, version, recorded = tensor._view  # type: ignore[misc]
        if version != tensor._storage.version or not _plain_steps(steps):
            raise Refused("it returns a view that was written to, or is made by an index")
        if id(whole) not in self._bases:
            self._bases[id(whole)] = f"b{number}"
            self._alive.append(whole)
            made = f"({self.launches.of[base]}, {storage}"
            made = f"in_graph{made}, node, {history.place(whole)})" if whole.requires_grad else f"share{made})"
            self.lines.append(f"b{number} = {made}")
        self.values[f"steps{number}"] = steps
        self.values[f"made{number}"] = recorded
        view = f"({self._bases[id(whole)]}, steps{number}, {storage}.version, made{number})"
        self.lines.append(f"{name}._view = {view}")

    def _keep_versions(self) -> None:
        """Adds the line by which the node of the results finds what was written to since."""
        history = self.trace.history
        if history is None:
            return
        parts = []
        for slot, owner in enumerate(history.memory):
            if isinstance(owner, Tensor):
                known = [f"t_in{k}" for k, t in enumerate(self.trace.inputs) if t is owner]
                storage = f"{known[0] if known else self.launches.constant(owner, 't')}._storage"
            elif owner is not None:
                storage = self._storages[owner]
            else:
                continue
            parts.append(f"({slot}, m{slot} := {storage}, m{slot}.version), ")
        self.lines.append(f"node.args[0].checked = ({''.join(parts)})")

    def _freed(self, number: int, tensor: Tensor) -> None:
        """Raises: Refused unless the graph of a result has been used up by a backward pass."""
        node: Any = None if tensor._edge is None else tensor._edge[0]
        if node is None:
            raise Refused("it returns a new leaf that requires grad")
        if not used_up(node):
            raise Refused("a part of its result's graph was used up by a backward pass within it")
        self.values[f"op{number}"], self.values[f"outputs{number}"] = node.op, node.outputs

    def _check_memory(self) -> None:
        """Raises: Refused if results share memory with each other, or with what comes from outside."""
        outside = [t._array for t in (*self.trace.inputs, *self.trace.lifted())]
        for i, (owner, array) in enumerate(self._owned):
            if any(np.may_share_memory(array, other) for other in outside):
                raise Refused("it returns a view of an argument, a parameter or a buffer")
            for other_owner, other in self._owned[:i]:
                if other_owner is not owner and np.may_share_memory(array, other):
                    raise Refused("two of its results share memory")

    def _made(self, value: Any, names: dict[int, str]) -> str:
        """The expression of a result."""
        if isinstance(value, Tensor):
            return names[id(value)]
        cls = value.__class__
        if cls in _PLAIN:
            if cls in (int, bool, str, type(None)):
                return repr(value)
            key = f"c{len(self.values)}"
            self.values[key] = value
            return key
        if cls in (list, tuple):
            inner = "".join(f"{self._made(v, names)}, " for v in value)
            return f"[{inner}]" if cls is list else f"({inner})"
        if cls is dict and all(k.__class__ is str for k in value):
            return "{" + "".join(f"{k!r}: {self._made(v, names)}, " for k, v in value.items()) + "}"
        return self._mapped(value, names)

    def _mapped(self, value: Any, names: dict[int, str]) -> str:
        """A named tuple, a dataclass or the like: made as when it was recorded, of other tensors."""
        order: list[str] = []
        marks: dict[int, int] = {}

        def mark(tensor: Tensor) -> Tensor:
            made = share(np.empty(0), None)
            marks[id(made)] = len(order)
            order.append(names[id(tensor)])
            return made

        template = mapped(value, mark)
        if not order or len(list(_leaves(template))) != len(order):
            raise Refused(f"it returns a {type(value).__name__}")

        def made(*given: Tensor) -> Any:
            return mapped(template, lambda t: given[marks[id(t)]])

        key = f"c{len(self.values)}"
        self.values[key] = made
        return f"{key}({', '.join(order)})"


def _plain_steps(steps: Any) -> bool:
    """Whether the steps from a base to a view are the same in each run."""
    while steps is not None:
        steps, _, args = steps
        if any(isinstance(a, Tensor) for a in args) or _leaves(args):
            return False
    return True


def _leaves(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    mapped(value, found.append)
    return found


# --- what the texts call ---------------------------------------------------------------------------------------------


def storage_of(array: Any) -> Storage:
    """The storage of memory that a plan made."""
    return STORAGES[array.__class__].of(array)


def freed(array: Any, op: Any, number: int, outputs: tuple) -> Tensor:
    """A result whose graph was used up by a backward pass within the region."""
    node = object.__new__(Node)
    node.op, node.edges, node.saved, node.args, node.hooks = op, (), FREED, (), None
    node.outputs, node.sequence_nr = outputs, next_sequence_nr()
    made = share(array, None)
    made._edge, made._requires_grad = (node, number), True
    return made
