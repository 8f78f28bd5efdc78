"""`TorchDispatchMode`s: while one is on, it is given the operators that calls, and backward passes, run.

Operators are found as for classes with a `__torch_dispatch__` (dispatch_classes.py). What a mode calls is recorded as
ever, so gradients flow through it. A backward pass computes by formulas on tensors, so that the modes see its
operators; convolutions are one operator there, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from tensorgrad.autograd import engine
from tensorgrad.dispatch.guard import ask_first
from tensorgrad.library.dispatch_classes import dispatch
from tensorgrad.library.operator_gradients import by_operators
from tensorgrad.rows.switches import DISPATCH, LOCAL, switch
from tensorgrad.transforms.transform import Transform

NAME = "torch dispatch mode"


def enter(mode: Any) -> None:
    """Puts a mode on in this thread. Calls look for modes while there is one, in any thread."""
    ask_first()
    DISPATCH.append(dispatch)
    LOCAL.dispatch_modes = (*LOCAL.dispatch_modes, mode)
    switch(NAME, True)


def leave() -> None:
    """Takes the innermost mode off."""
    LOCAL.dispatch_modes = LOCAL.dispatch_modes[:-1]
    DISPATCH.remove(dispatch)
    switch(NAME, False)


class ByOperators(Transform):
    """Runs backward passes by formulas on tensors, whose operators modes see."""

    name = "a backward pass that modes see"

    def run(self, op: Any, args: tuple) -> Any:
        """Runs an op."""
        return self.run_below(op, args)

    def gradients(self, node: Any, grads: list) -> Any:
        """Returns the gradients of a node's inputs, given those of its outputs."""
        return by_operators(node, grads)


engine.SEEN_BY_MODES = ByOperators
