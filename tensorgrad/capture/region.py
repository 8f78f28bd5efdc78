"""Regions: functions that `torch.compile` was given. Calls that do the same again are run by a plan.

For each kind of arguments, calls go through stages. All are eager, and a plan stands in only after the last:

1. *watched*: which Python code runs, and does it call anything whose effects are not known (capture/watch.py)?
2. *compared*: is the state of the program that this code can reach the same afterwards (capture/state.py)? Code whose
   instructions change nothing that outlives the call goes without this stage.
3. *traced*: what does the call do on arrays (capture/trace.py)?
4. *traced again*: was it the same? Then the trace becomes a plan, which runs from where the call began, and everything
   that it leaves behind is compared to the bit with what the call left behind (capture/memory.py).

From then on the plan runs if the state of the program is as it was. Whatever is not understood refuses the plan, and
the region stays eager; `explain` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorgrad.autograd.anomaly import ANOMALY
from tensorgrad.capture import state as states
from tensorgrad.capture.apart import Apart
from tensorgrad.capture.compiled_node import Run
from tensorgrad.capture.guards import arguments_check
from tensorgrad.capture.history import Refused
from tensorgrad.capture.memory import Memory, bits, described
from tensorgrad.capture.plan import Plan
from tensorgrad.capture.running import RUNNING, PlanError, modes, modes_of_thread
from tensorgrad.capture.state import State
from tensorgrad.capture.trace import Trace, difference
from tensorgrad.capture.values import tensors as tensors_in
from tensorgrad.capture.watch import Watch
from tensorgrad.nn import Module
from tensorgrad.rows.switches import BESIDE_INFERENCE, LOCAL, OBSERVERS
from tensorgrad.system import forks
from tensorgrad.tensor import PLAIN, VIEW, Tensor

LIMIT = 8  # plans of a region; more kinds of calls run eagerly
ATTEMPTS = 4  # how often a call may differ from the one before until the region stays eager

WATCHED, COMPARED, TRACED, AGAIN = range(4)


class GraphBreak(RuntimeError):
    """What `fullgraph=True` raises where a region cannot be one plan."""


ALL: list[Any] = []  # weak references to all regions
MADE: list[Callable] = []  # functions that are told of each new region


class _Kind:
    """What is known about calls with arguments of one kind."""

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects  # arguments that are told apart by identity
        self.plans: list[tuple[State, Plan]] = []
        self.reason = ""
        self.restart()
        self.attempts = 0

    def restart(self) -> None:
        """Begins anew."""
        self.stage = WATCHED
        self.watch: Watch | None = None
        self.trace: Trace | None = None


class Region(states.Region):
    """A function that is run by plans where that is known to be the same.

    Attributes:
        function: what it stands for.
        kinds: by a description of the arguments and modes, what is known about such calls.
    """

    def __init__(self, function: Callable, fullgraph: bool = False, limit: int = LIMIT, backend: Any = None) -> None:
        self.function, self.fullgraph, self.limit, self.backend = function, fullgraph, limit, backend
        self._lock = forks.lock()
        self.reset()

    def reset(self) -> None:
        """Forgets all plans."""
        self.kinds: dict[Any, _Kind] = {}
        self.plans = 0
        self._ready: list[tuple[Callable, Callable, Plan]] = []  # plans whose guards are written out (guards.py)
        self.notes: dict[str, None] = {}  # why calls ran eagerly that no kind says it for

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, or runs the plan."""
        if BESIDE_INFERENCE:
            self._note_modes()
            return self.function(*args, **kwargs)
        if RUNNING.recording or RUNNING.stance == "force_eager":
            return self.function(*args, **kwargs)
        for fits, same, plan in self._ready:
            found = fits(args, kwargs)
            if found is not None:
                try:
                    if not same() or not (plan.apart is None or plan.apart(found)):
                        continue
                except (KeyError, IndexError, ValueError):
                    continue
                return plan.run(*found)
        try:
            key, tensors, objects = kind_of(args, kwargs)
        except Refused as refused:
            self._refuse(None, str(refused))
            return self.function(*args, **kwargs)
        kind = self.kinds.get(key)
        if kind is None:
            if self.plans + len(self.kinds) >= 2 * self.limit or self.plans >= self.limit:
                self.notes.setdefault(f"there are {self.plans} plans for other calls, which is the limit")
                return self.function(*args, **kwargs)
            kind = self.kinds[key] = _Kind(objects)
        for state, plan in kind.plans:
            if state.same() and (plan.apart is None or plan.apart(tensors)):
                return self._checked(state, plan, tensors, args, kwargs) if RUNNING.check else plan.run(*tensors)
        if kind.reason:
            return self.function(*args, **kwargs)
        if not self._lock.acquire(False):  # another thread is about to
            return self.function(*args, **kwargs)
        RUNNING.recording = True
        try:
            before = _switched()
            result = self._advance(kind, args, kwargs)
            if _switched() != before:
                kind.plans.clear()
                self._ready = []
                self._refuse(kind, "it leaves a mode or a setting of this library changed")
            return result
        finally:
            RUNNING.recording = False
            self._lock.release()

    # --- the stages ---

    def _advance(self, kind: _Kind, args: tuple, kwargs: dict) -> Any:
        """Runs the function, and finds out more about it."""
        if kind.plans and kind.stage == WATCHED and self.plans >= self.limit:
            self._refuse(kind, f"its guards failed, and there are {self.plans} plans already")
            return self.function(*args, **kwargs)
        if kind.stage == WATCHED:
            with Watch() as watch:
                result = self.function(*args, **kwargs)
            if watch.reason:
                self._refuse(kind, watch.reason)
            kind.watch, kind.stage = watch, _after_watching(watch)
            return result
        assert kind.watch is not None
        try:
            state = State([self.function, *kind.objects], kind.watch)
            _told_apart(kind_of(args, kwargs)[1], state)
        except Refused as refused:
            self._refuse(kind, str(refused), refused.limited)
            return self.function(*args, **kwargs)
        if kind.stage == COMPARED:
            return self._compare(kind, state, args, kwargs)
        return self._trace(kind, state, args, kwargs)

    def _compare(self, kind: _Kind, state: State, args: tuple, kwargs: dict) -> Any:
        with Watch() as watch:
            result = self.function(*args, **kwargs)
        if watch.reason:
            self._refuse(kind, watch.reason)
            return result
        if not self._same_code(kind, watch):
            return result
        changed = state.changed()
        if changed:
            self._refuse(kind, f"it changes {changed}")
        kind.stage = TRACED
        return result

    def _same_code(self, kind: _Kind, watch: Watch) -> bool:
        """Whether only such code ran as ran before; if not, takes note of it, to begin anew."""
        assert kind.watch is not None
        known = kind.watch
        if (
            watch.codes.keys() <= known.codes.keys()
            and watch.any_name <= known.any_name
            and watch.differentiates <= known.differentiates
        ):
            return True
        watch.codes |= known.codes
        watch.any_name |= known.any_name
        watch.differentiates |= known.differentiates
        kind.watch, kind.stage, kind.trace = watch, _after_watching(watch), None
        self._differed(kind, "it runs other Python code each time")
        return False

    def _differed(self, kind: _Kind, why: str) -> None:
        kind.attempts += 1
        if kind.attempts > ATTEMPTS:
            self._refuse(kind, why)

    def _trace(self, kind: _Kind, state: State, args: tuple, kwargs: dict) -> Any:
        inputs = kind_of(args, kwargs)[1]
        every = {**state.tensors, **{id(t): t for t in inputs}}
        before = Memory(every.values(), state.optimizers, state.generators)
        watched = [t for t in state.tensors.values() if t._requires_grad]
        try:
            with Watch() as watch:
                trace = Trace(self.function, args, kwargs, watched)
        except Exception as error:
            before.restore()
            result = self.function(*args, **kwargs)  # if that raises an error, it is the program's own
            self._refuse(kind, f"it cannot be recorded: {error}")
            return result
        changed = state.changed()
        if watch.reason or changed:
            self._refuse(kind, watch.reason or f"it changes {changed}")
        elif trace.refused is not None:
            self._refuse(kind, str(trace.refused), trace.refused.limited)
        elif trace.history is not None and any(id(leaf) not in every for leaf in trace.history.leaves()):
            self._refuse(kind, "the history of its result ends in a leaf that its code does not name: one that it made")
        elif self._same_code(kind, watch):
            why = "" if kind.trace is None else difference(kind.trace, trace)
            if why:
                self._differed(kind, why)
            if kind.trace is None or why:
                kind.trace = trace
            else:
                self._plan(kind, state, before, trace, every, args, kwargs)
        result = trace.result
        trace.forget_results()
        return result

    def _plan(
        self, kind: _Kind, state: State, before: Memory, trace: Trace, every: dict[int, Tensor], args: tuple,
        kwargs: dict,
    ) -> None:  # fmt: skip
        """Makes a plan of a trace, runs it from where the call began, and keeps it if nothing differs."""
        grads = {id(t._grad) for t in state.tensors.values() if t._grad is not None}
        grads |= {id(g) for *_, g in before._saved if g is not None}
        if trace.history is not None and self.backend is not None:
            return self._refuse(kind, "a backend computes no gradients, and backward() runs outside of it", True)
        if trace.inputs and any(id(t) not in every for t in trace.inputs):
            return self._refuse(kind, "a tensor among its arguments is not found again")
        if any(id(t) not in every and id(t) not in grads for t in trace.lifted()):
            return self._refuse(kind, "it uses a tensor that cannot be reached from what its code names")
        after = Memory(every.values(), state.optimizers, state.generators)
        try:
            plan = Plan(trace, _written(before, trace))
            kept = None if trace.history is None else [bits(a) for a in trace.history.kept()]
            why, _ = _ran_alike(plan.listened, trace.inputs, trace.result, before, after, every, state, kept)
            for run in plan.with_chains() if not why else ():
                other = _ran_alike(run, trace.inputs, trace.result, before, after, every, state, kept)[0]
                if other:
                    plan.without_chains(other)
                    break
        except Refused as refused:
            return self._refuse(kind, str(refused), refused.limited)
        if why:
            return self._refuse(kind, f"its plan would not do the same: {why}")
        state.gradients_count = any(e.kind in ("grad", "step") for e in trace.effects) or "grad" in state._names
        if self.backend is not None:
            plan.use(self.backend, trace)
        writes = any(e.kind in ("write", "grad", "step") for e in trace.effects)
        if plan.launches.with_grad or (writes and trace.inputs):
            own = [t._array for t in state.tensors.values() if all(t is not given for given in trace.inputs)]
            plan.apart = Apart(own, plan.launches.with_grad)
        kind.plans.append((state, plan))
        self.plans += 1
        fits = None if RUNNING.check else arguments_check(args, kwargs, modes_of_thread())
        if fits is not None:
            self._ready.append((fits, state.quick, plan))
        kind.restart()
        kind.attempts = 0
        return None

    def _checked(self, state: State, plan: Plan, inputs: list[Tensor], args: tuple, kwargs: dict) -> Any:
        """Runs both, the program and the plan. Raises: PlanError if they differ."""
        every = {**state.tensors, **{id(t): t for t in inputs}}
        before = Memory(every.values(), state.optimizers, state.generators)
        RUNNING.recording = True
        try:
            result = self.function(*args, **kwargs)
        finally:
            RUNNING.recording = False
        after = Memory(every.values(), state.optimizers, state.generators)
        why, found = state.changed(), None
        if why:
            why = f"it changes {why}"
        else:
            why, found = _ran_alike(plan.run, inputs, result, before, after, every, state)
        if why:
            raise PlanError(f"torch.compile: the plan of {name_of(self.function)} is not what its program is: {why}")
        return result if plan.history is None else found

    def _refuse(self, kind: _Kind | None, reason: str, limited: bool = False) -> None:
        if kind is None:
            self.notes.setdefault(reason)
        elif not kind.reason:
            kind.reason = reason
            kind.watch = kind.trace = None
        if self.fullgraph and not limited:
            raise GraphBreak(f"torch.compile(fullgraph=True): {name_of(self.function)} cannot be one plan: {reason}")

    # --- what can be seen ---

    def _note_modes(self) -> None:
        """Notes what else than inference mode is on, if another thread has not just switched it off."""
        if on := dict.fromkeys(BESIDE_INFERENCE):
            self.notes.setdefault(f"it was called with {', '.join(on)} on")

    @property
    def settled(self) -> bool:
        """Whether each kind of call so far has a plan, or a reason not to have one."""
        return all(kind.plans or kind.reason for kind in self.kinds.values())

    def explain(self) -> str:
        """What the region does, in words: its plans, their launches and guards, what stays eager, and why."""
        lines = [name_of(self.function)]
        for key, kind in self.kinds.items():
            shapes = [f"{list(part[1])} {part[3]}" for part in _tensor_parts(key)]
            lines.append(f"  called with {', '.join(shapes) or 'no tensors'}:")
            for state, plan in kind.plans:
                lines += [f"    {line}" for line in ("a plan", *plan.explain().splitlines(), *state.guards())]
            if kind.reason:
                lines.append(f"    eager: {kind.reason}")
            elif not kind.plans:
                lines.append(f"    eager so far: {('watched', 'compared', 'traced', 'traced again')[kind.stage]} next")
        lines += [f"  eager: {note}" for note in self.notes]
        return "\n".join(lines)


