"""Gradient checkpointing: discard the intermediate results of a part of the model and recompute them in backward.

This trades time for memory: a checkpointed call keeps only its arguments. There are two variants, as in PyTorch:

- `use_reentrant=False` records the graph as usual, but its nodes save empty slots instead of tensors
  (`saved_tensors_hooks`). When backward reads the first slot, the function runs again and fills all of them.
- `use_reentrant=True` records one node for the whole call, whose backward runs the function and its backward.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable

from tensorgrad.amp import autocast_state
from tensorgrad.autograd import engine
from tensorgrad.autograd.function import Function
from tensorgrad.autograd.gradients import backward
from tensorgrad.autograd.modes import GRAD, enable_grad, no_grad
from tensorgrad.autograd.saved_tensor_hooks import saved_tensors_hooks
from tensorgrad.random import default_generators
from tensorgrad.rows.switches import LOCAL
from tensorgrad.tensor import Tensor
from tensorgrad.utils.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

_TIP = (
    "\nTip: To see a more detailed error message, either pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)` "
    "or wrap the code block with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):`.\n"
)


class CheckpointError(RuntimeError):
    """Raised when the recomputation of a checkpointed function differs from its first run.

    >>> from tensorgrad.utils.checkpoint import checkpoint
    >>> calls = []
    >>> def forgetful(x):
    ...     calls.append(x)
    ...     return x.sin().cos() if len(calls) == 1 else x.exp()
    >>> x = torch.ones(1, requires_grad=True)
    >>> checkpoint(forgetful, x, use_reentrant=False).backward()
    Traceback (most recent call last):
        ...
    tensorgrad.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was ...
    """


class _Settings:
    """Process-wide overrides of `checkpoint`'s arguments; None means no override."""

    early_stop: bool | None = None
    debug: bool | None = None


@contextlib.contextmanager
def _set(name: str, value):
    before = getattr(_Settings, name)
    setattr(_Settings, name, value)
    try:
        yield
    finally:
        setattr(_Settings, name, before)


