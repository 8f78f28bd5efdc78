"""A function along many directions: it runs once, and tangents are then pushed through the ops that it called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.autograd.function import Function
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import GRAD, LOCAL
from tensorgrad.tensor import Tensor, differentiable
from tensorgrad.transforms.forward import Level


class Linearized:
    """The derivative of a function at a point, to be applied to many tangents.

    `function` takes the list of `points` and returns any value; `outputs` picks the tensors of interest from it. If the
    function writes in place or calls a custom function, it runs again for each application.

    >>> from tensorgrad.transforms.linearized import Linearized
    >>> slope = Linearized(lambda points: points[0].sin(), [torch.zeros(2)], lambda result: [result])
    >>> slope([torch.tensor([1.0, 2.0])])
    [tensor([1., 2.])]
    """

    def __init__(self, function: Callable, points: Sequence[Tensor], outputs: Callable) -> None:
        self.function, self.points, self.pick = function, points, outputs
        with _Recorder() as level:
            self.starts = [level.dual(p) for p in points]
            self.result = function(self.starts)
            self.outputs = outputs(self.result)
        self.steps = level.steps

    def __call__(self, tangents: Sequence[Tensor | None]) -> list[Tensor]:
        """The tangents of the outputs, zeros for those that depend on no point, from those of the points (or None)."""
        if self.steps is None:
            with Level() as level:
                duals = [p if t is None else level.dual(p, t) for p, t in zip(self.points, tangents, strict=True)]
                found = [(o, level.tangent_of(o)) for o in self.pick(self.function(duals))]
        else:
            level = Level()
            level.around = LOCAL.transforms
            for start, t in zip(self.starts, tangents, strict=True):
                if t is not None:
                    level.give(start, t)
            recorded = GRAD.enabled
            try:
                for op, args, result, was_recorded in self.steps:
                    arguments = level.tangents_among(args)
                    if arguments is not None:
                        GRAD.enabled = recorded and was_recorded
                        level.give_from(op, args, arguments, result)
            finally:
                GRAD.enabled = recorded
            found = [(o, level.tangent_of(o)) for o in self.outputs]
        return [o.new_zeros(o.shape) if t is None else t for o, t in found]


MOVES: Any = object()  # stands for the tangent of what depends on the points, while it is not known yet


class _Recorder(Level):
    """A level that keeps the ops through which tangents will pass: (op, arguments, result, whether it was recorded).

    It computes no tangents. It only knows which values depend on the points; an op that is not differentiable after all
    will be noticed when tangents pass. After a write in place, or a custom function, it keeps no ops any more.
    """

    on_arrays = False

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple, Any, bool]] | None = []

    def dual(self, value: Tensor, tangent: Tensor = MOVES) -> Tensor:
        made = self.primal(value)
        self._keep(made._array, MOVES)
        return made

    def tangent_of(self, tensor: Tensor) -> Tensor | None:
        found = self._kept(tensor._array) or (tensor._view is not None and self._kept(tensor._view[0]._array))
        return MOVES if found else None

    def give_from(self, op: Any, args: tuple, tangents: list, result: Any) -> None:
        if self.steps is not None:
            self.steps.append((op, args, result, GRAD.enabled))
        results = (result,) if isinstance(result, Tensor) else result
        if len(op.outputs) > 1:
            results = results[: op.differentiable_outputs]
        for tensor in results:
            if differentiable(tensor._array.dtype):
                self._keep(tensor._array, MOVES)

    def same(self, tensor: Tensor, other: Tensor) -> None:
        if self.tangent_of(other) is not None:
            if self.steps is not None:
                self.steps.append((OPS["alias"], (other,), tensor, GRAD.enabled))
            self._keep(tensor._array, MOVES)

    def hand_over(self, old: Tensor, new: Tensor, change: Any) -> None:
        if self.tangent_of(old) is not None:
            if self.steps is not None:
                self.steps.append((OPS["alias"], (old,), new, False))
            self._keep(new._array, MOVES)

    def written(self, tensor: Tensor, result: Tensor) -> None:
        if self.tangent_of(tensor) is not None or self.tangent_of(result) is not None:
            self.steps = None

    def copied(self, array: Any, copy: Any) -> None:
        if self._kept(array):
            self._keep(copy, MOVES)

    def tangent_shown(self, tensor: Tensor) -> str | None:
        return None

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        moving = any(isinstance(a, Tensor) and self.tangent_of(a) is not None for a in args)
        with self.off():
            results, ctx = function._applied(args, kwargs)
        if moving:
            self.steps = None
            if function.jvp is Function.jvp:
                Function.jvp(ctx)
        return results, ctx
