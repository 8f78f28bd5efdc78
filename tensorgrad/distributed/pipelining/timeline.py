"""When each action of a pipeline can run: checks orders, and prints them as a table."""

from __future__ import annotations

from collections import deque

from tensorgrad.distributed.pipelining.orders import FORWARD, FULL_BACKWARD, REDUCE_GRAD, Action

__all__ = ["check_order", "format_order", "timeline"]


def _needs(action: Action, num_stages: int, n_microbatches: int) -> list[Action]:
    """The actions that must be over before this one."""
    stage, kind, microbatch = action
    if kind == FORWARD:
        return [Action(stage - 1, FORWARD, microbatch)] if stage else []
    if kind == FULL_BACKWARD:
        after = [Action(stage + 1, FULL_BACKWARD, microbatch)] if stage < num_stages - 1 else []
        return [Action(stage, FORWARD, microbatch), *after]
    return [Action(stage, FULL_BACKWARD, i) for i in range(n_microbatches)]


def timeline(order: dict[int, list[Action]]) -> dict[int, list[Action | None]]:
    """Returns what each rank does in each step of time, if every pass takes one; None where it waits.

    Args:
        order: for each rank, its actions.

    Raises:
        ValueError: some ranks would wait for ever.

    >>> from tensorgrad.distributed.pipelining.orders import gpipe
    >>> from tensorgrad.distributed.pipelining.timeline import timeline
    >>> timeline({0: gpipe(0, 2), 1: gpipe(1, 2)})[1]
    [None, 1F0, 1F1, 1B0, 1B1, None]
    """
    everything = [action for actions in order.values() for action in actions]
    num_stages = 1 + max((action.stage_index for action in everything), default=0)
    n_microbatches = 1 + max((action.microbatch_index or 0 for action in everything), default=0)
    waiting = {rank: deque(actions) for rank, actions in order.items()}
    rows: dict[int, list[Action | None]] = {rank: [] for rank in order}
    over: set[Action] = set()
    while any(waiting.values()):
        now, missing = {}, []
        for rank, actions in waiting.items():
            if actions:
                needed = [n for n in _needs(actions[0], num_stages, n_microbatches) if n not in over]
                if needed:
                    missing.append(f"rank {rank} waits for {needed[0]} to run {actions[0]}")
                else:
                    now[rank] = actions.popleft()
        if not now:
            raise ValueError(f"the order of this pipeline cannot be run: {', '.join(missing)}")
        for rank, row in rows.items():
            row.append(now.get(rank))
        over.update(now.values())
    return rows


def check_order(order: dict[int, list[Action]], num_stages: int, n_microbatches: int) -> dict[int, int]:
    """Returns the rank of each stage, after checking that every stage runs every microbatch, once and in time.

    Raises:
        ValueError: a pass is missing or is there twice, a stage is on two ranks, or ranks would wait for ever.

    >>> from tensorgrad.distributed.pipelining.orders import gpipe
    >>> from tensorgrad.distributed.pipelining.timeline import check_order
    >>> check_order({0: gpipe(0, 2), 1: gpipe(1, 2)}, 2, 2)
    {0: 0, 1: 1}
    """
    place: dict[int, int] = {}
    found: set[Action] = set()
    for rank, actions in order.items():
        for action in actions:
            if action in found:
                raise ValueError(f"{action} is in the order of this pipeline twice")
            found.add(action)
            if place.setdefault(action.stage_index, rank) != rank:
                raise ValueError(
                    f"stage {action.stage_index} is on rank {place[action.stage_index]} and on rank {rank}"
                )
    kinds = (FORWARD, FULL_BACKWARD) if any(a.computation_type == FULL_BACKWARD for a in found) else (FORWARD,)
    wanted = {Action(s, kind, i) for s in range(num_stages) for kind in kinds for i in range(n_microbatches)}
    for missing in sorted(wanted - found):
        raise ValueError(f"{missing} is not in the order of this pipeline")
    for unknown in sorted(a for a in found - wanted if a.computation_type != REDUCE_GRAD):
        raise ValueError(f"{unknown}: there are {num_stages} stages and {n_microbatches} microbatches")
    timeline(order)
    return place


def format_order(order: dict[int, list[Action]]) -> str:
    """Returns a table: a row for each step of time, a column for each rank.

    >>> from tensorgrad.distributed.pipelining.orders import one_forward_one_backward
    >>> from tensorgrad.distributed.pipelining.timeline import format_order
    >>> print(format_order({rank: one_forward_one_backward(rank, 2, 2) for rank in range(2)}))
            Rank 0  Rank 1
    Step 0  0F0
    Step 1  0F1     1F0
    Step 2          1B0
    Step 3  0B0     1F1
    Step 4          1B1
    Step 5  0B1
    """
    rows = timeline(order)
    table = [["", *(f"Rank {rank}" for rank in rows)]]
    for step, actions in enumerate(zip(*rows.values())):
        table.append([f"Step {step}", *("" if action is None else str(action) for action in actions)])
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in table)