def set_checkpoint_early_stop(enable: bool):
    """Returns a context manager that overrides `early_stop` for the checkpoints made inside it.

    >>> from tensorgrad.utils.checkpoint import checkpoint, set_checkpoint_early_stop
    >>> x = torch.ones(1, requires_grad=True)
    >>> with set_checkpoint_early_stop(False):
    ...     checkpoint(torch.exp, x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2.7183])
    """
    return _set("early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None):
    """Returns a context manager that overrides `debug` for the checkpoints made inside it.

    >>> from tensorgrad.utils.checkpoint import checkpoint, set_checkpoint_debug_enabled
    >>> x = torch.ones(1, requires_grad=True)
    >>> with set_checkpoint_debug_enabled(True):
    ...     checkpoint(torch.exp, x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2.7183])
    """
    return _set("debug", enabled)


def noop_context_fn():
    """The default `context_fn`: returns two context managers that do nothing.

    >>> first, second = torch.utils.checkpoint.noop_context_fn()
    >>> with first, second:
    ...     torch.ones(2)
    tensor([1., 1.])
    """
    return contextlib.nullcontext(), contextlib.nullcontext()


def get_device_states(*args) -> tuple[list[int], list[Tensor]]:
    """Returns the GPUs that the tensors among the arguments are on, and the states of their random number generators.

    The state of the CPU's generator is `torch.get_rng_state()`.

    >>> torch.utils.checkpoint.get_device_states(torch.ones(2), "text")
    ([], [])
    """
    from tensorgrad import cuda
    from tensorgrad.utils._pytree import tree_leaves

    gpus = {leaf.get_device() for leaf in tree_leaves(args) if isinstance(leaf, Tensor) and leaf.is_cuda}
    return sorted(gpus), [cuda.get_rng_state(gpu) for gpu in sorted(gpus)]


def set_device_states(devices, states, *, device_type: str | None = None) -> None:
    """Restores what `get_device_states` returned.

    >>> torch.utils.checkpoint.set_device_states(*torch.utils.checkpoint.get_device_states(torch.ones(2)))
    """
    from tensorgrad import cuda

    if device_type == "meta":
        return
    for device, state in zip(devices, states, strict=False):
        cuda.set_rng_state(state, device)


def checkpoint(
    function: Callable,
    *args,
    use_reentrant: bool | None = None,
    context_fn: Callable = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs,
):
    """Computes `function(*args, **kwargs)` without keeping intermediate results; the backward pass recomputes them.

    Args:
        use_reentrant: which variant to use (see the module's docstring). False is recommended; only that variant works
            with `autograd.grad`, keyword arguments and tensors inside containers.
        context_fn: returns two context managers, one for the first run and one for the recomputation
            (`use_reentrant=False` only).
        determinism_check: "default" compares the shapes and dtypes of both runs; "none" skips the check.
        debug: whether the error from that check lists the ops of both runs.
        early_stop: whether to stop the recomputation as soon as everything needed is available.
        preserve_rng_state: (keyword, default True) whether the recomputation uses the same random numbers as the first
            run.

    Raises:
        CheckpointError: In backward, if the two runs differ.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.utils.checkpoint.checkpoint(lambda x: x.exp().sum(), x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2.7183, 7.3891])
    """
    use_reentrant = _ask(use_reentrant, "checkpoint")
    preserve = kwargs.pop("preserve_rng_state", True)
    if not use_reentrant:
        debug = debug if _Settings.debug is None else _Settings.debug
        early_stop = early_stop if _Settings.early_stop is None else _Settings.early_stop
        region = _Region(function, kwargs, preserve, context_fn, determinism_check, debug, early_stop)
        return region.first_run(args)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if context_fn is not noop_context_fn or debug:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    return CheckpointFunction.apply(function, preserve, *args)


def checkpoint_sequential(functions, segments: int, input, use_reentrant: bool | None = None, **kwargs):
    """Runs a sequence of functions in `segments` chunks, and checkpoints every chunk but the last.

    Args:
        functions: a `Sequential`, or a list of modules or functions of one argument.
        preserve_rng_state: as in `checkpoint`.

    >>> x = torch.ones(2, requires_grad=True)
    >>> layers = [lambda x: x * 2, lambda x: x.exp(), lambda x: x.sum()]
    >>> torch.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=False).backward()
    >>> x.grad
    tensor([14.7781, 14.7781])
    """
    use_reentrant = _ask(use_reentrant, "checkpoint_sequential")
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def chunk(start, end):
        def forward(value):
            for function in functions[start:end]:
                value = function(value)
            return value

        return forward

    size = len(functions) // segments
    last = size * (segments - 1)
    for start in range(0, last, size) if size else ():
        run = chunk(start, start + size)
        input = checkpoint(run, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return chunk(last, len(functions))(input)


def _ask(use_reentrant: bool | None, who: str) -> bool:
    if use_reentrant is None:
        warnings.warn(
            f"torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly to {who}. "
            "use_reentrant=False is recommended, but if you need to preserve the current default behavior, you can "
            "pass use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
            stacklevel=3,
        )
        return True
    return use_reentrant


# --- non-reentrant -------------------------------------------------------------------------------------------------


class _Slot:
    """Saved by a node in place of a tensor; recomputation stores the tensor here, with the backward pass it is for."""

    __slots__ = ("__weakref__", "filled")

    def __init__(self):
        self.filled: tuple = (None, None)


class _Enough(Exception):
    """Ends the recomputation early once all slots are filled."""


class _Region:
    """One checkpointed call: how to run it again, and the slots for the tensors it would have saved, in order.

    The graph owns the slots and the region refers to them weakly. That avoids a reference cycle, and slots that the
    graph has dropped are not filled.
    """

    def __init__(
        self, function, kwargs: dict, preserve: bool, context_fn, determinism_check: str, debug: bool, early_stop: bool
    ):
        if determinism_check not in ("default", "none"):
            raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
        if debug and context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        self.function, self.kwargs, self.early_stop = function, kwargs, early_stop
        self.contexts = context_fn()
        self.random = _random_state() if preserve else None
        self.autocast = autocast_state.current()
        self.checks = determinism_check == "default"
        self.slots: list = []
        self.described: list = []
        self.complete = False  # has the first run ended?
        self.traces: tuple | None = ([], []) if debug else None
        self.inputs: Callable = tuple  # returns the arguments of the first run
        self.again: list[Callable] = []  # what is called before the second

    def first_run(self, args: tuple):
        """Runs the function, saving slots instead of tensors. (In forward mode what is recomputed had no tangents.)"""
        if not GRAD.enabled or LOCAL.transforms:
            return self.function(*args, **self.kwargs)
        self.inputs, self.again = _kept(args), _before_again()
        with saved_tensors_hooks(self.make_slot, self.fetch), self.contexts[0], _traced(self.traces, 0):
            result = self.function(*args, **self.kwargs)
        self.complete = True
        return result

    def make_slot(self, tensor: Tensor) -> _Slot:
        """Returns a slot to save in place of `tensor`."""
        slot = _Slot()
        self.slots.append(weakref.ref(slot))
        self.described.append(_describe(tensor))
        return slot

    def fetch(self, slot: _Slot) -> Tensor:
        """Returns the tensor for the slot, running the function first if this backward pass has not done so yet."""
        wanted: object = engine.RUNS.current[0] or object()  # outside a backward pass, always run
        run, tensor = slot.filled
        if run != wanted:
            self.second_run(wanted)
            run, tensor = slot.filled
            if run != wanted:
                self.fail("torch.utils.checkpoint: a tensor saved in the forward pass was not saved in recomputation.")
        slot.filled = (None, None)
        return tensor

    def second_run(self, wanted) -> None:
        """Runs the function again and fills the slots."""
        count, mismatches, partial = 0, [], False

        def fill(tensor):
            nonlocal count, partial
            count += 1
            if count > len(self.slots):
                if self.complete:
                    self.fail(
                        "torch.utils.checkpoint: trying to save more tensors during recomputation than during the "
                        "original forward pass."
                    )
                partial = True  # backward was called inside the function, whose first run has not finished yet
                return tensor
            slot = self.slots[count - 1]()
            if slot is not None:
                slot.filled = (wanted, tensor)
                if self.checks and _describe(tensor) != self.described[count - 1]:
                    mismatches.append((count - 1, _describe(tensor)))
            if self.early_stop and count == len(self.slots):
                raise _Enough
            return tensor

        for prepare in self.again:
            prepare()
        with contextlib.suppress(_Enough), enable_grad():
            args = self.inputs()
            hooks = saved_tensors_hooks(fill, lambda tensor: tensor)
            surroundings = autocast_state.again(self.autocast), self.contexts[1]
            with _random(self.random), hooks, surroundings[0], surroundings[1], _traced(self.traces, 1):
                self.function(*args, **self.kwargs)
        if self.checks and not partial:
            self.compare(count, mismatches)

    def compare(self, count: int, mismatches: list) -> None:
        """Checks that both runs saved the same tensors. Raises: CheckpointError if they did not."""
        if count != len(self.slots):
            self.fail(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.slots)}\nNumber of tensors saved "
                f"during recomputation: {count}."
            )
        if mismatches:
            lines = "".join(
                f"tensor at position {i}:\nsaved metadata: {self.described[i]}\nrecomputed metadata: {found}\n"
                for i, found in mismatches
            )
            self.fail(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{lines}."
            )

    def fail(self, text: str):
        """Raises CheckpointError, listing the ops of both runs if they were recorded."""
        if self.traces is None:
            raise CheckpointError(text + "\n" + _TIP)
        first, second = ("\n".join(f"  {name}" for name in trace) for trace in self.traces)
        raise CheckpointError(
            f"{text}\nOps that ran in the original forward:\n{first}\nOps that ran during recomputation:\n{second}\n"
        )


