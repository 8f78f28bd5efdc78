"""A function along many directions: it runs once, and tangents are then pushed through the ops that it called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.dispatch.forward import Level
from tensorgrad.dispatch.kernel_tables import OPS
from tensorgrad.dispatch.switches import GRAD, LOCAL
from tensorgrad.tensor import Tensor


class Linearized:
    """The derivative of a function at a point, to be applied to many tangents.

    `function` takes the list of `points` and returns any value; `outputs` picks the tensors of interest from it. If the
    function writes in place or calls a custom function, it runs again for each application.

    >>> import tensorgrad as torch
    >>> from tensorgrad.dispatch.linearized import Linearized
    >>> slope = Linearized(lambda points: points[0].sin(), [torch.zeros(2)], lambda result: [result])
    >>> slope([torch.tensor([1.0, 2.0])])
    [tensor([1., 2.])]
    """

    def __init__(self, function: Callable, points: Sequence[Tensor], outputs: Callable) -> None:
        self.function, self.points, self.pick = function, points, outputs
        with _Recorder() as level:
            self.starts = [level.dual(p, p.new_zeros(p.shape)) for p in points]
            self.result = function(self.starts)
            self.outputs = outputs(self.result)
            self.moves = [level.tangent_of(o) is not None for o in self.outputs]  # whether they depend on the points
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


class _Recorder(Level):
    """A level that keeps the ops through which tangents passed, as (op, arguments, result, whether it was recorded)."""

    on_arrays = False  # ops are kept

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple, Any, bool]] | None = []

    def give_from(self, op: Any, args: tuple, tangents: list, result: Any) -> None:
        if self.steps is not None:
            self.steps.append((op, args, result, GRAD.enabled))
        super().give_from(op, args, tangents, result)

    def same(self, tensor: Tensor, other: Tensor) -> None:
        if self.steps is not None and self.tangent_of(other) is not None:
            self.steps.append((OPS["alias"], (other,), tensor, GRAD.enabled))
        super().same(tensor, other)

    def hand_over(self, old: Tensor, new: Tensor, change: Any) -> None:
        if self.steps is not None and self.tangent_of(old) is not None:
            self.steps.append((OPS["alias"], (old,), new, False))
        super().hand_over(old, new, change)

    def written(self, tensor: Tensor, result: Tensor) -> None:
        if self.tangent_of(tensor) is not None or self.tangent_of(result) is not None:
            self.steps = None
        super().written(tensor, result)

    def call_function(self, function: Any, args: tuple, kwargs: dict) -> tuple:
        if any(isinstance(a, Tensor) and self.tangent_of(a) is not None for a in args):
            self.steps = None
        return super().call_function(function, args, kwargs)
