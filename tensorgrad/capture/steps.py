"""The functions that nodes of a recorded graph call beside the rows of ops: writes, gradients, draws, checks.

All take and return tensors, and compute on arrays: a recorded graph is below autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tensorgrad.autograd.graph import Node
from tensorgrad.autograd.modes import GRAD, no_grad
from tensorgrad.fx import has_side_effect
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.storage.stubs import STORAGES
from tensorgrad.tensor import Tensor, differentiable, share


class GuardError(RuntimeError):
    """A recorded graph was called where it does not stand for its program: a value or a size is another one."""


# --- writes ----------------------------------------------------------------------------------------------------------


@has_side_effect
def write(target: Tensor, values: Any) -> Tensor:
    """Writes values into the memory of a tensor.

    >>> from tensorgrad.capture import steps
    >>> steps.write(torch.zeros(2), torch.ones(2))
    tensor([1., 1.])
    """
    storage = target._storage
    storage.bump()
    storage.write(target._array, values._array if isinstance(values, Tensor) else values)
    return target


@has_side_effect
def add_to(target: Tensor, values: Tensor) -> Tensor:
    """Adds values to a tensor in place."""
    storage = target._storage
    storage.bump()
    storage.add_to(target._array, values._array)
    return target


@has_side_effect
def set_grad(leaf: Tensor, grad: Tensor | None) -> None:
    """Sets the `.grad` of a leaf."""
    leaf._grad = grad


def grad_of(leaf: Tensor) -> Tensor:
    """The `.grad` of a leaf.

    Raises: GuardError if it has none.
    """
    if leaf._grad is None:
        raise GuardError("the program was recorded with a `.grad` that is None now")
    return leaf._grad


@has_side_effect
def check_no_grad(leaf: Tensor) -> None:
    """Raises: GuardError if a leaf has a gradient: the program would add to it."""
    if leaf._grad is not None:
        raise GuardError("the program was recorded where `.grad` was None; it is a tensor now, to which it would add")


@has_side_effect
def optimizer_step(optimizer: Any) -> None:
    """One step of an optimizer: reads the gradients of its parameters, writes these and its state."""
    optimizer.step()


# --- random numbers --------------------------------------------------------------------------------------------------


@has_side_effect
def seed_generator(generator: Any, seed: int) -> None:
    """Seeds a generator."""
    generator.manual_seed(seed)


@has_side_effect
def generator_state(generator: Any) -> Any:
    """The state of a generator, to go back to."""
    return generator.state_bytes()


@has_side_effect
def set_generator_state(generator: Any, state: Any) -> None:
    """Sets the state of a generator."""
    generator.set_state_bytes(state)


# --- views and memory ------------------------------------------------------------------------------------------------


def view_of_memory(x: Tensor, shape: tuple, strides: tuple, offset: int, dtype: Any) -> Tensor:
    """Another view of a tensor's memory: strides and offset in bytes, from the tensor's first element."""
    storage = x._storage
    start = storage.offset_of(x._array) + offset
    return share(storage.strided(tuple(shape), tuple(strides), start, dtype.numpy), storage)


def empty(shape: tuple, dtype: Any, device: Any) -> Tensor:
    """An uninitialized tensor."""
    import tensorgrad

    return tensorgrad.empty(shape, dtype=dtype, device=device)


def detach(x: Tensor) -> Tensor:
    """A tensor without a graph."""
    return x.detach()


def getitem(values: Any, index: int) -> Any:
    """One of several results."""
    return values[index]


# --- checks ----------------------------------------------------------------------------------------------------------


@has_side_effect
def check_shape(x: Tensor, shape: tuple) -> None:
    """Raises: GuardError if a size that depends on values is not the one that was recorded."""
    if tuple(x.shape) != tuple(shape):
        raise GuardError(f"a tensor has the shape {tuple(x.shape)}; when the program was recorded it was {shape}")


@has_side_effect
def check_values(x: Tensor, expected: Any) -> None:
    """Raises: GuardError if values that the program read are not those that were recorded."""
    found = x.tolist()
    if found != expected and not (found != found and expected != expected):
        raise GuardError(f"the program read {expected!r} when it was recorded; the value is {found!r} now")


# --- gradients on arrays ---------------------------------------------------------------------------------------------


@cache
def backward_of(name: str) -> Callable:
    """The function that computes the gradients of an op's inputs on arrays, as the engine does.

    >>> from tensorgrad.capture import steps
    >>> steps.backward_of("exp")([torch.ones(2)], [torch.full((2,), 3.0)], (), (True,))
    [tensor([3., 3.])]
    """
    op = OPS[name]

    def backward(grads: Any, saved: Any, kept: Any, needs: Any, outputs: Any = None) -> list:
        node = object.__new__(Node)
        node.op, node.hooks, node.args, node.sequence_nr = op, None, tuple(kept), 0
        node.saved = tuple(_as_saved(value) for value in saved)
        node.edges = tuple((node, 0) if needed else None for needed in needs)
        array = next(g._array for g in grads if g is not None)
        node.outputs = outputs or ((array.shape, array.dtype, array.__class__),)
        before, GRAD.enabled = GRAD.enabled, False
        try:
            found = op.compiled.array_backwards[array.__class__](node, list(grads))
        finally:
            GRAD.enabled = before
            node.edges = ()  # which lead to the node itself
        if found is NotImplemented:
            raise GuardError(f"the gradients of {name} were recorded on arrays of another form")
        return found

    backward.__name__ = backward.__qualname__ = f"{name}_backward"
    backward.__module__ = __name__
    backward.backward_of = name  # type: ignore[attr-defined]
    return backward


def _as_saved(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array, value._storage, value._storage.version
    return [_as_saved(v) for v in value] if isinstance(value, tuple | list) and _has_tensors(value) else value


def _has_tensors(values: Any) -> bool:
    return any(isinstance(v, Tensor) for v in values)


@cache
def with_cache(name: str) -> Callable:
    """The function that runs an op, and returns what its kernel keeps for the backward kernel after the results."""
    op = OPS[name]
    places = [list(op.saved).index(kept) if kept in op.saved else None for kept in op.cache]

    def run(*args: Any) -> tuple:
        with no_grad():
            args = tuple(_recorded(a) for a in args)
        before, GRAD.enabled = GRAD.enabled, True
        try:
            made = op.compiled.plain(*args)
        finally:
            GRAD.enabled = before
        results = made if isinstance(made, tuple) else (made,)
        saved = next(r._edge[0] for r in results if r._edge is not None).saved
        kept = [None if place is None else saved[place] for place in places]
        for r in results:
            r._edge, r._requires_grad, r._view = None, False, None
        return (*results, *kept)

    run.__name__ = run.__qualname__ = f"{name}_with_cache"
    run.__module__ = __name__
    run.keeps = name  # type: ignore[attr-defined]
    return run


def _recorded(value: Any) -> Any:
    """A tensor over the same memory that requires grad, so that the op keeps what it would for it."""
    if isinstance(value, Tensor):
        made = share(value._array, value._storage)
        made._requires_grad = differentiable(made._array.dtype) and STORAGES[made._array.__class__].xp is not None
        return made
    if isinstance(value, tuple | list) and _has_tensors(value):
        return type(value)(_recorded(v) for v in value)
    return value
