"""ONNX's `If` and `Loop`: modules that run graphs of their own."""

from __future__ import annotations

from typing import Any

import tensorgrad
from tensorgrad.nn import Module


class If(Module):
    """Runs one of two graphs. Both take the values of the graph around them that either uses."""

    def __init__(self, then: Module, other: Module) -> None:
        super().__init__()
        self.then_branch, self.else_branch = then, other

    def forward(self, condition: Any, *outer: Any) -> tuple:
        """The results of the graph that the condition chooses."""
        return (self.then_branch if bool(condition) else self.else_branch)(*outer)


class Loop(Module):
    """Runs a graph again and again, with the values that it returned before.

    Args:
        body: takes the number of the turn, the condition, the values that are carried on, and those of the graph
            around it; returns the next condition, the next values, and what is kept of each turn.
        carried: how many values are carried on.
    """

    def __init__(self, body: Module, carried: int) -> None:
        super().__init__()
        self.body, self.carried = body, carried

    def forward(self, turns: Any, condition: Any, *values: Any) -> tuple:
        """The last values, and what was kept of all turns, stacked."""
        state, outer = list(values[: self.carried]), values[self.carried :]
        kept: list[list[Any]] = []
        condition = tensorgrad.tensor(True) if condition is None else condition
        turn = 0
        while (turns is None or turn < int(turns)) and bool(condition):
            condition, *made = self.body(tensorgrad.tensor(turn), condition, *state, *outer)
            state = made[: self.carried]
            kept.append(made[self.carried :])
            turn += 1
        if not kept and len(self.body.graph.output_node().args[0]) > 1 + self.carried:
            raise NotImplementedError("onnx: a Loop that keeps something of each turn, and has none")
        return (*state, *(tensorgrad.stack(values) for values in zip(*kept, strict=True)))