def _ran_alike(
    run: Callable, inputs: list[Tensor], result: Any, before: Memory, after: Memory, every: dict[int, Tensor],
    state: State, kept: list[Any] | None = None,
) -> tuple[str, Any]:  # fmt: skip
    """Runs a plan from `before`, and goes back to `after`.

    Returns what differs from `after`, from `result` and from what its nodes saved (`kept`), in words; and the result.
    """
    expected = described(result)
    before.restore()
    try:
        made = run(*inputs)
        found = described(made)
        then = Memory(every.values(), state.optimizers, state.generators)
    except Exception as error:
        after.restore()
        return f"{type(error).__name__}: {error}", None
    why = after.difference(then)
    runs = [r for t in tensors_in(made) if t._edge is not None for r in t._edge[0].args if isinstance(r, Run)]
    if runs and kept is not None and [bits(a) for a in runs[0].arrays] != kept:
        why = "it keeps other values for the backward pass"
    after.restore()
    if found != expected:
        return f"it returns {_shown(found, expected)}", made
    return why, made


def _after_watching(watch: Watch) -> int:
    """The next stage.

    Calls that may change Python's objects are compared first: one that cannot be recorded runs again, and its changes
    would happen twice.
    """
    return COMPARED if watch.may_change() else TRACED


def _told_apart(inputs: list[Tensor], state: State) -> None:
    """Raises: Refused if an argument is what the program reaches by itself: a graph could not say which it used."""
    for tensor in inputs:
        if any(_overlap(tensor._array, other._array) for other in state.tensors.values()):
            raise Refused("an argument shares memory with a tensor that it reaches by itself")
    if _share_memory(inputs, {id(t): t for t in (*state.tensors.values(), *inputs)}):
        raise Refused("an argument or a gradient shares memory with another tensor that it uses", True)


