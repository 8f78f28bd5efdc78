"""What `torch._dynamo.explain` returns: the graphs of a function and its graph breaks, under PyTorch's names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any

from tensorgrad.capture import steps
from tensorgrad.capture.region import Region

_PLACE = re.compile(r" \((?P<file>[^()]+), line (?P<line>\d+)\)$")


@dataclass
class Reason:
    """Why a function is not one graph. `user_stack` has the place in the program, if it is known."""

    reason: str
    user_stack: list[FrameSummary]
    graph_break: bool = True


@dataclass
class Explained:
    """What became of a function. A function that stays eager has no graph, and a reason.

    >>> from tensorgrad.compat.absent_values import explain  # `torch._dynamo.explain`
    >>> found = explain(lambda x: torch.relu(x * 2))(torch.ones(2))
    >>> found.graph_count, found.graph_break_count, found.op_count
    (1, 0, 2)
    """

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[Reason]
    op_count: int
    ops_per_graph: list[list[Any]]
    out_guards: list[str]
    compile_times: str | None
    text: str

    def __str__(self) -> str:
        counts = (
            f"Graph Count: {self.graph_count}\nGraph Break Count: {self.graph_break_count}\nOp Count: {self.op_count}\n"
        )
        return counts + self.text


def explained(function: Callable, region: Region | None, args: tuple, kwargs: dict) -> Explained:
    """Calls a function until it has a plan or a reason not to have one, and returns what there is to say about it."""
    found: Any = Region(function) if region is None else region
    for _ in range(8):
        found(*args, **kwargs)
        if getattr(found, "settled", True):
            break
    plans = [(state, plan) for kind in getattr(found, "kinds", {}).values() for state, plan in kind.plans]
    reasons = [kind.reason for kind in getattr(found, "kinds", {}).values() if kind.reason]
    reasons += getattr(found, "notes", {})
    graphs = [plan.graph_module() for _, plan in plans]
    ops = [
        [n.target for n in graph.graph.nodes if n.op == "call_function" and n.target is not steps.detach]
        for graph in graphs
    ]
    return Explained(
        graphs, len(graphs), len(reasons), [_reason(r) for r in reasons], sum(map(len, ops)), ops,
        [guard for state, _ in plans for guard in state.guards()], None, found.explain(),
    )  # fmt: skip


def _reason(text: str) -> Reason:
    place = _PLACE.search(text)
    if place is None:
        return Reason(text, [])
    return Reason(text[: place.start()], [FrameSummary(place["file"], int(place["line"]), "")])
