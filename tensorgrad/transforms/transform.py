"""Transforms: what interprets ops in a way of its own while a function runs, such as forward mode.

The transforms that are on in a thread form a stack, `LOCAL.transforms`. While it is not empty, all calls take the slow
path, which hands each op to the innermost transform. That does its own part, and calls ops for it, with itself off:
they are then interpreted by the transforms further out. So transforms nest, and none ever sees what an inner one adds.
Composites are made of ops, and no transform has to know them.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.dispatch.slow_path import execute
from tensorgrad.rows.switches import LOCAL, switch
from tensorgrad.tensor import Tensor


class Transform:
    """One transform, on within a `with` block. Subclasses say what it does with an op.

    >>> from tensorgrad.transforms.transform import Transform
    >>> class Twice(Transform):
    ...     def run(self, op, args):
    ...         with self.off():
    ...             return run_by_outer(op, args) * 2
    >>> from tensorgrad.transforms.transform import run_by_outer
    >>> with Twice():
    ...     torch.ones(2) + 1
    tensor([4., 4.])
    """

    name = "a transform"
    with_kernels = False  # whether kernels run as if it was off, each as one step of it (`beside`)

    def __enter__(self) -> Any:
        self.around = LOCAL.transforms
        LOCAL.transforms = (*self.around, self)
        switch(self.name, True)
        return self

    def __exit__(self, *exception: Any) -> None:
        LOCAL.transforms = self.around
        switch(self.name, False)

    def off(self) -> Off:
        """A context in which only the transforms further out are on."""
        return Off(self.around)

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op: returns its result."""
        raise NotImplementedError

    def run_below(self, op: Any, args: tuple) -> Any:
        """Runs an op as if this transform was off: by the next one further out, if there is any."""
        around = self.around
        return around[-1].run(op, args) if around else execute(op, args)

    def gradients(self, node: Any, grads: list) -> Any:
        """Returns the gradients of a node's inputs, given those of its outputs: by formulas, which are ops."""
        return node.op.compiled.on_tensors(node, grads)

    def refuse_out(self, op: Any, tensors: Any) -> None:
        """Raises an error if the op cannot write its result into `out=`."""

    def stored(self, out: Any, result: Any) -> bool:
        """Writes a result into `out=`, unless that is done as ever. Returns whether it did."""
        return False

    def refuse_backward(self) -> None:
        """Raises an error if `backward()` cannot be called."""

    def written(self, tensor: Any, result: Any) -> None:
        """Called after the values of `result` have been written in place over `tensor`."""

    def keeps_values(self, tensors: list) -> bool:
        """Whether ops on what the transform has for one of these tensors are recorded, and so may keep its values."""
        return False

    def copied(self, array: Any, copy: Any) -> None:
        """Called after an array was copied because it is about to be overwritten."""

    def tensor_made(self, tensor: Any, memory: Any) -> None:
        """Called with each tensor that is made without an op, over memory of its own (None) or existing memory."""

    def assigned_grad(self, tensor: Any, grad: Any) -> None:
        """Called before the program sets the `.grad` of a tensor."""

    def beside(self, function: Any, args: tuple, writes: tuple = (), kind: str = "") -> Any:
        """Runs a function that computes on arrays itself, beside the ops; `NotImplemented`: it is simply called.

        `writes` are the tensors that it writes to. `kind` says what else it does: "random".
        """
        around = self.around
        return around[-1].beside(function, args, writes, kind) if around else NotImplemented

    def optimizer_step(self, optimizer: Any, step: Any, parameters: list) -> Any:
        """Runs the step of an optimizer, which computes on arrays."""
        around = self.around
        return around[-1].optimizer_step(optimizer, step, parameters) if around else step()

    def tangent_shown(self, tensor: Any) -> str | None:
        """The text of a tensor's tangent, for its `repr`; None if it has none."""
        return None

    def class_of(self, array: Any) -> Any:
        """The class of the array that kernels compute with."""
        return array.__class__

    def shares(self, tensor: Any) -> None:
        """Called before another tensor is made of a tensor's array without an op."""

    def hand_over(self, old: Any, new: Any, change: Any) -> None:
        """Gives a tensor what it knows of another one of the same values, with `change` applied to it."""

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        """Runs a custom autograd function: returns its result and its context."""
        with self.off():
            return function._applied(args, kwargs)


def beside_ops(function: Any, args: tuple, writes: tuple = (), kind: str = "") -> Any:
    """What the transforms that are on make of a function (see `Transform.beside`); `NotImplemented`: it is called."""
    return LOCAL.transforms[-1].beside(function, args, writes, kind) if LOCAL.transforms else NotImplemented


def only_recorded(transforms: tuple) -> bool:
    """Whether nothing is on but perhaps a recorder that has kernels as steps."""
    return not transforms or (len(transforms) == 1 and transforms[0].with_kernels)


class Off:
    """A context with these transforms only, in which ops are neither cast nor seen by modes over functions."""

    __slots__ = ("before", "transforms")

    def __init__(self, transforms: tuple):
        self.transforms = transforms

    def __enter__(self) -> None:
        self.before = LOCAL.transforms, LOCAL.autocast, LOCAL.function_modes
        LOCAL.transforms, LOCAL.autocast, LOCAL.function_modes = self.transforms, None, ()

    def __exit__(self, *exception: Any) -> None:
        LOCAL.transforms, LOCAL.autocast, LOCAL.function_modes = self.before


def run_by_outer(op: Any, args: tuple) -> Any:
    """Runs an op by the innermost of the transforms that are on, or simply runs it if none is."""
    transforms = LOCAL.transforms
    return transforms[-1].run(op, args) if transforms else execute(op, args)


def arrays_of(args: tuple) -> list:
    """Returns the arguments of an op as a row's `prepare` takes them: arrays in the place of tensors."""
    given: list = []
    for value in args:
        if isinstance(value, Tensor):
            given.append(value._array)
        elif value.__class__ in (list, tuple) and value and isinstance(value[0], Tensor):
            given.append([v._array for v in value])
        else:
            given.append(value)
    return given