def _share_memory(inputs: list[Tensor], every: dict[int, Tensor]) -> bool:
    """Whether an argument or a gradient overlaps another tensor: a trace takes one for the other, and they may part."""
    grads = {id(t._grad): t._grad for t in every.values() if t._grad is not None}
    if any(id(tensor) in grads for tensor in inputs):
        return True
    for tensor in (*inputs, *grads.values()):
        others = [t for t in (*every.values(), *grads.values()) if t is not tensor]
        if any(_overlap(tensor._array, other._array) for other in others):
            return True
    return len(grads) < sum(t._grad is not None for t in every.values())


def _shown(found: Any, expected: Any) -> str:
    """Where two described results differ."""
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected):
        for a, b in zip(found, expected, strict=True):
            if a != b:
                return _shown(a, b)
    return f"{str(found)[:60]} in place of {str(expected)[:60]}"


def _written(before: Memory, trace: Trace) -> list[tuple[Tensor, int]]:
    """The tensors from outside whose memory was written to, and how often; one for each memory."""
    wanted = {id(t) for t in (*trace.inputs, *trace.lifted())}
    found, storages = [], set()
    for key, (tensor, version) in before.versions().items():
        storage = tensor._storage
        if key in wanted and version is not None and storage.version != version and id(storage) not in storages:
            storages.add(id(storage))
            found.append((tensor, storage.version - version))
    return found


