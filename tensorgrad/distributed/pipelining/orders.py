"""In which order each rank of a pipeline runs its forward and backward passes: plain lists of actions.

0F1             stage 0 runs the forward pass of microbatch 1
0B1             stage 0 runs the backward pass of microbatch 1
0REDUCE_GRAD    the gradients of stage 0 are complete
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "FORWARD",
    "FULL_BACKWARD",
    "REDUCE_GRAD",
    "Action",
    "forwards_of",
    "gpipe",
    "interleaved_1f1b",
    "looped_bfs",
    "one_forward_one_backward",
    "with_reduce_grad",
]

FORWARD, FULL_BACKWARD, REDUCE_GRAD = "F", "B", "REDUCE_GRAD"


class Action(NamedTuple):
    """One thing that a stage does.

    >>> from tensorgrad.distributed.pipelining.orders import FORWARD, Action
    >>> Action(0, FORWARD, 1)
    0F1
    """

    stage_index: int
    computation_type: str
    microbatch_index: int | None = None

    def __repr__(self) -> str:
        number = "" if self.microbatch_index is None else self.microbatch_index
        return f"{self.stage_index}{self.computation_type}{number}"


def _alternating(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """Some forward passes first, then one forward and one backward by turns, then the other backward passes."""
    actions = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards):
        actions += [forward, backward]
    return actions + backwards[len(forwards) - warmup :]


def gpipe(stage_index: int, n_microbatches: int) -> list[Action]:
    """Returns the order of one stage: all forward passes, then all backward passes.

    Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks", 2019.

    >>> from tensorgrad.distributed.pipelining.orders import gpipe
    >>> gpipe(0, 3)
    [0F0, 0F1, 0F2, 0B0, 0B1, 0B2]
    """
    forwards = [Action(stage_index, FORWARD, i) for i in range(n_microbatches)]
    backwards = [Action(stage_index, FULL_BACKWARD, i) for i in range(n_microbatches)]
    return _alternating(forwards, backwards, n_microbatches)


def one_forward_one_backward(stage_index: int, num_stages: int, n_microbatches: int) -> list[Action]:
    """Returns the order of one stage that runs a backward pass as early as it can.

    Stage `s` holds the activations of `num_stages - s` microbatches at most, however many there are.

    Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019.

    >>> from tensorgrad.distributed.pipelining.orders import one_forward_one_backward
    >>> one_forward_one_backward(0, 2, 3)
    [0F0, 0F1, 0B0, 0F2, 0B1, 0B2]
    """
    forwards = [Action(stage_index, FORWARD, i) for i in range(n_microbatches)]
    backwards = [Action(stage_index, FULL_BACKWARD, i) for i in range(n_microbatches)]
    return _alternating(forwards, backwards, min(num_stages - 1 - stage_index, n_microbatches))


def interleaved_1f1b(rank: int, n_ranks: int, n_local_stages: int, n_microbatches: int) -> list[Action]:
    """Returns the order of a rank that has stages `rank`, `rank + n_ranks`, ..., one in each round of the ranks.

    The microbatches go through the local stages in groups of about `n_ranks`.

    Raises:
        ValueError: the groups do not have the same size.

    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021.

    >>> from tensorgrad.distributed.pipelining.orders import interleaved_1f1b
    >>> interleaved_1f1b(0, 1, 2, 2)
    [0F0, 1F0, 1B0, 0F1, 0B0, 1F1, 1B1, 0B1]
    """
    rounds = max(1, n_microbatches // n_ranks)
    if n_microbatches % rounds:
        raise ValueError(
            "Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds "
            f"({rounds}), but got {n_microbatches}."
        )
    size = n_microbatches // rounds  # of a group
    forwards, backwards = [], []
    for group in range(rounds):
        microbatches = range(group * size, (group + 1) * size)
        for local in range(n_local_stages):
            forwards += [Action(local * n_ranks + rank, FORWARD, i) for i in microbatches]
            stage = (n_local_stages - 1 - local) * n_ranks + rank
            backwards += [Action(stage, FULL_BACKWARD, i) for i in microbatches]
    warmup = (n_local_stages - 1) * size + 2 * (n_ranks - 1 - rank)
    return _alternating(forwards, backwards, min(warmup, len(forwards)))


def looped_bfs(rank: int, n_ranks: int, n_local_stages: int, n_microbatches: int) -> list[Action]:
    """Returns the order of a rank whose stages each run all microbatches before the next one does.

    Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism", 2022.

    >>> from tensorgrad.distributed.pipelining.orders import looped_bfs
    >>> looped_bfs(0, 1, 2, 2)
    [0F0, 0F1, 1F0, 1F1, 1B1, 1B0, 0B1, 0B0]
    """
    stages = [local * n_ranks + rank for local in range(n_local_stages)]
    forwards = [Action(stage, FORWARD, i) for stage in stages for i in range(n_microbatches)]
    return forwards + [Action(stage, FULL_BACKWARD, i) for stage, _, i in reversed(forwards)]


def with_reduce_grad(actions: Iterable[Action]) -> list[Action]:
    """Adds `REDUCE_GRAD` after the last backward pass of each stage.

    >>> from tensorgrad.distributed.pipelining.orders import gpipe, with_reduce_grad
    >>> with_reduce_grad(gpipe(0, 1))
    [0F0, 0B0, 0REDUCE_GRAD]
    """
    actions = list(actions)
    last = {action.stage_index: i for i, action in enumerate(actions) if action.computation_type == FULL_BACKWARD}
    found = []
    for i, action in enumerate(actions):
        found.append(action)
        if last.get(action.stage_index) == i:
            found.append(Action(action.stage_index, REDUCE_GRAD))
    return found


def forwards_of(actions: Iterable[Action]) -> list[Action]:
    """Returns the forward passes only.

    >>> from tensorgrad.distributed.pipelining.orders import forwards_of, gpipe
    >>> forwards_of(gpipe(0, 2))
    [0F0, 0F1]
    """
    return [action for action in actions if action.computation_type == FORWARD]