def check_backward_validity(inputs) -> None:
    """Warns if no input requires gradients: then the results of a reentrant region do not, either."""
    if not any(isinstance(value, Tensor) and value.requires_grad for value in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs: tuple) -> tuple:
    """Returns the inputs with tensors detached that require gradients as before. Raises: RuntimeError for no tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(
        value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value for value in inputs
    )


def _describe(tensor: Tensor) -> dict:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


@contextlib.contextmanager
def _traced(traces: tuple | None, which: int):
    """Records the names of the ops that run inside the block in `traces[which]`."""
    if traces is None:
        yield
        return
    from tensorgrad.rows.switches import OBSERVERS

    trace = traces[which]
    trace.clear()

    def observe(op, args, result, start, seconds):
        shapes = ", ".join(str(list(a.shape)) for a in args if isinstance(a, Tensor))
        trace.append(f"{op.name}({shapes})")

    OBSERVERS.append(observe)  # the hooks on saved tensors are active, so ops take the path that calls observers
    try:
        yield
    finally:
        OBSERVERS.remove(observe)


class _Keep(Function):
    """Keeps tensors alive as saved tensors of its node.

    They pass through any saved-tensor hooks around the checkpoint, so an outer checkpoint does not keep the arguments
    of the inner ones.
    """

    @staticmethod
    def forward(ctx, handle, *tensors):
        ctx.save_for_backward(*tensors)
        return handle.new_zeros(())

    @staticmethod
    def backward(ctx, g):
        raise AssertionError("the node that keeps a checkpoint's arguments is not part of any result")


def _before_again() -> list[Callable]:
    """What the hooks around a checkpoint want to be called before it runs again: they may drop what a module needs."""
    return [pack.again for pack, _ in LOCAL.saved_hooks if hasattr(pack, "again")]


def _kept(args: tuple) -> Callable:
    """Returns a function that returns `args`, still attached to the graph. It raises RuntimeError if they were modified
    in the meantime.
    """
    where = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if not where:
        return lambda: args
    from tensorgrad.ops.create import zeros

    node = _Keep.apply(zeros((), requires_grad=True), *[args[i] for i in where]).grad_fn
    others = tuple(None if isinstance(a, Tensor) else a for a in args)

    def get():
        values = list(others)
        for i, tensor in zip(where, node.saved_tensors, strict=True):
            values[i] = tensor
        return values

    return get


# --- reentrant -----------------------------------------------------------------------------------------------------


class CheckpointFunction(Function):
    """Records the whole call as one node, whose backward runs the call and the call's backward."""

    @staticmethod
    def forward(ctx, function, preserve, *args):
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4)
        ctx.call, ctx.random = function, _random_state() if preserve else None
        ctx.autocast = autocast_state.current()
        ctx.given = [None if isinstance(a, Tensor) else a for a in args]
        ctx.where = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.where])
        ctx.needed, ctx.again = [args[i].requires_grad for i in ctx.where], _before_again()
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if engine.RUNS.current[2] is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        args = list(ctx.given)
        for i, tensor, needed in zip(ctx.where, ctx.saved_tensors, ctx.needed, strict=True):
            args[i] = tensor.detach().requires_grad_(needed)
        for prepare in ctx.again:
            prepare()
        with _random(ctx.random), autocast_state.again(ctx.autocast), enable_grad():
            outputs = ctx.call(*args)
        outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[a.grad if isinstance(a, Tensor) else None for a in args])


# --- random numbers ------------------------------------------------------------------------------------------------


def _random_state():
    return default_generators.places()


@contextlib.contextmanager
def _random(state):
    """Continues the random generators from `state` inside the block; None changes nothing."""
    if state is None:
        yield
        return
    before = default_generators.places()
    default_generators.go_to(state)
    try:
        yield
    finally:
        default_generators.go_to(before)