# --- kinds of calls --------------------------------------------------------------------------------------------------


def kind_of(args: tuple, kwargs: dict) -> tuple[Any, list[Tensor], list[Any]]:
    """A description of arguments, the tensors in them, and the objects in it that are told apart by identity.

    Raises: Refused for arguments that plans cannot tell apart.
    """
    tensors: list[Tensor] = []
    objects: list[Any] = []
    parts = [_part(a, tensors, objects) for a in args]
    if kwargs:
        parts.append(("keywords", *[(name, _part(a, tensors, objects)) for name, a in kwargs.items()]))
    if len(tensors) > 1:
        for i, t in enumerate(tensors):
            for u in tensors[:i]:
                if t is u or (t._memory is not None and t._memory is u._memory) or _overlap(t._array, u._array):
                    raise Refused("its arguments share memory")
    return (modes(), *parts), tensors, objects


def _switched() -> tuple:
    """What is switched on in this thread and in the process; other threads have modes of their own."""
    local = LOCAL.autocast, LOCAL.function_modes, LOCAL.dispatch_modes, LOCAL.transforms, LOCAL.saved_hooks_refused
    return modes(), local, list(OBSERVERS), ANOMALY.enabled


def _overlap(a: Any, b: Any) -> bool:
    return a.__class__ is b.__class__ is np.ndarray and np.may_share_memory(a, b)


def _part(value: Any, tensors: list[Tensor], objects: list[Any]) -> Any:
    cls = value.__class__
    if cls in PLAIN:
        tensors.append(value)
        array, requires_grad = value._array, value._requires_grad
        if requires_grad is VIEW:
            requires_grad = value.requires_grad
        if value._hooks is not None:
            raise Refused("an argument has a hook")
        if array.__class__ is not np.ndarray:
            raise Refused("an argument is not on the CPU, or not strided; plans are for arrays on the CPU so far", True)
        if value.__dict__:
            raise Refused("an argument is a tensor with attributes of its own")
        memory = value._memory
        inference = memory is not None and memory.version is None
        return cls, array.shape, array.strides, array.dtype, requires_grad, inference, value._grad is None
    if cls is int or cls is bool or cls is str or value is None:
        return cls, value
    if cls is float or cls is complex or cls is bytes:
        return cls, repr(value)
    if cls is tuple or cls is list:
        return (cls, *[_part(v, tensors, objects) for v in value])
    if cls is dict:
        return (cls, *[(_part(k, tensors, objects), _part(v, tensors, objects)) for k, v in value.items()])
    if isinstance(value, Tensor):
        raise Refused(f"an argument is a {cls.__name__}, a class that overrides ops")
    if (
        cls.__module__.startswith("numpy")
        or hasattr(value, "__dataclass_fields__")
        or isinstance(value, tuple | list | dict)
    ):
        raise Refused(f"an argument is a {cls.__module__}.{cls.__qualname__}")
    objects.append(value)
    return cls, id(value)


def _tensor_parts(key: Any) -> list[Any]:
    found = []
    for part in key:
        if isinstance(part, tuple):
            if len(part) == 7 and isinstance(part[0], type) and part[0] in PLAIN:
                found.append(part)
            else:
                found += _tensor_parts(part)
    return found


def name_of(function: Any) -> str:
    """The name of a function or module, and where it is."""
    if getattr(function, "__func__", None) is Module._call_eagerly:
        function = function.__self__
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"
